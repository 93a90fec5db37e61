//! Images of other programs: no errors, and no warnings except the listed ones, with the reason.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use iso9660::{CheckOptions, FileSource, Rule, Severity, check};

/// The directory of the boot loader in Debian.
const ISOLINUX: &str = "/usr/lib/ISOLINUX";

/// Deviations of known writers from the specification, which known readers accept.
mod allowed {
    use iso9660::Rule;

    /// xorriso does not relocate deep directories by default.
    pub(crate) const DEEP: &[Rule] = &[Rule::PathDepth];
    /// xorriso 1.5.4 writes the directory itself as its parent in Joliet and in the enhanced hierarchy.
    pub(crate) const DEEP_PARENTS: &[Rule] = &[Rule::ParentRecordItself, Rule::PathDepth];
    /// genisoimage without Rock Ridge omits deep directories and writes a wrong parent for the last one on the path.
    pub(crate) const CUT: &[Rule] = &[Rule::ParentRecordItself];
    /// genisoimage writes mode 0 in a record of its `RR_MOVED`.
    pub(crate) const MODES: &[Rule] = &[Rule::RockRidgeMissing];
    /// genisoimage with UDF: mode 0 as above, and the structures of UDF are not checked.
    pub(crate) const MODES_UDF: &[Rule] = &[Rule::UdfNotChecked, Rule::RockRidgeMissing];
    /// bsdtar counts one link too few in the root when it relocates, and writes a mark after the descriptors.
    pub(crate) const LINKS: &[Rule] = &[Rule::UnusedNotZero, Rule::RockRidgeLinks];
    /// pycdlib writes its name in lower case.
    pub(crate) const TEXT: &[Rule] = &[Rule::DescriptorText];
    pub(crate) const TEXT_UDF: &[Rule] = &[Rule::DescriptorText, Rule::UdfNotChecked];
    /// xorriso with options for lower-case names and for names that are too long.
    pub(crate) const RELAXED: &[Rule] =
        &[Rule::IdentifierCharacters, Rule::IdentifierForm, Rule::IdentifierLength, Rule::NamesFoldCase];
}

fn sample(root: &Path) {
    let files = ["ks.cfg", "user-data", "dir/UPPER.TXT", "dir/sub/file", "boot/efi.img", "a b-c.d.e"];
    for path in files.into_iter().chain(["1/2/3/4/5/6/7/8/9/10/leaf", "x-y", "x.y", "X.txt"]) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("this is {}\n", path.display()).repeat(100)).unwrap();
    }
    fs::write(root.join("empty"), "").unwrap();
    fs::create_dir(root.join("many")).unwrap();
    for index in 0..120 {
        fs::write(root.join(format!("many/entry number {index:03}.json")), vec![b'x'; index]).unwrap();
    }
    fs::write(root.join(format!("many/{}", "n".repeat(60))), "long").unwrap();
    symlink("../ks.cfg", root.join("dir/link")).unwrap();
    fs::copy(Path::new(ISOLINUX).join("isolinux.bin"), root.join("boot/isolinux.bin"))
        .expect("isolinux must be installed");
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program} must be installed: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Checks an image: its findings must be of these rules, and none may be an error.
fn expect(image: &Path, name: &str, allowed: &[Rule]) {
    let report = check(&FileSource::open(image).unwrap(), &CheckOptions::default()).unwrap();
    assert_eq!(report.count(Severity::Error), 0, "{name}\n{report}");
    let found: Vec<Rule> = report.totals().keys().copied().collect();
    assert!(found.iter().all(|rule| allowed.contains(rule)), "{name}: {found:?}\n{report}");
}

fn workspace() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (root, image) = (directory.path().join("root"), directory.path().join("image.iso"));
    sample(&root);
    (directory, root, image)
}

