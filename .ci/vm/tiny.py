"""The tiny system that `short`, `killed` and `agent` install: a kernel, busybox, GRUB, shim and an initramfs of 2 MB.

It mounts the disk that was installed, reads the seed of cloud-init on it, requests a page of the controller, and prints CALLED-BACK and the number of
its seeds; without a network card NO-CARD. Its kernels do not check their timer, because an emulated one is late on a busy host.
"""

import gzip
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

# What GRUB's installer needs beside the packages of the medium.
GRUB = ["grub-common", "grub2-common", "grub-pc-bin", "libefiboot1", "libefivar1", "liblzma5", "libdevmapper1.02.1"]
# What starts by UEFI, out of the packages of the medium.
EFI = {"shim-signed": "usr/lib/shim/shimx64.efi.signed", "grub-efi-amd64-signed": "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"}
LIBRARIES = ["libc6", "libselinux1", "libudev1", "libpcre2-8-0"]
DRIVERS = ["virtio_pci", "virtio_blk", "virtio_net", "ext4", "crc32c_generic"]
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /disk
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules); do /bin/busybox insmod /$module; done
root=$(/bin/busybox sed 's/.*root=UUID=\\([^ ]*\\).*/\\1/' /proc/cmdline)
until disk=$(/bin/busybox findfs UUID=$root) && /bin/busybox mount -o ro $disk /disk; do /bin/busybox sleep 1; done
seed=$(/bin/busybox grep -c from-the-recipe /disk/var/lib/cloud/seed/nocloud/user-data)
if [ -e /sys/class/net/eth0 ]; then
    /bin/busybox ip link set eth0 up
    /bin/busybox ip addr add 10.0.2.15/24 dev eth0
    until /bin/busybox wget -q -O /page http://10.0.2.100/healthz; do /bin/busybox sleep 1; done
    echo "CALLED-BACK $seed $(/bin/busybox wc -c </page)"
else
    echo "NO-CARD $seed"
