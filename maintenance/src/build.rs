//! Builds an image.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use iso9660::{BiosBoot, Boot, Hybrid, ImageOptions, ImagePlan, Profile, UefiBoot};
use lzma_rust2::{CheckType, XzOptions, XzWriter};
use sha2::{Digest, Sha256};

use crate::boot;
use crate::cpio::{Archive, Entry};
use crate::elf;
use crate::error::Error;
use crate::fat;
use crate::licences;
use crate::modules::{self, Kernel, Selection};
use crate::package::{Package, PackageFile};
use crate::profile::ImageProfile;
use crate::programs::{self, Programs};
use crate::record::{
    FileRecord, FirmwareRecord, InitramfsRecord, PackageRecord, ProgramRecord, RECORD_FORMAT, RECORD_PATH,
    Record,
};
use crate::tree::{MOST_FILE_BYTES, Node, Tree};

/// The largest agent program.
const MOST_AGENT_BYTES: u64 = 64 << 20;
/// The largest copyright file that is read.
const MOST_COPYRIGHT_BYTES: u64 = 4 << 20;
/// The level at which the initramfs is packed: level 9 needs 64 MiB of memory to unpack, level 6 needs 8.
const XZ_LEVEL: u32 = 6;
/// The boot code of a hybrid image; isohdpfx.bin has as much.
const MBR_CODE: usize = 432;
/// The deepest folder of modules.
const MOST_DEPTH: usize = 24;

/// A kernel that does not come from a package.
#[derive(Clone, Debug)]
pub struct KernelSource {
    /// The kernel image.
    pub image: PathBuf,
    /// The folder of the modules of the kernel, `/lib/modules/RELEASE`.
    pub modules: PathBuf,
}

/// The inputs from which an image is built.
#[derive(Clone, Debug)]
pub struct Inputs {
    /// The folder of package files; other files in it are passed over.
    pub packages: PathBuf,
    /// A kernel to use in place of that of a package.
    pub kernel: Option<KernelSource>,
    /// The agent, a static program for Linux.
    pub agent: PathBuf,
    /// The drivers and programs.
    pub profile: ImageProfile,
    /// More words for the kernel's command line.
    pub command_line: String,
}

/// An image that is ready to be written.
pub struct Medium {
    /// The bytes of the image.
    pub plan: ImagePlan,
    /// The record of the content of the image.
    pub record: Record,
}

/// Builds an image. `progress` receives a sentence before each long step.
///
/// # Errors
/// [`Error`] when an input cannot be read, is not what it should be, or is missing.
pub fn build(inputs: &Inputs, progress: &mut dyn FnMut(&str)) -> Result<Medium, Error> {
    let command_line = boot::command_line(&inputs.command_line).map_err(Error::Incomplete)?;
    let agent = agent(&inputs.agent)?;
    progress("reading packages");
    let mut sources = Sources::read(&inputs.packages)?;
    if let Some(kernel) = &inputs.kernel {
        sources.add_kernel(kernel)?;
    }
    progress("selecting kernel modules and programs");
    let kernel = Kernel::read(&sources.tree).map_err(Error::Incomplete)?;
    let selection =
        kernel.select(crate::drivers::drivers(inputs.profile), &sources.tree).map_err(Error::Incomplete)?;
    let programs = programs::collect(&sources.tree, inputs.profile).map_err(Error::Incomplete)?;
    let archive =
        initramfs(&mut sources, &kernel, &selection, &programs, agent.clone()).map_err(Error::Incomplete)?;
    progress(&format!("packing {} MB of drivers and programs", archive.content_bytes() / 1_000_000));
    let initrd =
        pack(&archive).map_err(|error| Error::Incomplete(format!("cannot pack the initramfs: {error}")))?;
    let loaders = Loaders::read(&mut sources, &kernel.release).map_err(Error::Incomplete)?;
    assemble(
        inputs,
        &sources,
        command_line,
        Parts { kernel, selection, programs, agent, archive, initrd, loaders },
    )
}

/// The parts of an image that are made before its layout.
struct Parts {
    kernel: Kernel,
    selection: Selection,
    programs: Programs,
    agent: Vec<u8>,
    archive: Archive,
    initrd: Vec<u8>,
    loaders: Loaders,
}