/// Makes an image with a program and its options, and checks it.
fn make(program: &str, options: &str, allowed: &[Rule]) {
    let (_directory, root, image) = workspace();
    let efi = root.join("boot/efi.img");
    let options = options.replace("ISOLINUX", ISOLINUX).replace("EFI", efi.to_str().unwrap());
    let mut arguments: Vec<&str> = options.split_whitespace().collect();
    arguments.extend(["-quiet", "-V", "FOREIGN", "-o", image.to_str().unwrap(), root.to_str().unwrap()]);
    run(program, &arguments);
    expect(&image, &format!("{program} {options}"), allowed);
}

const BIOS: &str = "-b boot/isolinux.bin -c boot/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table -eltorito-alt-boot";

#[test]
#[ignore = "needs xorriso and isolinux, run by .ci/run"]
fn images_of_xorriso_have_no_error() {
    for (options, allowed) in [
        ("", allowed::DEEP),
        ("-iso-level 1", allowed::DEEP),
        ("-iso-level 2 -J", allowed::DEEP_PARENTS),
        ("-iso-level 4 -r", allowed::DEEP_PARENTS),
        ("-r -J -joliet-long", allowed::DEEP_PARENTS),
        ("-R -hide-joliet x.y", allowed::DEEP),
        ("-r -no-pad", allowed::DEEP),
    ] {
        make("xorriso", &format!("-as mkisofs {options}"), allowed);
    }
    let relaxed = [allowed::DEEP, allowed::RELAXED].concat();
    make("xorriso", "-as mkisofs -r -relaxed-filenames -allow-lowercase -untranslated-filenames", &relaxed);
    make(
        "xorriso",
        "-as mkisofs -r -J -joliet-long -hide-joliet ks.cfg",
        &[allowed::DEEP_PARENTS, &[Rule::HierarchiesDiffer]].concat(),
    );
}

#[test]
#[ignore = "needs xorriso and isolinux, run by .ci/run"]
fn bootable_and_hybrid_images_of_xorriso_have_no_error() {
    let uefi = "-e boot/efi.img -no-emul-boot";
    let hybrid = "-isohybrid-mbr ISOLINUX/isohdpfx.bin";
    for options in [
        format!("-r -J {BIOS} {uefi}"),
        format!("-r -J {BIOS} {uefi} {hybrid}"),
        format!("-r -J {BIOS} {uefi} {hybrid} -isohybrid-gpt-basdat"),
        format!(
            "-r {BIOS} -append_partition 2 0xef EFI -appended_part_as_gpt -e --interval:appended_partition_2:all:: \
             -no-emul-boot {hybrid}"
        ),
    ] {
        make("xorriso", &format!("-as mkisofs {options}"), allowed::DEEP_PARENTS);
    }
}

/// The layout of Ubuntu's installer: a second set of descriptors at the start of the first partition, and an EFI system
/// partition after the volume.
#[test]
#[ignore = "needs xorriso and isolinux, run by .ci/run"]
fn the_layout_of_the_ubuntu_installer_has_no_error() {
    let appended = "-partition_offset 16 -append_partition 2 0xef EFI -appended_part_as_gpt";
    let uefi = "-e --interval:appended_partition_2:all:: -no-emul-boot";
    // The second set and its trees are not known to the checker, which takes them for unused bytes.
    let allowed = [allowed::DEEP_PARENTS, &[Rule::DescriptorsShorter, Rule::UnusedNotZero]].concat();
    for options in [
        format!(
            "-r -J -joliet-long -l -iso-level 3 {appended} {BIOS} {uefi} -isohybrid-mbr ISOLINUX/isohdpfx.bin"
        ),
        format!("-r -J -joliet-long -l {appended} {BIOS} {uefi} --protective-msdos-label"),
        format!(
            "-r -l -iso-level 3 {appended} {BIOS} {uefi} --grub2-mbr ISOLINUX/isohdpfx.bin --mbr-force-bootable"
        ),
    ] {
        make("xorriso", &format!("-as mkisofs {options}"), &allowed);
    }
}

