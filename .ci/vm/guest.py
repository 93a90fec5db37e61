"""The guest: a Debian kernel with busybox that mounts images in every way and reports what it sees."""

import glob
import os
import shutil
import subprocess

import machine
from images import command

# Without mount options Linux takes the first of these trees that an image has.
DEFAULT = ("rock_ridge", "joliet", "plain")
# The ways of mounting a CD in `init`, and the trees they show.
CD = {
    "rock_ridge": DEFAULT,
    "joliet": ("joliet", "plain"),
    "joliet_utf8": ("joliet", "plain"),
    "plain": ("plain",),
    "raw": ("raw",),
}
MODULES = """virtio_pci virtio_scsi sd_mod sr_mod isofs nls_utf8 nls_iso8859_1
    usb_storage libcomposite usb_f_mass_storage dummy_hcd""".split()
PARAMETERS = {"usb_storage": "delay_use=0"}
KINDS = {"regular file": "f", "regular empty file": "f", "directory": "d", "symbolic link": "l"}
LIMIT = 420

here = os.path.dirname(os.path.abspath(__file__))


def look(work, attached):
    """Lets the guest look at images, pairs of a kind (see `init`) and a path. Returns its report and the run."""
    root, ramdisk, report = f"{work}/initramfs", f"{work}/initrd", f"{work}/report"
    kernel = make_root(f"{work}/guest", root)
    with open(f"{root}/images", "w", encoding="utf-8") as file:
        for target, (kind, path) in enumerate(attached, machine.FIRST_TARGET):
            file.write(f"{kind} {target} {name_of(path)}\n")
    names = "\n".join(os.path.relpath(path, root) for path in glob.glob(f"{root}/**", recursive=True))
    with open(ramdisk, "wb") as file:
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], cwd=root, input=names.encode(), stdout=file, check=True)
    arguments = ["-kernel", kernel, "-initrd", ramdisk, "-serial", f"file:{report}", *machine.scsi(attached)]
    run = machine.run([*arguments, "-append", "console=ttyS0 loglevel=4 tsc=unstable panic=1"], LIMIT)
    with open(report, encoding="utf-8", errors="surrogateescape") as file:
        return parse(file.read()), run


def name_of(path):
    return os.path.basename(path).removesuffix(".iso")


def make_root(unpacked, root):
    """Fills the folder of the guest's first file system; returns the path of its kernel."""
    [kernel] = glob.glob(f"{unpacked}/boot/vmlinuz-*")
    [modules] = glob.glob(f"{unpacked}/lib/modules/*") or glob.glob(f"{unpacked}/usr/lib/modules/*")
    command("depmod", "-b", modules.split("/lib/modules/")[0], os.path.basename(modules))
    for folder in ("bin", "dev", "modules.d"):
        os.makedirs(f"{root}/{folder}")
    [busybox] = glob.glob(f"{unpacked}/bin/busybox") or glob.glob(f"{unpacked}/usr/bin/busybox")
    shutil.copy(busybox, f"{root}/bin/busybox")
    shutil.copy(f"{here}/init", f"{root}/init")
    with open(f"{root}/modules", "w", encoding="utf-8") as file:
        for path in module_order(modules):
            stem = module_name(path)
            with open(f"{root}/modules.d/{stem}.ko", "wb") as module:
                unpack = ["xz", "-dc"] if path.endswith(".xz") else ["cat"]
                subprocess.run([*unpack, f"{modules}/{path}"], stdout=module, check=True)
            file.write(f"{stem}.ko {PARAMETERS.get(stem, '')}\n")
    return kernel


def module_name(path):
    return os.path.basename(path).split(".ko")[0].replace("-", "_")


def module_order(modules):
    """The files of MODULES and of what they need, in the order they must be loaded."""
    with open(f"{modules}/modules.builtin", encoding="utf-8") as file:
        builtin = {module_name(line.strip()) for line in file}
    with open(f"{modules}/modules.dep", encoding="utf-8") as file:
        # Each line is a module and its dependencies, the first one to load at the end.
        needs = {module_name(line.split(":")[0]): line.replace(":", "").split() for line in file}
    order = []
    for module in MODULES:
        if module not in builtin:
            order += [path for path in reversed(needs[module]) if path not in order]
    return order


def parse(report):
    """What the guest saw: {(image, how): ({path: (kind, mode, modified, size, digest or target)}, [errors])}."""
    found = {}
    for line in report.splitlines():
        word, _, rest = line.partition("|")
        if word == "look":
            entries, errors = found.setdefault(tuple(rest.split("|")), ({}, []))
        elif word == "stat":
            kind, mode, owner, modified, size, path = rest.split("|", 5)
            entries[path.removeprefix("./")] = (KINDS.get(kind, kind), mode, modified, size, "")
            if owner != "0:0":
                errors.append(f"{path} belongs to {owner}")
        elif word == "hash":
            value, path = rest.split("  ./", 1)
            entries[path] = (*entries[path][:4], value)
        elif word == "link":
            value, path = rest.split("|./", 1)
            entries[path] = (*entries[path][:4], value)
        elif word == "error":
            errors.append(f"the guest says: {rest}")
        elif word == "done":
            found["done"] = True
    return found


def differences(trees, order, found):
    """How a mount differs from the first tree of `order` that the image has: {path: how}; "" stands for all of it."""
    if found is None:
        return {"": "the guest did not get to it"}
    tree = next(tree for tree in order if tree in trees)
    wanted, (entries, errors) = trees[tree], found
    differ = {"": "; ".join(errors[:3])} if errors else {}
    for path in sorted(wanted.keys() | entries.keys()):
        if path not in entries or path not in wanted:
            differ[path] = "missing" if path in wanted else "not in the manifest"
            continue
        (kind, mode, modified, size, value), seen = wanted[path], entries[path]
        # Without Rock Ridge the kernel invents modes, and the size of a directory is not compared.
        mode = mode if tree == "rock_ridge" else seen[1]
        size = seen[3] if kind == "d" else size
        if (kind, mode, modified, size, value) != seen:
            differ[path] = f"{seen} instead of {(kind, mode, modified, size, value)}"
    return differ