/// The agent program, which must run without any library.
fn agent(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = read_file(path, MOST_AGENT_BYTES)?;
    let needs =
        elf::needs(&bytes).map_err(|reason| Error::input(path, format!("it is no program: {reason}")))?;
    if needs.loader.is_some() || !needs.libraries.is_empty() {
        return Err(Error::input(
            path,
            "the agent must be a static program, as `cargo static-agent` builds it: it is /init, before any library is there",
        ));
    }
    Ok(bytes)
}

fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(Error::file(path))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(Error::file(path))?;
    if bytes.len() as u64 > limit {
        return Err(Error::input(path, format!("the file has more than {limit} bytes")));
    }
    Ok(bytes)
}

/// All inputs as one tree, with the packages they come from.
pub(crate) struct Sources {
    pub(crate) tree: Tree,
    /// Sorted by name. A path's owner is a number in this list; a larger one is the folder of a kernel.
    packages: Vec<Package>,
    used: BTreeSet<usize>,
    kernel_image: Option<Vec<u8>>,
}

impl Sources {
    /// Reads the packages of a folder.
    ///
    /// # Errors
    /// When the folder has no package, two versions of one, or one that is damaged or for another architecture.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
            let path = entry.map_err(Error::file(folder))?.path();
            if path.extension().is_some_and(|end| end == "deb") {
                names.push(path);
            }
        }
        if names.is_empty() {
            return Err(Error::input(
                folder,
                "the folder has no package; `shoal maintenance fetch` fills it",
            ));
        }
        // The order of the folder, and of the file names, has no effect: packages are read in the order of their own names.
        let mut order: BTreeMap<String, (PathBuf, Package)> = BTreeMap::new();
        for path in names {
            let package = PackageFile::open(&path)?.package;
            if !["amd64", "all"].contains(&&*package.architecture) {
                return Err(Error::input(
                    &path,
                    format!("it is for {}, not for amd64", package.architecture),
                ));
            }
            let version = package.version.clone();
            if let Some((_, other)) = order.insert(package.name.clone(), (path.clone(), package)) {
                let (name, first) = (&other.name, &other.version);
                return Err(Error::input(
                    folder,
                    format!("it has {name} twice: {first} and {version}; remove one"),
                ));
            }
        }
        let tree = Tree::new().map_err(Error::file(&std::env::temp_dir()))?;
        let mut sources = Self { tree, packages: Vec::new(), used: BTreeSet::new(), kernel_image: None };
        for (path, _) in order.into_values() {
            let file = PackageFile::open(&path)?;
            let owner = sources.packages.len();
            file.unpack_into(&mut sources.tree, owner).map_err(|reason| Error::input(&path, reason))?;
            sources.packages.push(file.package);
        }
        Ok(sources)
    }

    /// Adds a kernel that does not come from a package.
    fn add_kernel(&mut self, kernel: &KernelSource) -> Result<(), Error> {
        if !self.tree.names_in("usr/lib/modules/").is_empty() {
            let reason = "there is a kernel package in the folder too; remove it, or do not give --kernel";
            return Err(Error::input(&kernel.modules, reason));
        }
        let folder = fs::canonicalize(&kernel.modules).map_err(Error::file(&kernel.modules))?;
        let release = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if release.is_empty() || release.starts_with('.') {
            return Err(Error::input(&folder, "the folder must have the name of the kernel's release"));
        }
        let mut open = vec![(folder, format!("usr/lib/modules/{release}"), 0)];
        while let Some((folder, path, depth)) = open.pop() {
            for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
                let entry = entry.map_err(Error::file(&folder))?;
                let (place, kind) = (entry.path(), entry.file_type().map_err(Error::file(&folder))?);
                let name = entry.file_name();
                let path = crate::tree::clean(format!("{path}/{}", name.to_string_lossy()).as_bytes())
                    .map_err(|reason| Error::input(&place, reason))?;
                // Links such as `build` lead to sources.
                if kind.is_dir() && depth < MOST_DEPTH {
                    open.push((place, path, depth + 1));
                } else if kind.is_file() {
                    let file = fs::File::open(&place).map_err(Error::file(&place))?;
                    self.tree
                        .add_file(&path, file, false, self.packages.len())
                        .map_err(|reason| Error::input(&place, reason))?;
                }
            }
        }
        self.kernel_image = Some(read_file(&kernel.image, MOST_FILE_BYTES)?);
        Ok(())
    }

    /// Notes that a path is in the image.
    fn used(&mut self, path: &str) {
        self.used.extend(self.tree.owner(path));
    }

    /// The content of a file of a package, whose links are followed.
    ///
    /// # Errors
    /// A sentence that names the package: the file is missing or cannot be read.
    pub(crate) fn take(&mut self, path: &str, package: &str) -> Result<Vec<u8>, String> {
        let file = self
            .tree
            .resolve(path)
            .map_err(|_| format!("{path} is missing: the folder needs the package {package}"))?
            .file;
        self.used(&file);
        self.tree.read(&file)
    }

    /// The records of the packages that are used, and the time of the newest.
    fn records(&self) -> (Vec<PackageRecord>, u64) {
        let mut newest = 0;
        let used = self.used.iter().filter_map(|number| self.packages.get(*number));
        let records = used.map(|package| {
            newest = newest.max(package.time);
            let path = format!("usr/share/doc/{}/copyright", package.name);
            let file = self.tree.resolve(&path).map(|resolved| resolved.file);
            let small = |path: &String| matches!(self.tree.node(path), Some(Node::File { len, .. }) if *len <= MOST_COPYRIGHT_BYTES);
            let text = file.ok().filter(small).and_then(|path| self.tree.read(&path).ok());
            PackageRecord {
                name: package.name.clone(),
                version: package.version.clone(),
                architecture: package.architecture.clone(),
                source: package.source.clone(),
                sha256: package.sha256.clone(),
                licences: text.map(|text| licences::names(&text)).unwrap_or_default(),
            }
        });
        (records.collect(), newest)
    }
}

