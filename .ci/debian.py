"""What `install` and `vm/first` share: the commands of the documents, and a Debian in a folder in which they are executed.

The Debian has no systemd as its first process. A `systemctl` there starts what the unit's ExecStart says, as the unit's user, and waits
for READY=1 on a socket of the script, as systemd would.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import sys
import textwrap
import threading
import urllib.request

from shoal import fail, run, until

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SERIAL = "XF-12345ABC"
PASSWORD = "simulated-password"
# What an installation from the archive needs of a systemd that is not there.
STANDALONE = ("systemd-standalone-sysusers", "systemd-standalone-tmpfiles")

SYSTEMCTL = r"""#!/bin/sh
# Stands for systemd: starts the service by its unit and waits until it is ready.
echo "$*" >> /var/log/systemctl.log
unit() {
    for folder in /etc/systemd/system /usr/lib/systemd/system; do
        [ ! -e "$folder/shoal.service" ] || { echo "$folder/shoal.service"; return; }
    done
    echo "there is no shoal.service" >&2
    exit 1
}
start() {
    [ ! -e /run/shoal.pid ] || return 0
    rm -f /run/ready
    file=$(unit) || exit 1
    command=$(sed -n 's/^ExecStart=//p' "$file")
    user=$(sed -n 's/^User=//p' "$file")
    setpriv --reuid "$user" --regid "$user" --clear-groups env -i PATH=/usr/bin:/bin NOTIFY_SOCKET=/run/notify \
        $command >> /var/log/journal.log 2>&1 &
    echo $! > /run/shoal.pid
    for _ in $(seq 300); do [ ! -e /run/ready ] || return 0; sleep 0.1; done
    tail -5 /var/log/journal.log >&2
    return 1
}
stop() {
    [ -e /run/shoal.pid ] || return 0
    kill "$(cat /run/shoal.pid)"
    while kill -0 "$(cat /run/shoal.pid)" 2>/dev/null; do sleep 0.1; done
    rm /run/shoal.pid
}
case "$*" in
    "enable --now shoal" | "start shoal") start ;;
    "try-restart shoal.service") [ ! -e /run/shoal.pid ] || { stop; start; } ;;
    "restart shoal") stop; start ;;
    "disable --now shoal.socket shoal.service" | "stop shoal.socket shoal.service") unit >/dev/null && stop ;;
    daemon-reload) ;;
    *) echo "an unexpected systemctl $*" >&2; exit 1 ;;
esac
"""
JOURNALCTL = "#!/bin/sh\n[ \"$*\" = '-u shoal -o cat' ] || exit 1\ncat /var/log/journal.log\n"


def block(document, name, words=None):
    """The `console` block of a document that has this comment before it, with other words for some of its words."""
    with open(os.path.join(HERE, document), encoding="utf-8") as file:
        found = re.findall(rf"^( *)<!-- {re.escape(name)} -->\n\n\1```console\n(.*?)\n\1```", file.read(), re.M | re.S)
    if len(found) != 1:
        fail(f"{document} has {len(found)} blocks with the comment: {name}")
    return replaced(textwrap.dedent(found[0][1]).replace("\\\n", " "), words or {})


def replaced(text, words):
    for old, new in words.items():
        text = text.replace(old, new)
    return text


class Debian:
    """A minimal Debian in a folder, with a socket for messages to its service manager."""

    def __init__(self, root):
        self.root = root
        self.messages = []

    def path(self, name):
        return os.path.join(self.root, name.lstrip("/"))

    def run(self, *command, environment=None, **options):
        clean = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
        return run("chroot", self.root, *command, env=clean | (environment or {}), **options)

    def shell(self, text, **options):
        """Runs what an operator types, in the folder of root."""
        return self.run("sh", "-ec", f"cd /root\n{text}", **options)

    def copy(self, path):
        """Puts a file into the folder in which the commands are run."""
        shutil.copy(path, self.path("/root"))

    def write(self, name, text, mode=0o644):
        with open(self.path(name), "w") as file:
            file.write(text)
        os.chmod(self.path(name), mode)

    def read(self, name):
        with open(self.path(name)) as file:
            return file.read()

    def exists(self, name):
        return os.path.lexists(self.path(name))

    def named(self):
        """The paths that have the name of the program, but for logs and what the commands of an operator were given."""
        skipped = [word for name in ("/proc", "/dev", "/root", "/srv", "/var/log") for word in ("-path", name, "-o")]
        found = self.run("find", "/", "-xdev", "(", *skipped[:-1], ")", "-prune", "-o", "-name", "*shoal*", "-prune", "-print")
        return set(found.split())

    def listen(self):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        server.bind(self.path("/run/notify"))
        os.chmod(self.path("/run/notify"), 0o777)

        def receive():
            while message := server.recv(4096).decode():
                self.messages.append(message)
                if message.startswith("READY=1"):
                    self.write("/run/ready", "")
        threading.Thread(target=receive, daemon=True).start()


def base(folder):
    """Makes the Debian that the others are copies of. As a program: `debian.py FOLDER`."""
    run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(STANDALONE)}", "bookworm", folder)


@contextlib.contextmanager
def debian(base_folder, root, standalone=False):
    """A copy of a Debian that has nothing else; with `standalone` it has the programs that make users and folders by files of systemd."""
    run("cp", "-a", base_folder, root)
    system = Debian(root)
    with contextlib.ExitStack() as undo:
        for name in ("dev", "proc"):
            run("mount", "--bind", f"/{name}", system.path(name))
            undo.callback(run, "umount", "--lazy", system.path(name))
        undo.callback(end_of, system)
        if not standalone:
            system.run("dpkg", "--purge", *STANDALONE)
        for folder in ("/run/systemd/system", "/etc/systemd/system"):
            os.makedirs(system.path(folder), exist_ok=True)
        system.write("/usr/bin/systemctl", SYSTEMCTL, 0o755)
        system.write("/usr/bin/journalctl", JOURNALCTL, 0o755)
        system.listen()
        yield system


def end_of(system):
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(system.read("/run/shoal.pid")), signal.SIGKILL)


def addresses(port, https):
    """What an administrator adds to the settings; the rest of the file stays as it was shipped."""
    return f'controller_http_addr = "127.0.0.1:{port}"\ncontroller_https_addr = "127.0.0.1:{https}"\n'


def exported(text):
    """The variables of the program in the output of `env`."""
    variables = dict(re.findall(r"^(SHOAL_\w+)=(.*)$", text, re.M))
    if not variables.get("SHOAL_TOKEN"):
        fail("the third command shows no token")
    return variables


def instance(variables):
    headers = {"Authorization": f"Bearer {variables['SHOAL_TOKEN']}"}
    request = urllib.request.Request(f"{variables['SHOAL_URL']}/about", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)["instance"]


def continued(host, variables, change):
    """Starts a job, changes the controller while the machine installs, and waits until the job has succeeded."""
    before = instance(variables)
    created = json.loads(host.shell(f"shoal --json job create --server {SERIAL} --recipe recipe.json", environment=variables))
    job = created["job_id"]
    until("the machine installs", lambda: json.loads(
        host.run("shoal", "--json", "job", "explain", job, environment=variables))["reason"] == "report")
    change()
    host.run("shoal", "controller", "ready", "--wait", "60", environment=variables)
    if instance(variables) == before:
        fail("the controller is the one from before")
    host.run("shoal", "job", "watch", job, environment=variables)


if __name__ == "__main__":
    base(sys.argv[1])
