//! Drivers: which kernel modules the devices of the machine need, and loading them.
//!
//! ```text
//! shoal.index, made with the medium:      module NAME FILE, and below it the lines of this module:
//!   shoal-modules 1                        need NAME, soft NAME    load before it
//!   start NAME                             alias PATTERN           devices that need it
//!
//! /sys/devices/**/modalias --match aliases--> modules --dependencies first--> finit_module --new devices?--> again
//! ```
//!
//! A medium has no `modprobe` and no `modules.alias`: the index holds what both would need. docs/maintenance-os.md lists its
//! lines; lines with an unknown first word are left out. Names are those of the kernel, with `_` for `-`.
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
pub const INDEX: &str = "shoal.index";
/// The first line of the index: its format and version.
const FORM: &str = "shoal-modules 1";
/// The unit under which modules are logged.
const UNIT: &str = "modules.service";
/// Depth of folders that are searched for devices.
const MAX_DEPTH: usize = 40;

/// One kernel module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Module {
    /// The file in the folder of the index.
    file: String,
    /// The modules that are loaded before this one, in this order.
    before: Vec<String>,
    aliases: Vec<String>,
}

/// The modules of a medium by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleIndex {
    modules: BTreeMap<String, Module>,
    /// Modules that no device asks for.
    start: Vec<String>,
}

/// Loads modules.
pub trait ModuleKernel {
    /// Loads the module in a file. A module that is loaded already is a success.
    ///
    /// # Errors
    /// Returns the error of the kernel.
    fn load(&self, file: &Path) -> io::Result<()>;
}

/// The running kernel.
pub struct RunningKernel;

impl ModuleKernel for RunningKernel {
    fn load(&self, file: &Path) -> io::Result<()> {
        match rustix::system::finit_module(&File::open(file)?, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(source) => Err(source.into()),
        }
    }
}

