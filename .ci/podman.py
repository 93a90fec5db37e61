#!/usr/bin/env python3
"""Podman for a machine that gives no control groups: the real one, but for the start and the end of the process of a container.

`run -d` makes the container with the real podman, mounts it with its volumes, and starts its command with its user and its variables in a
chroot; `logs`, `stop` and `rm` belong to that process. All other commands are those of the real podman. `stop` fails if the process does
not end in order within the time of the container.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = "SHOAL_PODMAN_ROOT"


def podman(*arguments):
    root = os.environ[ROOT]
    options = ["--root", f"{root}/podman", "--runroot", f"{root}/podman-run", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
    done = subprocess.run(["/usr/bin/podman", *options, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def container(name):
    return json.loads(podman("container", "inspect", name))[0]


def file(name, end):
    """A file about the process of a container."""
    return os.path.join(os.environ[ROOT], f"{name}.{end}")


def start(made):
    root, name = podman("mount", made["Id"]).strip(), made["Name"]
    for mount in made["Mounts"]:
        inside = root + mount["Destination"]
        # A new volume gets owner and mode of the folder of the image.
        if not os.listdir(mount["Source"]):
            status = os.stat(inside)
            os.chown(mount["Source"], status.st_uid, status.st_gid)
            os.chmod(mount["Source"], status.st_mode & 0o7777)
        subprocess.run(["mount", "--bind", mount["Source"], inside], check=True)
    if os.fork():
        return
    # The parent of the process: it writes down how the process ends.
    os.setsid()
    command = [shutil.which("chroot"), f"--userspec={made['Config']['User']}", root, made["Path"], *made["Args"]]
    with open(file(name, "log"), "w") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                 env=dict(one.split("=", 1) for one in made["Config"]["Env"]))
        for kept in (1, 2):
            os.dup2(log.fileno(), kept)
    with open(file(name, "pid"), "w") as out:
        out.write(str(child.pid))
    code = child.wait()
    with open(file(name, "code"), "w") as out:
        out.write(f"{code}\n")
    os._exit(0)


def stop(made):
    name = made["Name"]
    with open(file(name, "pid")) as pid:
        os.kill(int(pid.read()), signal.SIGTERM)
    deadline = time.monotonic() + made["Config"]["StopTimeout"]
    while not os.path.exists(file(name, "code")):
        if time.monotonic() > deadline:
            sys.exit(f"{name} did not end within {made['Config']['StopTimeout']} s")
        time.sleep(0.05)
    time.sleep(0.05)
    with open(file(name, "code")) as code:
        if (ended := code.read().strip()) != "0":
            sys.exit(f"{name} ended with {ended}")
    root = podman("mount", name).strip()
    for mount in made["Mounts"]:
        subprocess.run(["umount", root + mount["Destination"]], check=True)
    os.remove(file(name, "code"))
    os.remove(file(name, "pid"))


def main():
    match sys.argv[1:]:
        case ["run", "-d", *options]:
            start(container(podman("create", "--pull=never", *options).strip()))
        case ["logs", name]:
            with open(file(name, "log")) as log:
                print(log.read(), end="")
        case ["stop", name]:
            stop(container(name))
        case ["rm", name]:
            podman("unmount", name)
            podman("rm", name)
        case other:
            print(podman(*other), end="")


class Podman:
    """The stand-in as a program in a folder, with the real one behind it; at the end nothing of it runs or is mounted."""

    def __init__(self, work, programs):
        self.work = work
        os.environ[ROOT] = work
        shutil.copy(__file__, os.path.join(programs, "podman"))
        os.chmod(os.path.join(programs, "podman"), 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in os.listdir(self.work):
            if name.endswith(".pid"):
                with contextlib.suppress(OSError, ValueError), open(os.path.join(self.work, name)) as pid:
                    os.kill(int(pid.read()), signal.SIGKILL)
        with open("/proc/mounts") as mounts:
            points = [line.split()[1] for line in mounts]
        for point in reversed(points):
            if point.startswith(os.path.join(self.work, "podman")):
                subprocess.run(["umount", "--lazy", point], check=False)

    def real(self, *arguments):
        return podman(*arguments)

    def volume(self, name):
        """The folder of a volume."""
        return json.loads(podman("volume", "inspect", name))[0]["Mountpoint"]


if __name__ == "__main__":
    main()
