//! Drivers: which kernel modules the devices of the machine need, and loading them.
//!
//! ```text
//! modules.index: PATH <tab> DEPENDENCY,DEPENDENCY <tab> ALIAS ALIAS      one line for each module, made with the medium
//!
//! /sys/devices/**/modalias --match aliases--> modules --dependencies first--> finit_module --new devices?--> again
//! ```
//!
//! A medium has no `modprobe` and no `modules.alias`: the index holds what both would need. Paths are relative to the folder of
//! the index. Names are the file names without `.ko`, with `_` for `-`, as the kernel shows them.
//!
//! Invariants: matching is linear in time for each star, and no cycle of dependencies repeats a module. A module is
//! tried once; one that fails is logged and does not stop the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::log::Log;

/// The name of the index in its folder.
pub const INDEX: &str = "modules.index";
/// The unit under which modules are logged.
const UNIT: &str = "modules.service";
/// Depth of folders that are searched for devices.
const MAX_DEPTH: usize = 40;

/// One kernel module.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    path: String,
    dependencies: Vec<String>,
    aliases: Vec<String>,
}

/// The modules of a medium by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleIndex(BTreeMap<String, Module>);

/// Loads modules.
pub trait Kernel {
    /// Loads the module in a file. A module that is loaded already is a success.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn load(&self, file: &Path) -> io::Result<()>;
}

/// The running kernel.
pub struct RunningKernel;

impl Kernel for RunningKernel {
    fn load(&self, file: &Path) -> io::Result<()> {
        match rustix::system::finit_module(&File::open(file)?, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(source) => Err(source.into()),
        }
    }
}

impl ModuleIndex {
    /// Parses the text of an index. Empty lines and lines that begin with `#` are left out.
    ///
    /// # Errors
    /// Returns the number of the line that is damaged, and the rule.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut modules = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let refused = |rule: &str| format!("{INDEX}: line {}: {rule}", index + 1);
            let mut fields = line.split('\t');
            let path = fields.next().unwrap_or_default();
            let plain = !path.is_empty()
                && !path.starts_with('/')
                && path.split('/').all(|part| !part.is_empty() && part != ".." && part != ".");
            if !plain || !path.ends_with(".ko") {
                return Err(refused("the path is not a relative path of a .ko file"));
            }
            let list = |field: Option<&str>, separator: char| -> Vec<String> {
                let parts = field.unwrap_or_default().split(separator).map(str::trim);
                parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
            };
            let dependencies = list(fields.next(), ',').iter().map(|name| canonical(name)).collect();
            let aliases = list(fields.next(), ' ');
            if fields.next().is_some() {
                return Err(refused("it has more than three fields"));
            }
            let module = Module { path: path.to_owned(), dependencies, aliases };
            if modules.insert(name_of(path), module).is_some() {
                return Err(refused("the module is in the index twice"));
            }
        }
        Ok(Self(modules))
    }

    /// Returns the modules that devices with these modaliases need and that are not in `done`: name and path, every
    /// module after its dependencies. A dependency that is not in the index is part of the kernel.
    #[must_use]
    pub fn order(&self, modaliases: &BTreeSet<String>, done: &BTreeSet<String>) -> Vec<(String, String)> {
        let mut order = Vec::new();
        let mut seen = done.clone();
        for (name, module) in &self.0 {
            let wanted =
                module.aliases.iter().any(|alias| modaliases.iter().any(|device| matches(alias, device)));
            if wanted {
                self.add(name, &mut seen, &mut order);
            }
        }
        order
    }

    /// Adds a module after its dependencies, without recursion: a chain can be as long as the index.
    fn add(&self, name: &str, seen: &mut BTreeSet<String>, order: &mut Vec<(String, String)>) {
        let mut stack = vec![(name, 0)];
        if !seen.insert(name.to_owned()) {
            return;
        }
        while let Some((name, next)) = stack.pop() {
            let Some(module) = self.0.get(name) else { continue };
            match module.dependencies.get(next) {
                None => order.push((name.to_owned(), module.path.clone())),
                Some(dependency) => {
                    stack.push((name, next + 1));
                    if seen.insert(dependency.clone()) {
                        stack.push((dependency, 0));
                    }
                }
            }
        }
    }
}

