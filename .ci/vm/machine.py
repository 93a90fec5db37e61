"""Virtual machines: qemu without KVM, ended at the latest when their time is up."""

import os
import selectors
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass

OVMF = "/usr/share/OVMF"
FIRST_TARGET = 1
# The reasons why a machine ended before the expected text appeared.
OFF, TIME_IS_UP = "the machine went off", "its time was up"


@dataclass
class Run:
    """What a machine did."""

    console: str
    seconds: float
    # The expected text, OFF or TIME_IS_UP.
    ended: str


def run(arguments, limit, until=()):
    """Runs a machine until its console shows one of the texts `until`, it powers off, or `limit` seconds are over."""
    # `timeout` ends the machine if the harness is killed.
    command = ["timeout", "-k", "2", str(limit + 10), "qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-m", "512"]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio", *arguments]
    began = time.monotonic()
    console = b""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as qemu:
        try:
            ended = TIME_IS_UP
            with selectors.DefaultSelector() as selector:
                selector.register(qemu.stdout, selectors.EVENT_READ)
                while (left := began + limit - time.monotonic()) > 0:
                    if not selector.select(left):
                        continue
                    piece = os.read(qemu.stdout.fileno(), 65536)
                    if not piece:
                        ended = OFF
                        break
                    console += piece
                    if found := [text for text in until if text.encode() in console]:
                        ended = found[0]
                        break
        finally:
            qemu.terminate()
    return Run(console.decode(errors="replace"), time.monotonic() - began, ended)


def scsi(drives):
    """Arguments that attach `drives`, pairs of a kind and a path, at targets from FIRST_TARGET; a `cd` as a CD drive."""
    arguments = ["-device", "virtio-scsi-pci,id=scsi"]
    for target, (kind, path) in enumerate(drives, FIRST_TARGET):
        media, device = ("cdrom", "scsi-cd") if kind == "cd" else ("disk", "scsi-hd")
        arguments += ["-drive", f"if=none,id=drive{target},file={path},format=raw,media={media},readonly=on"]
        arguments += ["-device", f"{device},bus=scsi.0,scsi-id={target},drive=drive{target}"]
    return arguments


def firmware(kind, media, path, work):
    """Arguments that boot `path` by `bios` or `uefi` firmware, as a `cd` or as a `disk`."""
    arguments = ["-drive", f"if=ide,file={path},format=raw,snapshot=on,media={'cdrom' if media == 'cd' else 'disk'}"]
    # Without a boot device SeaBIOS prints a message on the screen only. With this option it resets at once, which ends the machine.
    arguments += ["-boot", "reboot-timeout=0"]
    if kind == "uefi":
        # Firmware stores what it booted, so every machine gets a new copy of the variables.
        handle, variables = tempfile.mkstemp(dir=work)
        os.close(handle)
        shutil.copyfile(f"{OVMF}/OVMF_VARS_4M.fd", variables)
        arguments += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={OVMF}/OVMF_CODE_4M.fd"]
        arguments += ["-drive", f"if=pflash,format=raw,unit=1,file={variables}"]
    return arguments