impl ModuleIndex {
    /// Parses the text of an index.
    ///
    /// # Errors
    /// Returns the number of the line that is damaged, and the rule.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line) != Some(FORM) {
            return Err(format!("{INDEX}: line 1: it is not `{FORM}`"));
        }
        let mut index = Self::default();
        let mut current: Option<String> = None;
        for (number, line) in lines {
            let refused = |rule: &str| Err(format!("{INDEX}: line {}: {rule}", number + 1));
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "start" if !rest.is_empty() => index.start.push(canonical(rest)),
                "module" => {
                    let Some((name, file)) = rest.split_once(' ') else {
                        return refused("a module has a name and a file");
                    };
                    if file.contains('/') || !file.ends_with(".ko") {
                        return refused("the file is not a .ko file in the folder of the index");
                    }
                    let name = canonical(name);
                    let module = Module { file: file.to_owned(), ..Module::default() };
                    if index.modules.insert(name.clone(), module).is_some() {
                        return refused("the module is in the index twice");
                    }
                    current = Some(name);
                }
                "need" | "soft" | "alias" if !rest.is_empty() => {
                    let Some(module) = current.as_ref().and_then(|name| index.modules.get_mut(name)) else {
                        return refused("it belongs to no module");
                    };
                    match word {
                        "alias" => module.aliases.push(rest.to_owned()),
                        _ => module.before.push(canonical(rest)),
                    }
                }
                "start" | "need" | "soft" | "alias" => return refused("its name is missing"),
                _ => {}
            }
        }
        Ok(index)
    }

    /// Returns the modules that are loaded at the start or that devices with these modaliases need, and that are not in `done`:
    /// name and file, every module after those that it needs. A module that is not in the index is part of the kernel.
    #[must_use]
    pub fn order(&self, modaliases: &BTreeSet<String>, done: &BTreeSet<String>) -> Vec<(String, String)> {
        let mut order = Vec::new();
        let mut seen = done.clone();
        for name in &self.start {
            self.add(name, &mut seen, &mut order);
        }
        for (name, module) in &self.modules {
            let wanted =
                module.aliases.iter().any(|alias| modaliases.iter().any(|device| matches(alias, device)));
            if wanted {
                self.add(name, &mut seen, &mut order);
            }
        }
        order
    }

    /// Returns the order of [`order`](Self::order) for modules by name, which no device asks for.
    #[must_use]
    pub fn order_of(&self, names: &[&str], done: &BTreeSet<String>) -> Vec<(String, String)> {
        let mut order = Vec::new();
        let mut seen = done.clone();
        for name in names {
            self.add(name, &mut seen, &mut order);
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
            let Some(module) = self.modules.get(name) else { continue };
            match module.before.get(next) {
                None => order.push((name.to_owned(), module.file.clone())),
                Some(other) => {
                    stack.push((name, next + 1));
                    if seen.insert(other.clone()) {
                        stack.push((other, 0));
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
        kernel: &dyn ModuleKernel,
        log: &Log,
    ) -> usize {
        let mut loaded = 0;
        loop {
            let order = index.order(&modaliases(sys), &self.tried);
            if order.is_empty() {
                return loaded;
            }
            loaded += self.load(order, folder, kernel, log);
        }
    }

    /// Loads the modules that devices with these modaliases need.
    pub fn load_for(
        &mut self,
        modaliases: &BTreeSet<String>,
        folder: &Path,
        index: &ModuleIndex,
        kernel: &dyn ModuleKernel,
        log: &Log,
    ) -> usize {
        self.load(index.order(modaliases, &self.tried), folder, kernel, log)
    }

    /// Loads modules by name.
    pub fn load_named(
        &mut self,
        names: &[&str],
        folder: &Path,
        index: &ModuleIndex,
        kernel: &dyn ModuleKernel,
        log: &Log,
    ) -> usize {
        self.load(index.order_of(names, &self.tried), folder, kernel, log)
    }

    fn load(
        &mut self,
        order: Vec<(String, String)>,
        folder: &Path,
        kernel: &dyn ModuleKernel,
        log: &Log,
    ) -> usize {
        let mut loaded = 0;
        for (name, path) in order {
            match kernel.load(&folder.join(path)) {
                Ok(()) => loaded += 1,
                Err(source) => log.line(UNIT, format!("{name} is not loaded: {source}")),
            }
            self.tried.insert(name);
        }
        loaded
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

    const TEXT: &str = "shoal-modules 1\n\
        kernel 6.1.0-56-amd64\n\
        builtin pci\n\
        module scsi_mod scsi_mod.ko\nneed scsi-common\n\
        module scsi_common scsi_common.ko\n\
        module sd_mod sd_mod.ko\nneed scsi_mod\nalias scsi:t-0x00*\n\
        module ahci ahci.ko\nneed libahci\nneed libata\nfirmware some.bin\n\
        alias pci:v00008086d00002922sv*sd*bc*sc*i*\nalias pci:v*d*sv*sd*bc01sc06i01*\n\
        module libahci libahci.ko\nneed libata\n\
        module libata libata.ko\nneed scsi_mod\nsoft pci\n";

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
        assert_eq!(order[0].1, "scsi_common.ko");
        let order = index.order(&devices, &set(&["scsi_mod", "scsi_common", "ahci"]));
        assert!(order.is_empty(), "{order:?}");
        assert!(index.order(&set(&["usb:v1"]), &BTreeSet::new()).is_empty());
    }

    #[test]
    fn what_no_device_asks_for_is_loaded_at_the_start() {
        let text = "shoal-modules 1\nstart isofs\nmodule isofs isofs.ko\nsoft cdrom\nmodule cdrom cdrom.ko\n";
        let index = ModuleIndex::parse(text).unwrap();
        assert_eq!(names(&index.order(&BTreeSet::new(), &BTreeSet::new())), ["cdrom", "isofs"]);
        assert!(index.order(&BTreeSet::new(), &set(&["isofs"])).is_empty());
    }

    #[test]
    fn a_cycle_of_dependencies_ends() {
        let index =
            ModuleIndex::parse("shoal-modules 1\nmodule a a.ko\nneed b\nalias x\nmodule b b.ko\nneed a\n")
                .unwrap();
        assert_eq!(names(&index.order(&set(&["x"]), &BTreeSet::new())), ["b", "a"]);
    }

    #[test]
    fn damaged_lines_are_refused_with_their_number() {
        for lines in [
            "module a",
            "module a /a.ko",
            "module a ../a.ko",
            "module a a.ko.xz",
            "module a a.ko\nmodule a a.ko",
            "need b",
            "module a a.ko\nneed",
            "start",
        ] {
            let refused = ModuleIndex::parse(&format!("{FORM}\n{lines}\n")).unwrap_err();
            assert!(refused.contains("line "), "{lines}");
        }
        assert!(ModuleIndex::parse("shoal-modules 2\n").is_err() && ModuleIndex::parse("").is_err());
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
        impl ModuleKernel for Machine<'_> {
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
        fn any_index_and_pattern_is_handled(lines in "((module|need|soft|alias|start) [a-c]( [a-c]\\.ko)?\n){0,9}", pattern in ".{0,20}", alias in ".{0,20}") {
            if let Ok(index) = ModuleIndex::parse(&format!("{FORM}\n{lines}")) {
                let _ = index.order(&set(&["a", "b", "c"]), &BTreeSet::new());
            }
            let _ = matches(&pattern, &alias);
        }
    }
}
