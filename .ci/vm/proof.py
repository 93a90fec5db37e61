"""What a real kernel and real firmware make of our images: proof.py REPOSITORY WORK

    loaders (isolinux, GRUB) -> vm_images -> *.iso + *.manifest --+--> one guest mounts all of them -> report, compared
                                                                  `--> a machine per firmware and medium -> marker

WORK/guest holds an unpacked kernel package and a static busybox. Altered images go the same way and must be noticed: a
comparison that cannot fail proves nothing.
"""

import glob
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import guest
import images
import machine

# The gadget of Linux 6.1 cuts a CD after 1,151,999 sectors (2.4 GB), so the large image goes as a disk.
THROUGH_USB = {"gadget": ("task", "smallest", "boot", "xorriso_classic_spliced"), "stick": ("hybrid", "large")}
# Which images boot from which device; the foreign originals prove that the loaders work.
SPLICED = [f"{name}_spliced" for name in [*images.ORIGINALS, "hybrid"]]
BOOTS = {"boot": ["cd"], **{name: ["cd", "disk"] for name in ["hybrid", *images.ORIGINALS, *SPLICED]}}
BOOT_LIMIT = 180
# OVMF starts this next; SeaBIOS ends the machine.
NOTHING_TO_BOOT = "UEFI Interactive Shell"

results = []


def check(name, faults, console=""):
    """Counts and prints one outcome; with faults it also prints them and the end of the console."""
    results.append(not faults)
    print(f"{'FAILED' if faults else 'ok'}: {name}", flush=True)
    for fault in faults[:10]:
        print(f"    {fault}")
    if faults[10:]:
        print(f"    and {len(faults) - 10} more")
    if faults and console:
        print("    | " + "\n    | ".join(console.splitlines()[-40:]), flush=True)


def prove_mounts(ours, altered, too_small, work):
    """Every image as a CD in every way of mounting, some through USB too."""
    paths = {guest.name_of(path): path for path in sorted(glob.glob(f"{ours}/*.iso"))}
    attached = [("cd", path) for path in paths.values()]
    attached += [(kind, paths[name]) for kind, names in THROUGH_USB.items() for name in names]
    attached += [("cd", image.path) for image in altered]
    attached += [("gadget", image.path) for image in altered] + [("gadget", too_small)]
    found, run = guest.look(work, attached)
    check(f"the guest looked at everything ({run.seconds:.0f} s)", [] if "done" in found else [run.ended], run.console)

    manifests = {name: images.read_manifest(f"{ours}/{name}.manifest") for name in paths}
    original = manifests[images.ORIGINAL]
    for kind, path in attached:
        name = guest.name_of(path)
        for how, trees in guest.CD.items() if kind == "cd" else [(kind, guest.DEFAULT)]:
            seen = found.get((name, how))
            differ = guest.differences(manifests.get(name, original), trees, seen)
            if name in manifests:
                check(f"kernel, {how}: {name}", [f"{path}: {what}" for path, what in differ.items()])
            elif path == too_small:
                refused = any("file too small" in error for error in seen[1]) if seen else False
                check(f"noticed, {how}: {name}", [] if refused else [f"it was not refused: {differ}"])
            else:
                # The fault must show in the trees that have it, in its file, and nowhere else.
                [image] = [image for image in altered if image.path == path]
                faulty = {image.file} if trees[0] in image.trees else set()
                noticed = {path.lower().removesuffix(";1") for path in differ}
                check(f"noticed, {how}: {name}", [] if noticed == faulty else [f"{differ} instead of {faulty}"])


def prove_boot(ours, work):
    """Firmware finds the loader, the loader finds its files and the one with the marker."""
    rows = [(firmware, medium, f"{ours}/{name}.iso", True) for name, media in BOOTS.items() for medium in media
            for firmware in ("bios", "uefi")]
    rows += [(firmware, "cd", images.unbootable(ours), False) for firmware in ("bios", "uefi")]

    def boot(row):
        firmware, medium, path, _ = row
        arguments = machine.firmware(firmware, medium, path, work)
        return machine.run(arguments, BOOT_LIMIT, [images.MARKER, NOTHING_TO_BOOT])

    with ThreadPoolExecutor(2) as pool:
        for (firmware, medium, path, boots), run in zip(rows, pool.map(boot, rows)):
            wanted = [images.MARKER] if boots else [NOTHING_TO_BOOT, machine.OFF]
            name = f"{firmware}, {medium}: {guest.name_of(path)} ({run.seconds:.1f} s)"
            faults = [] if run.ended in wanted else [f"{run.ended} instead of {wanted[0]}"]
            check(name if boots else f"noticed, {name}", faults, run.console)


def main():
    repository, work = sys.argv[1:]
    began = time.monotonic()
    ours = images.make(repository, work)
    print(f"images made ({time.monotonic() - began:.0f} s)", flush=True)
    altered, too_small = images.alter(ours), images.too_small(ours)
    prove_boot(ours, work)
    prove_mounts(ours, altered, too_small, work)
    print(f"{results.count(True)} passed, {results.count(False)} failed ({time.monotonic() - began:.0f} s)")
    sys.exit(0 if all(results) else 1)


main()
