"""What `.ci/install` and `.ci/observability` share: processes that end with the script, free ports, and waiting."""

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import time
import urllib.request


def fail(text):
    sys.exit(f"FAILED: {text}")


def run(*arguments, fails=False, **options):
    """Runs a program; returns its output, standard error included. It must succeed, or with `fails` it must not."""
    options = {"timeout": 600, "text": True, "stdin": subprocess.DEVNULL, **options}
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    if (done.returncode != 0) != fails:
        fail(f"{' '.join(arguments)} ended with {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


# Below the ports that Linux gives to outgoing connections: one of them could take a port before its server does.
PORTS = range(20000, 32000)
given = set()


def ports(number):
    """Ports of loopback that were free a moment ago. No port is given twice: its server may not have started yet."""
    found = []
    while len(found) < number:
        port = random.choice(PORTS)
        with contextlib.suppress(OSError), socket.socket() as one:
            one.bind(("127.0.0.1", port))
            if port not in given:
                given.add(port)
                found.append(port)
    return found


def until(what, condition, seconds=120):
    """Waits until a condition holds; returns what it returned. Errors of a server that is not there yet are not its end."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError, KeyError, IndexError):
            if found := condition():
                return found
        time.sleep(0.2)
    fail(f"not within {seconds} s: {what}")


def get(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return response.read().decode()


@contextlib.contextmanager
def process(*arguments, log, **options):
    """A process whose output goes to a file; it is stopped at the end. After a failure the end of its output is printed."""
    with open(log, "a") as output:
        child = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **options)
    try:
        yield child
    except BaseException:
        with open(log, errors="replace") as written:
            text = re.sub(r"shoal_[a-z0-9]{40}", "shoal_***", written.read()[-3000:])
        print(f"{os.path.basename(log)} of {' '.join(arguments[1:2])}, which {'runs' if child.poll() is None else 'has ended'}:\n{text}", file=sys.stderr)
        raise
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(30)
        child.kill()


def first_token(path):
    """The admin token, which the first start prints before the controller responds."""
    with open(path) as file:
        found = re.search(r"^admin token[^:]*: (\S+)$", file.read(), re.M)
    return found.group(1) if found else fail(f"no admin token in {path}")


@contextlib.contextmanager
def simulated_server(program, work, serial, *more, password="simulated-password"):
    """A simulated server that is off; writes `maintenance.iso` and `os-image` into the folder. Yields the URL of its BMC."""
    (port,) = ports(1)
    arguments = [program, "sim", "--serial", serial, "--base-port", str(port), "--maintenance-iso",
                 os.path.join(work, "maintenance.iso"), "--os-image", os.path.join(work, "os-image"), *more]
    environment = dict(os.environ, SHOAL_SIM_PASSWORD=password)
    with process(*arguments, log=os.path.join(work, "sim.log"), env=environment, cwd=work):
        until("the simulated BMC responds", lambda: get(f"http://127.0.0.1:{port}/redfish/v1/"))
        until("the OS image is written", lambda: os.path.exists(os.path.join(work, "os-image", "index.json")))
        yield f"http://127.0.0.1:{port}"
