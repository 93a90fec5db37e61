"""pycdlib reads and writes images for the differential tests: one request per line, the answer ends with a line `.`.

    read <image>                          -> <tree> <kind> <size> <sha256 or target> <name in hex>/<name in hex>/...
    write <variant> <directory> <image>   -> nothing
    anything that goes wrong              -> ! <what>
"""

import hashlib
import io
import os
import sys

import pycdlib


def children(record):
    return [child for child in record.children if not (child.is_dot() or child.is_dotdot())]


def name_of(child, tree):
    if tree == "rr_path":
        return child.rock_ridge.name()
    if tree == "joliet_path":
        return child.file_identifier().decode("utf-16-be").encode()
    return child.file_identifier()


def read(image):
    iso = pycdlib.PyCdlib()
    iso.open(image)
    trees = ["iso_path"]
    if iso.has_rock_ridge():
        trees.append("rr_path")
    if iso.has_joliet():
        trees.append("joliet_path")
    for tree in trees:
        left = [([], iso.get_record(**{tree: "/"}))]
        while left:
            names, directory = left.pop()
            for child in children(directory):
                rock = child.rock_ridge
                path = names + [name_of(child, tree)]
                # A relocated directory, which is a file in trees without Rock Ridge.
                moved = rock is not None and rock.child_link_record_exists()
                if tree == "rr_path" and rock.relocated_record():
                    continue
                if tree == "rr_path" and moved:
                    left.append((path, rock.cl_to_moved_dr))
                    kind, size, digest = "d", 0, "-"
                elif child.is_dir():
                    left.append((path, child))
                    kind, size, digest = "d", 0, "-"
                elif tree == "rr_path" and rock.is_symlink():
                    kind, size, digest = "l", 0, rock.symlink_path().hex()
                elif moved or (rock is not None and rock.is_symlink()):
                    kind, size, digest = "f", child.get_data_length(), hashlib.sha256().hexdigest()
                else:
                    content = io.BytesIO()
                    # By path and not by record, because this search works only in an ordered directory. It does not
                    # follow relocated directories; their content is read by the plain tree.
                    where = {tree: "/" + b"/".join(path).decode()}
                    if tree == "rr_path" and len(path) > 8:
                        where = {"iso_path": iso.full_path_from_dirrecord(child)}
                    iso.get_file_from_iso_fp(content, **where)
                    kind, size = "f", child.get_data_length()
                    digest = hashlib.sha256(content.getvalue()).hexdigest()
                yield " ".join([tree, kind, str(size), digest, "/".join(name.hex() for name in path)])
    iso.close()


VARIANTS = {
    "plain1": {"interchange_level": 1},
    "plain4": {"interchange_level": 4},
    "joliet": {"interchange_level": 3, "joliet": 3},
    "rock": {"interchange_level": 3, "rock_ridge": "1.09"},
    "rock112": {"interchange_level": 3, "rock_ridge": "1.12"},
    "both": {"interchange_level": 3, "joliet": 3, "rock_ridge": "1.09"},
}


def write(variant, directory, image):
    options = VARIANTS[variant]
    iso = pycdlib.PyCdlib()
    iso.new(vol_ident="PYCDLIB", **options)
    plain = {"": ""}
    numbers = 0
    for parent, directories, files in os.walk(directory):
        # The test must not depend on the order of the disk.
        directories.sort()
        where = os.path.relpath(parent, directory)
        where = "" if where == "." else "/" + where
        for name in sorted(directories + files):
            source = os.path.join(parent, name)
            is_directory = os.path.isdir(source) and not os.path.islink(source)
            numbers += 1
            # Level 4 has no version numbers and needs no dot.
            suffix = "" if is_directory or options["interchange_level"] == 4 else ".;1"
            identifier = f"{plain[where]}/{'D' if is_directory else 'F'}{numbers:05}{suffix}"
            names = {}
            if "rock_ridge" in options:
                names["rr_name"] = name
            if os.path.islink(source):
                if "rock_ridge" in options:
                    iso.add_symlink(identifier, name, os.readlink(source))
                continue
            if "joliet" in options:
                names["joliet_path"] = f"{where}/{name}"
            if is_directory:
                plain[f"{where}/{name}"] = identifier
                iso.add_directory(identifier, **names)
            else:
                iso.add_file(source, identifier, **names)
    iso.write(image)
    iso.close()
    return []


def main():
    for line in sys.stdin:
        words = line.rstrip("\n").split(" ")
        try:
            for answer in read(words[1]) if words[0] == "read" else write(*words[1:]):
                print(answer)
        except Exception as error:  # pylint: disable=broad-except
            print("!", type(error).__name__, " ".join(str(error).split()))
        print(".", flush=True)


main()