/// The modules that were tried since the start.
#[derive(Debug, Default)]
pub struct Loader {
    tried: BTreeSet<String>,
}

impl Loader {
    /// Loads the modules that the devices below `sys` need, until no new ones appear. Returns how many were loaded.
    pub fn coldplug(
        &mut self,
        sys: &Path,
        folder: &Path,
        index: &ModuleIndex,
        kernel: &dyn Kernel,
        log: &Log,
    ) -> usize {
        let mut loaded = 0;
        loop {
            let order = index.order(&modaliases(sys), &self.tried);
            if order.is_empty() {
                return loaded;
            }
            for (name, path) in order {
                match kernel.load(&folder.join(path)) {
                    Ok(()) => loaded += 1,
                    Err(source) => log.line(UNIT, format!("{name} is not loaded: {source}")),
                }
                self.tried.insert(name);
            }
        }
    }
}

/// Returns the modaliases of all devices below `sys`.
#[must_use]
pub fn modaliases(sys: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders: Vec<(PathBuf, usize)> = vec![(sys.join("devices"), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            // The type of the entry itself: links lead in circles.
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((entry.path(), depth + 1));
            } else if kind.is_file()
                && entry.file_name() == "modalias"
                && let Ok(text) = fs::read_to_string(entry.path())
            {
                let text = text.trim();
                if !text.is_empty() {
                    found.insert(text.to_owned());
                }
            }
        }
    }
    found
}

fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    canonical(file.strip_suffix(".ko").unwrap_or(file))
}

fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// Matches a pattern with `*`, `?` and `[a-f0-9]`, as `fnmatch` does.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut position) = (0, 0);
    // The pattern after the last star, and the text that this star ends at.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if at == pattern.len() && position == text.len() {
            return true;
        }
        let step = match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at + 1, position));
                at += 1;
                continue;
            }
            Some(sign) => text.get(position).and_then(|letter| one(pattern, at, *sign, *letter)),
            None => None,
        };
        match (step, retry) {
            (Some(next), _) => {
                at = next;
                position += 1;
            }
            (None, Some((after_star, from))) if from < text.len() => {
                retry = Some((after_star, from + 1));
                at = after_star;
                position = from + 1;
            }
            _ => return false,
        }
    }
}