/// The first file system of the kernel.
fn initramfs(
    sources: &mut Sources,
    kernel: &Kernel,
    selection: &Selection,
    programs: &Programs,
    agent: Vec<u8>,
) -> Result<Archive, String> {
    let mut archive = Archive::default();
    archive.add("init", Entry::File(agent, true))?;
    for folder in ["bin", "sbin", "lib", "lib64"] {
        archive.add(folder, Entry::Link(format!("usr/{folder}")))?;
        archive.add(&format!("usr/{folder}"), Entry::Directory)?;
    }
    for folder in ["proc", "sys", "run", "tmp", "mnt", "etc", "var"] {
        archive.add(folder, Entry::Directory)?;
    }
    archive.add("dev/console", Entry::Device(5, 1))?;
    archive.add("dev/null", Entry::Device(1, 3))?;

    let folder = format!("usr/lib/modules/{}", kernel.release);
    archive
        .add(&format!("{folder}/shoal.index"), Entry::File(selection.index.clone().into_bytes(), false))?;
    for (path, name) in &selection.files {
        sources.used(path);
        archive
            .add(&format!("{folder}/{name}"), Entry::File(modules::contents(&sources.tree, path)?, false))?;
    }
    let mut paths = programs.paths.clone();
    for file in &selection.firmware {
        programs::add(&sources.tree, &format!("usr/lib/firmware/{file}"), &mut paths)?;
    }
    for path in &paths {
        sources.used(path);
        let entry = match sources.tree.node(path) {
            Some(Node::Link(target)) => Entry::Link(target.clone()),
            Some(Node::File { executable, .. }) => Entry::File(sources.tree.read(path)?, *executable),
            None => continue,
        };
        archive.add(path, entry)?;
    }
    Ok(archive)
}

/// Packs the archive in the only form of xz that the kernel takes: CRC32, one stream.
fn pack(archive: &Archive) -> io::Result<Vec<u8>> {
    let mut options = XzOptions::with_preset(XZ_LEVEL);
    options.set_check_sum_type(CheckType::Crc32);
    let mut packed = io::BufWriter::with_capacity(1 << 20, XzWriter::new(Vec::new(), options)?);
    archive.write_to(&mut packed)?;
    packed.flush()?;
    packed.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
}

/// Kernel and boot loaders, unchanged.
struct Loaders {
    kernel: Vec<u8>,
    shim: Vec<u8>,
    grub: Vec<u8>,
    isolinux: Vec<u8>,
    ldlinux: Vec<u8>,
    mbr: Vec<u8>,
}