#[test]
#[ignore = "needs genisoimage and isolinux, run by .ci/run"]
fn images_of_genisoimage_have_no_error() {
    for (options, allowed) in [
        ("-iso-level 1", allowed::CUT),
        ("-iso-level 2 -R", allowed::MODES),
        ("-iso-level 3 -R -J", allowed::MODES),
        ("-iso-level 4 -R", allowed::MODES),
        ("-r -J -joliet-long", allowed::MODES),
        ("-R -udf", allowed::MODES_UDF),
        ("-R -J -joliet-long -udf", allowed::MODES_UDF),
        ("-R -D", allowed::DEEP),
        ("-R -l -allow-lowercase -relaxed-filenames -allow-multidot", allowed::RELAXED),
    ] {
        let allowed = [allowed, allowed::MODES].concat();
        make("genisoimage", options, &allowed);
    }
    make("genisoimage", &format!("-r -J -joliet-long {BIOS} -e boot/efi.img -no-emul-boot"), allowed::MODES);
}

#[test]
#[ignore = "needs bsdtar and isolinux, run by .ci/run"]
fn images_of_bsdtar_have_no_error() {
    let (_directory, root, image) = workspace();
    let (root, path) = (root.to_str().unwrap(), image.to_str().unwrap());
    run("bsdtar", &["--format", "iso9660", "-cf", path, "-C", root, "."]);
    expect(&image, "bsdtar", allowed::LINKS);
}

const PYCDLIB: &str = r#"
import io, sys, pycdlib
target, kind = sys.argv[1:]
new = {'plain': dict(interchange_level=1), 'joliet': dict(interchange_level=3, joliet=3),
       'rock': dict(interchange_level=3, joliet=3, rock_ridge='1.09'),
       'rock112': dict(interchange_level=3, rock_ridge='1.12'), 'level4': dict(interchange_level=4),
       'udf': dict(interchange_level=3, udf='2.60'), 'boot': dict(interchange_level=3, joliet=3)}[kind]
iso = pycdlib.PyCdlib()
iso.new(**new)
def names(name):
    found = {}
    if 'joliet' in new: found['joliet_path'] = '/' + name
    if 'rock_ridge' in new: found['rr_name'] = name.split('/')[-1]
    if 'udf' in new: found['udf_path'] = '/' + name
    return found
def add(path, name, content):
    iso.add_fp(io.BytesIO(content), len(content), path, **names(name))
iso.add_directory('/DIR1', **names('dir1'))
iso.add_directory('/DIR1/SUB', **names('dir1/sub'))
add('/FOO.;1', 'foo', b'hello\n' * 300)
add('/BAR.TXT;1', 'bar.txt', b'x' * 5000)
add('/DIR1/SUB/BAZ.;1', 'dir1/sub/baz', b'')
if 'rock_ridge' in new:
    iso.add_symlink('/SYM.;1', rr_symlink_name='sym', rr_path='foo')
if kind == 'boot':
    add('/BOOT.;1', 'boot', b'b' * 3000)
    iso.add_eltorito('/BOOT.;1', bootcatfile='/BOOT.CAT;1', joliet_bootcatfile='/boot.cat',
                     boot_load_size=4, boot_info_table=True)
    add('/EFI.IMG;1', 'efi.img', b'e' * 4000)
    iso.add_eltorito('/EFI.IMG;1', efi=True)
iso.write(target)
"#;

#[test]
#[ignore = "needs python3 with pycdlib, run by .ci/run"]
fn images_of_pycdlib_have_no_error() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image.iso");
    for kind in ["plain", "joliet", "rock", "rock112", "level4", "udf", "boot"] {
        run("python3", &["-c", PYCDLIB, image.to_str().unwrap(), kind]);
        let allowed = if kind == "udf" { allowed::TEXT_UDF } else { allowed::TEXT };
        expect(&image, &format!("pycdlib {kind}"), allowed);
    }
}