/// Matches one letter. Returns the position in the pattern after it.
fn one(pattern: &[u8], at: usize, sign: u8, letter: u8) -> Option<usize> {
    let set = match sign {
        b'?' => return Some(at + 1),
        // A bracket without its end is a letter.
        b'[' => {
            pattern[at + 1..].iter().position(|byte| *byte == b']').map(|end| &pattern[at + 1..at + 1 + end])
        }
        _ => None,
    };
    let Some(set) = set else { return (sign == letter).then_some(at + 1) };
    let (negated, ranges) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut index = 0;
    let mut found = false;
    while index < ranges.len() {
        if ranges.get(index + 1) == Some(&b'-') && index + 2 < ranges.len() {
            found |= (ranges[index]..=ranges[index + 2]).contains(&letter);
            index += 3;
        } else {
            found |= ranges[index] == letter;
            index += 1;
        }
    }
    (found != negated).then_some(at + set.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::FakeSys;
    use proptest::prelude::*;
    use std::cell::RefCell;

    const TEXT: &str = "# made with the medium\n\
        kernel/scsi/scsi_mod.ko\tscsi-common\t\n\
        kernel/scsi/scsi_common.ko\t\t\n\
        kernel/scsi/sd_mod.ko\tscsi_mod\tscsi:t-0x00*\n\
        kernel/ahci.ko\tlibahci,libata\tpci:v00008086d00002922sv*sd*bc*sc*i* pci:v*d*sv*sd*bc01sc06i01*\n\
        kernel/libahci.ko\tlibata\n\
        kernel/libata.ko\tscsi_mod\t\n";

    fn set(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn names(order: &[(String, String)]) -> Vec<&str> {
        order.iter().map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn modules_of_the_devices_are_loaded_after_their_dependencies() {
        let index = ModuleIndex::parse(TEXT).unwrap();
        let devices = set(&["pci:v0000ABCDd00000001sv0sd0bc01sc06i01"]);
        let order = index.order(&devices, &BTreeSet::new());
        assert_eq!(names(&order), ["scsi_common", "scsi_mod", "libata", "libahci", "ahci"]);
        assert_eq!(order[0].1, "kernel/scsi/scsi_common.ko");
        let order = index.order(&devices, &set(&["scsi_mod", "scsi_common", "ahci"]));
        assert!(order.is_empty(), "{order:?}");
        assert!(index.order(&set(&["usb:v1"]), &BTreeSet::new()).is_empty());
    }

    #[test]
    fn a_cycle_of_dependencies_ends() {
        let index = ModuleIndex::parse("a.ko\tb\tx\nb.ko\ta\t\n").unwrap();
        assert_eq!(names(&index.order(&set(&["x"]), &BTreeSet::new())), ["b", "a"]);
    }

    #[test]
    fn damaged_lines_are_refused_with_their_number() {
        for line in ["/a.ko\t\t", "../a.ko", "a.ko.xz", "a.ko\t\t\tx", "a.ko\na.ko"] {
            assert!(ModuleIndex::parse(line).unwrap_err().contains("line "), "{line}");
        }
    }

    #[test]
    fn patterns_match_as_fnmatch_does() {
        for (pattern, text, expected) in [
            ("a*c", "abbc", true),
            ("a*c", "abbcd", false),
            ("*", "", true),
            ("a?c", "ac", false),
            ("x[0-9a-c]y", "xby", true),
            ("x[!0-9]y", "x5y", false),
            ("x[5", "x[5", true),
            ("", "x", false),
            ("*a*b*", "xxbaxxbx", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn devices_that_a_driver_brings_get_their_drivers_too_and_a_failure_stops_nothing() {
        struct Machine<'a>(&'a FakeSys, RefCell<Vec<String>>);
        impl Kernel for Machine<'_> {
            fn load(&self, file: &Path) -> io::Result<()> {
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                self.1.borrow_mut().push(name.clone());
                match name.as_str() {
                    "ahci.ko" => self.0.file("devices/pci/ahci/host/modalias", "scsi:t-0x00\n"),
                    "libahci.ko" => return Err(io::Error::other("key was rejected")),
                    _ => {}
                }
                Ok(())
            }
        }
        let sys = FakeSys::default();
        sys.file("devices/pci/ahci/modalias", "pci:v00008086d00002922sv0sd0bc01sc06i01\n");
        let machine = Machine(&sys, RefCell::default());
        let (log, index) = (Log::new(Vec::new()), ModuleIndex::parse(TEXT).unwrap());
        let mut loader = Loader::default();
        assert_eq!(loader.coldplug(sys.path(), Path::new("/m"), &index, &machine, &log), 5);
        assert_eq!(machine.1.borrow().last().unwrap(), "sd_mod.ko");
        assert!(log.tail(999).contains("libahci is not loaded: key was rejected"));
        assert_eq!(
            loader.coldplug(sys.path(), Path::new("/m"), &index, &machine, &log),
            0,
            "each is tried once"
        );
    }

    proptest! {
        #[test]
        fn any_index_and_pattern_is_handled(text in "[a-c.ko\t\n,*/ ]{0,60}", pattern in ".{0,20}", alias in ".{0,20}") {
            if let Ok(index) = ModuleIndex::parse(&text) {
                let _ = index.order(&set(&["a", "b", "c"]), &BTreeSet::new());
            }
            let _ = matches(&pattern, &alias);
        }
    }
}