impl Loaders {
    fn read(sources: &mut Sources, release: &str) -> Result<Self, String> {
        let kernel = match sources.kernel_image.take() {
            Some(image) => image,
            None => sources.take(&format!("boot/vmlinuz-{release}"), &format!("linux-image-{release}"))?,
        };
        let mbr = sources.take("usr/lib/ISOLINUX/isohdpfx.bin", "isolinux")?;
        if mbr.len() > MBR_CODE {
            return Err(format!("usr/lib/ISOLINUX/isohdpfx.bin has more than {MBR_CODE} bytes"));
        }
        Ok(Self {
            kernel,
            shim: sources.take("usr/lib/shim/shimx64.efi.signed", "shim-signed")?,
            grub: sources
                .take("usr/lib/grub/x86_64-efi-signed/gcdx64.efi.signed", "grub-efi-amd64-signed")?,
            isolinux: sources.take("usr/lib/ISOLINUX/isolinux.bin", "isolinux")?,
            ldlinux: sources.take("usr/lib/syslinux/modules/bios/ldlinux.c32", "syslinux-common")?,
            mbr,
        })
    }
}

/// Lays out the image.
fn assemble(inputs: &Inputs, sources: &Sources, command_line: String, parts: Parts) -> Result<Medium, Error> {
    let loaders = parts.loaders;
    let mut digest = Sha256::new();
    for part in [&loaders.kernel[..], &parts.initrd, command_line.as_bytes()] {
        digest.update(Sha256::digest(part));
    }
    let marker = format!(".disk/shoal-{}", &hex::encode(digest.finalize())[..16]);
    let grub_cfg = boot::grub(&marker, &command_line);
    let efi = fat::image(&[
        ("EFI/BOOT/BOOTX64.EFI", &loaders.shim),
        ("EFI/BOOT/GRUBX64.EFI", &loaders.grub),
        ("BOOT/GRUB/GRUB.CFG", grub_cfg.as_bytes()),
    ])
    .map_err(Error::Incomplete)?;
    let (packages, epoch) = sources.records();
    let mut files = Vec::new();
    let mut tree = iso9660::Tree::new();
    for (path, content) in [
        ("boot/vmlinuz", loaders.kernel),
        ("boot/initrd", parts.initrd),
        ("boot/efi.img", efi),
        ("isolinux/isolinux.bin", loaders.isolinux),
        ("isolinux/ldlinux.c32", loaders.ldlinux),
    ] {
        files.push(file_record(path, &content));
        tree.add_file(path, content)?;
    }
    let packed_bytes = files[1].bytes;
    tree.add_file("isolinux/isolinux.cfg", boot::isolinux(&command_line))?;
    tree.add_file("boot/grub/grub.cfg", grub_cfg)?;
    tree.add_file(&marker, "")?;
    let record = Record {
        format: RECORD_FORMAT,
        profile: inputs.profile.name().to_owned(),
        kernel: parts.kernel.release,
        epoch,
        command_line,
        agent: file_record("init", &parts.agent),
        packages,
        files,
        initramfs: InitramfsRecord {
            bytes: parts.archive.content_bytes(),
            packed_bytes,
            packing: "xz".to_owned(),
        },
        modules: parts
            .selection
            .files
            .into_iter()
            .map(|(_, name)| name.trim_end_matches(".ko").to_owned())
            .collect(),
        drivers_missing: parts.selection.missing_drivers,
        firmware: parts.selection.firmware,
        firmware_missing: parts
            .selection
            .missing_firmware
            .into_iter()
            .map(|(module, file, without)| FirmwareRecord { module, file, without })
            .collect(),
        programs: parts.programs.paths.into_iter().filter(|path| !path.starts_with("usr/lib")).collect(),
        programs_missing: parts
            .programs
            .missing
            .into_iter()
            .map(|(path, package)| ProgramRecord { path: path.to_owned(), package: package.to_owned() })
            .collect(),
    };
    let text = serde_json::to_string_pretty(&record)
        .map_err(|error| Error::Incomplete(format!("cannot write the record: {error}")))?;
    tree.add_file(RECORD_PATH, text + "\n")?;

    // A date that the format can hold; packages of a hostile folder can have any.
    let date = i64::try_from(epoch.min(4_102_444_800)).unwrap_or_default();
    let bios = BiosBoot::new("isolinux/isolinux.bin").with_boot_info_table(true);
    let options = ImageOptions::new(Profile::Boot, "SHOAL_MAINTENANCE", date)
        .with_boot(Boot::new(Some(bios), Some(UefiBoot::new("boot/efi.img"))))
        .with_hybrid(Hybrid::new(loaders.mbr));
    Ok(Medium { plan: ImagePlan::new(&tree, &options)?, record })
}

fn file_record(path: &str, content: &[u8]) -> FileRecord {
    FileRecord {
        path: path.to_owned(),
        bytes: content.len() as u64,
        sha256: hex::encode(Sha256::digest(content)),
    }
}

#[cfg(test)]
mod tests;
