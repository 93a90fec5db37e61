"""The images to prove: ours, what is expected in them, and altered copies that must not pass."""

import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass

MARKER = "marker: the loader read this file from the image"
# `cat.c32` is used because isolinux prints the texts of its configuration on a screen only.
ISOLINUX = """SERIAL 0 115200
PROMPT 0
DEFAULT cat
LABEL cat
  KERNEL cat.c32
  APPEND /marker.txt
"""
GRUB = """search.file /marker.txt root
cat /marker.txt
"""
# Foreign images, by where the EFI system partition is: a file of the tree, or a partition behind it.
ORIGINALS = {
    "xorriso_classic": ["-e", "boot/efi.img", "-no-emul-boot", "-isohybrid-gpt-basdat"],
    "xorriso_appended": ["-append_partition", "2", "0xef", "{loaders}/tree/boot/efi.img", "-appended_part_as_gpt"]
    + ["-e", "--interval:appended_partition_2:all::", "-no-emul-boot"],
}
SECTOR = 2048
# The image that is altered.
ORIGINAL = "task"


def command(*arguments, **options):
    """Runs a program that must succeed; what it says is shown when it does not."""
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1500, **options)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(map(str, arguments))}\n{done.stdout.decode(errors='replace')}")


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def make(repository, work):
    """Writes foreign images by xorriso and ours by the example of the crate; returns their folder."""
    images, loaders = os.path.join(work, "images"), os.path.join(work, "loaders")
    os.mkdir(images)
    os.mkdir(loaders)
    make_loaders(loaders)
    originals = [make_original(work, loaders, name) for name in ORIGINALS]
    # A caller that has already built the example names its path.
    built = os.environ.get("VM_IMAGES")
    example = [built] if built else ["cargo", "run", "--quiet", "--locked", "-p", "isoplan", "--example", "vm_images", "--"]
    command(*example, images, loaders, *originals, cwd=repository)
    return images


def make_original(work, loaders, name):
    """A bootable hybrid as distributions make them, by xorriso."""
    tree, path = os.path.join(work, name), os.path.join(work, "images", f"{name}.iso")
    shutil.copytree(f"{loaders}/tree", tree)
    os.mkdir(f"{tree}/live")
    write(f"{tree}/live/filesystem.squashfs", "".join(f"line {line}\n" for line in range(100000)))
    xorriso = ["xorriso", "-as", "mkisofs", "-quiet", "-o", path, "-V", "MAINTENANCE", "-r", "-J", "-joliet-long"]
    xorriso += ["-isohybrid-mbr", f"{loaders}/isohdpfx.bin", "-c", "isolinux/boot.cat", "-b", "isolinux/isolinux.bin"]
    xorriso += ["-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "-eltorito-alt-boot", *ORIGINALS[name]]
    command(*[argument.format(loaders=loaders) for argument in xorriso], tree)
    return path


def make_loaders(loaders):
    """A tree with boot loaders that find and print the marker file with their own ISO 9660 drivers, and the MBR."""
    for folder in ("isolinux", "boot"):
        os.makedirs(f"{loaders}/tree/{folder}")
    write(f"{loaders}/tree/marker.txt", MARKER + "\n")
    write(f"{loaders}/tree/isolinux/isolinux.cfg", ISOLINUX)
    shutil.copy("/usr/lib/ISOLINUX/isolinux.bin", f"{loaders}/tree/isolinux")
    for module in ("ldlinux", "libcom32", "cat"):
        shutil.copy(f"/usr/lib/syslinux/modules/bios/{module}.c32", f"{loaders}/tree/isolinux")
    shutil.copy("/usr/lib/ISOLINUX/isohdpfx.bin", loaders)

    write(f"{loaders}/grub.cfg", GRUB)
    modules = "iso9660 part_gpt part_msdos search_fs_file cat".split()
    command("grub-mkimage", "-O", "x86_64-efi", "-p", "/", "-c", "grub.cfg", "-o", "BOOTX64.EFI", *modules, cwd=loaders)
    partition = f"{loaders}/tree/boot/efi.img"
    command("mkfs.vfat", "-C", partition, "2880")
    command("mmd", "-i", partition, "::/EFI", "::/EFI/BOOT")
    command("mcopy", "-i", partition, f"{loaders}/BOOTX64.EFI", "::/EFI/BOOT/BOOTX64.EFI")


def read_manifest(path):
    """The trees of a manifest: {tree: {path: (kind, mode, modified, size, digest or target)}}."""
    trees = {}
    with open(path, encoding="utf-8") as file:
        for line in file.read().splitlines():
            tree, kind, mode, modified, size, value, name = line.split("\t")
            trees.setdefault(tree, {})[name] = (kind, mode, modified, size, value)
    plain = trees["plain"]
    trees["raw"] = {identifiers(name, entry[0]): entry for name, entry in plain.items()}
    return trees


def identifiers(path, kind):
    """What a path of plain names stands for: upper case, and a file with its dot and version."""
    path = path.upper()
    if kind == "d":
        return path
    return path + (";1" if "." in os.path.basename(path) else ".;1")


@dataclass
class Altered:
    """A copy of the image ORIGINAL with one fault, and where the fault must show, there only."""

    path: str
    trees: tuple
    file: str = "recipe.json"


def alter(images):
    """The images that must be noticed."""
    with open(f"{images}/{ORIGINAL}.iso", "rb") as file:
        image = file.read()
    content = image.index(f"{Altered.file} line 0\n".encode())
    size = int(read_manifest(f"{images}/{ORIGINAL}.manifest")["joliet"][Altered.file][3])
    # A record is known by its extent and its size, each in both byte orders: first the primary tree's, then Joliet's.
    both = lambda number: struct.pack("<I", number) + struct.pack(">I", number)
    record = both(content // SECTOR) + both(size)
    primary = image.index(record)
    joliet = image.index(record, primary + 1)
    elsewhere = both(content // SECTOR + 1)
    faults = {
        "altered_content": (content + size - 1, b"\0", ("rock_ridge", "joliet", "plain", "raw")),
        "altered_record": (primary, elsewhere, ("rock_ridge", "plain", "raw")),
        "altered_joliet_record": (joliet, elsewhere, ("joliet",)),
    }
    altered = []
    for name, (offset, replacement, trees) in faults.items():
        altered.append(Altered(f"{os.path.dirname(images)}/{name}.iso", trees))
        with open(altered[-1].path, "wb") as file:
            file.write(image[:offset] + replacement + image[offset + len(replacement):])
    return altered


def too_small(images):
    """An image one sector under what a USB gadget takes for a CD."""
    path = f"{os.path.dirname(images)}/too_small.iso"
    shutil.copy(f"{images}/smallest.iso", path)
    os.truncate(path, 299 * SECTOR)
    return path


def unbootable(images):
    """The boot image with the entries of its boot catalog marked as not bootable."""
    path = f"{os.path.dirname(images)}/unbootable.iso"
    shutil.copy(f"{images}/boot.iso", path)
    with open(path, "r+b") as file:
        file.seek(17 * SECTOR + 71)
        catalog = struct.unpack("<I", file.read(4))[0] * SECTOR
        file.seek(catalog)
        entries = file.read(SECTOR)
        for entry in range(32, SECTOR, 32):
            if entries[entry] == 0x88:
                file.seek(catalog + entry)
                file.write(b"\0")
    return path