fi
echo "tiny login: "
/bin/busybox sleep 1000000
"""


def fail(message):
    sys.exit(f"FAILED: {message}")


def closed(modules, names):
    """The files of the drivers and of what they need, in the order of loading."""
    files = {path.name.removesuffix(".ko").replace("-", "_"): path for path in modules.rglob("*.ko")}
    builtin = {Path(line).stem.replace("-", "_") for line in (modules / "modules.builtin").read_text().split()}
    found = []

    def add(name):
        if name in builtin or files[name] in found:
            return
        for fact in files[name].read_bytes().split(b"\0"):
            if fact.startswith(b"depends="):
                for needed in filter(None, fact[8:].decode().split(",")):
                    add(needed.replace("-", "_"))
        found.append(files[name])

    for name in names:
        add(name)
    return found


def cpio(entries):
    """An archive in the form that the kernel reads: (path, mode, bytes)."""
    out = io.BytesIO()
    for number, (path, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")]):
        name = path.encode() + b"\0"
        fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + name)
        out.write(bytes(-out.tell() % 4) + data)
        out.write(bytes(-out.tell() % 4))
    return out.getvalue()


def root_file_system(folder, packages, work):
    """Unpacks the packages into `folder`, with a kernel and the initramfs beside it."""
    subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *GRUB], cwd=work, check=True)
    kernel = [*packages.glob("linux-image-*.deb")]
    debs = [*work.glob("*.deb"), *(deb for name in [*LIBRARIES, "busybox-static"] for deb in packages.glob(f"{name}_*.deb"))]
    if len(kernel) != 1 or len(debs) != len(GRUB) + len(LIBRARIES) + 1:
        fail(f"{packages} has not the packages of the medium: {[deb.name for deb in debs]}")
    # Debian's merged folders: packages bring files below /lib and /bin, which are links.
    for name in ("bin", "sbin", "lib", "lib64"):
        (folder / "usr" / name).mkdir(parents=True)
        (folder / name).symlink_to(f"usr/{name}")
    for deb in debs:
        data = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-C", folder, "--keep-directory-symlink", "-x"], input=data, check=True)
    for package, path in EFI.items():
        [deb] = packages.glob(f"{package}_*.deb")
        subprocess.run(["dpkg-deb", "-x", deb, work / package], check=True)
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes((work / package / path).read_bytes())
    for name in ("doc", "locale", "man", "info"):
        subprocess.run(["rm", "-rf", folder / "usr/share" / name], check=True)
    subprocess.run(["dpkg-deb", "-x", kernel[0], work / "kernel"], check=True)
    [modules] = (work / "kernel/lib/modules").iterdir()
    files = closed(modules, DRIVERS)
    busybox = next(path for path in (folder / "usr/bin/busybox", folder / "bin/busybox") if path.exists())
    initramfs = cpio([
        ("bin", 0o040755, b""), ("bin/busybox", 0o100755, busybox.read_bytes()), ("init", 0o100755, INIT.encode()),
        ("modules", 0o100644, "\n".join(path.name for path in files).encode()),
        *((path.name, 0o100644, path.read_bytes()) for path in files),
    ])
    (folder / "boot").mkdir(exist_ok=True)
    (folder / f"boot/vmlinuz-{modules.name}").write_bytes((work / f"kernel/boot/vmlinuz-{modules.name}").read_bytes())
    (folder / f"boot/initrd.img-{modules.name}").write_bytes(gzip.compress(initramfs, 6, mtime=0))
    for name in ("etc", "dev", "proc", "sys", "run", "tmp", "var/lib", "usr/bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "usr/bin/sh").symlink_to("busybox" if (folder / "usr/bin/busybox").exists() else "/bin/busybox")
    # Debian's GRUB looks for its configuration in EFI/debian.
    (folder / "etc/os-release").write_text('ID=debian\nNAME="Tiny"\nPRETTY_NAME="Tiny"\n')
    (folder / "etc/default").mkdir(exist_ok=True)
    (folder / "etc/default/grub").write_text('GRUB_CMDLINE_LINUX="console=ttyS0,115200 no_timer_check"\n')


def layer(folder):
    """Packs `folder` as a layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(folder)))
            entry.uid = entry.gid = entry.mtime = 0
            with path.open("rb") if entry.isreg() else io.BytesIO() as content:
                archive.addfile(entry, content if entry.isreg() else None)
    return out.getvalue()


def layout(folder, target):
    """Packs `folder` as an OCI image layout with the tag 1."""
    blobs = target / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    data = layer(folder)
    rootfs = {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}"]}
    config = blob(json.dumps({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).encode(), "config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
                "layers": [blob(gzip.compress(data, 1, mtime=0), "layer.v1.tar+gzip")]}
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json") | {"annotations": {"org.opencontainers.image.ref.name": "1"}}
    (target / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (target / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    return len(data)


def recipe():
    """A recipe that installs it on the only disk, by BIOS and by UEFI."""
    return {
        "$schema": "https://shoal.dev/provisioner/recipe-v2.schema.json", "task_target": "install-linux.target",
        "target_disk": "/dev/vda", "user_data": "#cloud-config\n# from-the-recipe\n",
        "partition_layout": [
            {"size": "1M", "type_guid": "21686148-6449-6e6f-744e-656564454649"},
            {"size": "40M", "type_guid": "ef00", "format": "vfat"},
            {"size": "100%", "type_guid": "8300", "format": "ext4"},
        ],
    }


def medium(program, packages, agent, path):
    """Builds the small medium."""
    subprocess.run([program, "maintenance", "build", packages, "--agent", agent, "--profile", "small", "--append", "no_timer_check", "-o", path],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([program, "iso", "check", "--strict", path], check=True, stdout=subprocess.DEVNULL)
    # `inspect` shows what the medium records: the kernel and each package with its version and licences.
    shown = subprocess.run([program, "maintenance", "inspect", path], check=True, capture_output=True, text=True).stdout
    if "linux-image" not in shown or "shim-signed" not in shown or "GPL" not in shown:
        fail(f"shoal maintenance inspect does not name the packages of the medium:\n{shown[-2000:]}")
