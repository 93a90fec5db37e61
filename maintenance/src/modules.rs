//! Kernel modules: what each needs, the closure of a list of drivers, and the index that the agent reads.
//!
//! ```text
//! *.ko, *.ko.xz ... --unpack, .modinfo--> depends, softdep, alias, firmware --+
//! modules.builtin -----------------------> names without a file --------------+--> closure, in the order of loading --> index
//! names of drivers ----------------------------------------------------------+
//! ```
//!
//! The index is text, one fact per line, so that the agent reads no ELF file and needs no `modules.dep`:
//!
//! ```text
//! shoal-modules 1
//! kernel 6.1.0-56-amd64
//! builtin virtio                    a driver in the kernel itself
//! start isofs                       load at the start: no device asks for it
//! module scsi_mod scsi_mod.ko       a module and its file, beside the index; a module comes after those it needs
//! soft crc32c_generic               load before the module above if possible; a failure is no error
//! need scsi_common                  load before it; `soft` and `need` lines are complete and in the order of loading
//! alias scsi:t-0x00*                a device with such a modalias needs the module above; * ? and [] as in a shell
//! firmware bnx2/bnx2-mips-06.fw     a firmware file the module may ask for, which is in the image
//! ```
//!
//! Invariants: names have letters, digits, `_` and `-` only, and `-` is `_`; a circle of modules is an error.

use std::collections::{BTreeMap, BTreeSet};

use crate::drivers::{self, FIRMWARE};
use crate::elf;
use crate::tree::Tree;
use crate::unpack::unpack_all;

/// The largest module when unpacked.
const MOST_MODULE_BYTES: u64 = 128 << 20;
/// The longest alias.
const MOST_ALIAS_BYTES: usize = 512;

/// The most modules of an image; all drivers of the list need some 250.
const MOST_MODULES: usize = 2000;

/// The facts about a module.
#[derive(Clone, Debug, Default)]
struct Module {
    path: String,
    needs: Vec<String>,
    soft: Vec<String>,
    aliases: Vec<String>,
    firmware: Vec<String>,
}

/// All modules of a kernel.
pub(crate) struct Kernel {
    /// The release of the kernel, as `uname -r` prints it.
    pub(crate) release: String,
    modules: BTreeMap<String, Module>,
    builtin: BTreeSet<String>,
}

/// The modules of an image.
pub(crate) struct Selection {
    /// Path in the tree, name of the file in the image, in the order of loading.
    pub(crate) files: Vec<(String, String)>,
    /// The text of the index.
    pub(crate) index: String,
    /// Firmware files that are taken.
    pub(crate) firmware: Vec<String>,
    /// Firmware files that no package has: module, file, consequence.
    pub(crate) missing_firmware: Vec<(String, String, String)>,
    /// Drivers of the profile that the kernel does not have.
    pub(crate) missing_drivers: Vec<String>,
}

/// The name of a module as the kernel compares it.
fn canonical(name: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.is_empty() || name.len() > 64 || !name.bytes().all(allowed) {
        return Err(format!("{name:?} is not the name of a kernel module"));
    }
    Ok(name.replace('-', "_"))
}

impl Kernel {
    /// Reads all modules below `usr/lib/modules`, which must hold one kernel.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(crate) fn read(tree: &Tree) -> Result<Self, String> {
        let releases: Vec<String> = tree.names_in("usr/lib/modules/").into_iter().collect();
        let [release] = &releases[..] else {
            return Err(match releases.len() {
                0 => "no kernel: the folder needs a package linux-image-VERSION-amd64, or give --kernel and --modules".to_owned(),
                _ => format!("there are modules of several kernels: {}; keep one", releases.join(", ")),
            });
        };
        let folder = format!("usr/lib/modules/{release}/");
        let mut kernel =
            Self { release: release.clone(), modules: BTreeMap::new(), builtin: BTreeSet::new() };
        let builtin = tree.read(&format!("{folder}modules.builtin"))?;
        for line in String::from_utf8_lossy(&builtin).lines().filter(|line| !line.is_empty()) {
            let name = line.rsplit('/').next().unwrap_or_default();
            kernel.builtin.insert(canonical(name.strip_suffix(".ko").unwrap_or(name))?);
        }
        for path in tree.below(&folder) {
            let file = path.rsplit('/').next().unwrap_or_default();
            let Some((name, "" | ".xz" | ".zst" | ".gz")) = file.split_once(".ko") else { continue };
            let name = canonical(name)?;
            let bytes = contents(tree, path)?;
            let pairs = elf::modinfo(&bytes).map_err(|reason| format!("{path}: {reason}"))?;
            let module = Module::parse(path, &pairs)?;
            if let Some(other) = kernel.modules.insert(name, module) {
                return Err(format!("{path} and {} have one name", other.path));
            }
        }
        kernel.resolve_soft();
        Ok(kernel)
    }

    /// Replaces the names in soft dependencies by modules. Many name an algorithm such as `crc32c`, which is an alias of
    /// several modules: the one for every processor is taken.
    fn resolve_soft(&mut self) {
        let mut providers: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, module) in &self.modules {
            for alias in module.aliases.iter().filter(|alias| !alias.contains([':', '*'])) {
                providers.entry(alias.replace('-', "_")).or_default().push(name.clone());
            }
        }
        let names: BTreeSet<String> = self.modules.keys().cloned().collect();
        for module in self.modules.values_mut() {
            let found = module.soft.iter().filter_map(|wanted| {
                if names.contains(wanted) {
                    return Some(wanted.clone());
                }
                let providers = providers.get(wanted)?;
                providers.iter().find(|name| name.ends_with("_generic")).or(providers.first()).cloned()
            });
            module.soft = found.collect();
        }
    }

    /// Selects drivers, what they need, and their firmware.
    ///
    /// # Errors
    /// A sentence: a required driver or a module that another needs is not there, or modules need each other.
    pub(crate) fn select(
        &self,
        wanted: impl Iterator<Item = (&'static str, bool)>,
        tree: &Tree,
    ) -> Result<Selection, String> {
        let mut order = Order { kernel: self, done: Vec::new(), open: Vec::new(), known: BTreeMap::new() };
        let mut missing_drivers = Vec::new();
        for (name, required) in wanted {
            let name = canonical(name)?;
            if self.modules.contains_key(&name) {
                order.add(&name)?;
            } else if required && !self.builtin.contains(&name) {
                return Err(format!("kernel {} has no driver {name}, which every image needs", self.release));
            } else if !self.builtin.contains(&name) {
                missing_drivers.push(name);
            }
        }
        let order = order.done;
        if order.len() > MOST_MODULES {
            return Err(format!("the drivers need more than {MOST_MODULES} modules"));
        }
        let mut selection = Selection {
            files: Vec::new(),
            index: String::new(),
            firmware: Vec::new(),
            missing_firmware: Vec::new(),
            missing_drivers,
        };
        self.add_firmware(&order, tree, &mut selection);
        self.write_index(&order, &mut selection);
        Ok(selection)
    }

    /// Divides the firmware of the listed drivers into what packages have and what is missing.
    fn add_firmware(&self, order: &[String], tree: &Tree, selection: &mut Selection) {
        for rule in FIRMWARE.iter().filter(|rule| order.iter().any(|name| name == rule.module)) {
            let Some(module) = self.modules.get(rule.module) else { continue };
            for file in &module.firmware {
                if tree.resolve(&format!("usr/lib/firmware/{file}")).is_ok() {
                    selection.firmware.push(file.clone());
                } else {
                    let consequence = rule.without.to_owned();
                    selection.missing_firmware.push((rule.module.to_owned(), file.clone(), consequence));
                }
            }
        }
        selection.firmware.sort();
        selection.firmware.dedup();
    }

    fn write_index(&self, order: &[String], selection: &mut Selection) {
        let mut lines = vec!["shoal-modules 1".to_owned(), format!("kernel {}", self.release)];
        lines.extend(self.builtin.iter().map(|name| format!("builtin {name}")));
        let start = drivers::START.iter().filter(|name| order.iter().any(|known| known == *name));
        lines.extend(start.map(|name| format!("start {name}")));
        for name in order {
            let Some(module) = self.modules.get(name) else { continue };
            let file = format!("{name}.ko");
            lines.push(format!("module {name} {file}"));
            let needed = self.needed(name);
            let mut soft = BTreeSet::new();
            for other in needed.iter().chain([name]).filter_map(|name| self.modules.get(name)) {
                soft.extend(other.soft.iter().flat_map(|soft| self.needed(soft)));
                soft.extend(other.soft.iter().cloned());
            }
            // The order of loading holds for both: a module comes after those it needs.
            let before = order.iter().take_while(|other| *other != name);
            lines.extend(before.filter_map(|other| match () {
                () if needed.contains(other) => Some(format!("need {other}")),
                () if soft.contains(other) => Some(format!("soft {other}")),
                () => None,
            }));
            let followed = drivers::FOLLOWS.iter().filter(|(follower, _)| follower == name);
            let followed = followed.filter_map(|(_, leader)| self.modules.get(*leader));
            let aliases: BTreeSet<&String> =
                followed.chain([module]).flat_map(|module| &module.aliases).collect();
            lines.extend(aliases.into_iter().map(|alias| format!("alias {alias}")));
            let firmware = module.firmware.iter().filter(|file| selection.firmware.contains(file));
            lines.extend(firmware.map(|file| format!("firmware {file}")));
            selection.files.push((module.path.clone(), file));
        }
        selection.index = lines.join("\n") + "\n";
    }

    /// All modules that a module needs, directly or not.
    fn needed(&self, name: &str) -> BTreeSet<String> {
        let mut needed = BTreeSet::new();
        let mut left = vec![name.to_owned()];
        while let Some(name) = left.pop() {
            for other in self.modules.get(&name).map(|module| &module.needs[..]).unwrap_or_default() {
                if self.modules.contains_key(other) && needed.insert(other.clone()) {
                    left.push(other.clone());
                }
            }
        }
        needed
    }
}

impl Module {
    fn parse(path: &str, pairs: &[(&str, &str)]) -> Result<Self, String> {
        let mut module = Self { path: path.to_owned(), ..Self::default() };
        let names = |text: &str| -> Result<Vec<String>, String> {
            text.split(',').filter(|name| !name.is_empty()).map(canonical).collect()
        };
        for (key, value) in pairs {
            match *key {
                "depends" => module.needs.extend(names(value)?),
                "softdep" => {
                    // The form is `pre: a b post: c`. What comes after a module has aliases of its own, or is in the list.
                    let pre = value.split("post:").next().unwrap_or_default();
                    // Some names are those of devices; what is no module's name helps no loading.
                    let pre = pre.trim_start_matches("pre:").split_whitespace();
                    module.soft.extend(pre.filter_map(|name| canonical(name).ok()));
                }
                "alias"
                    if value.len() <= MOST_ALIAS_BYTES
                        && value.bytes().all(|byte| byte.is_ascii_graphic()) =>
                {
                    module.aliases.push((*value).to_owned());
                }
                "firmware" => {
                    let clean = crate::tree::clean(value.as_bytes())?;
                    if clean == *value && !value.contains(' ') {
                        module.firmware.push(clean);
                    }
                }
                _ => {}
            }
        }
        module.aliases.sort();
        module.aliases.dedup();
        Ok(module)
    }
}

/// The content of a module's file, unpacked: the agent hands it to the kernel as it is.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn contents(tree: &Tree, path: &str) -> Result<Vec<u8>, String> {
    unpack_all(&*tree.read(path)?, MOST_MODULE_BYTES).map_err(|error| format!("{path}: {error}"))
}

/// Puts modules into the order of loading, without recursion: the depth of a hostile kernel is not limited.
struct Order<'a> {
    kernel: &'a Kernel,
    done: Vec<String>,
    open: Vec<(String, bool)>,
    /// Whether a module is finished.
    known: BTreeMap<String, bool>,
}

impl Order<'_> {
    fn add(&mut self, name: &str) -> Result<(), String> {
        self.open.push((name.to_owned(), false));
        while let Some((name, leave)) = self.open.pop() {
            if leave {
                self.known.insert(name.clone(), true);
                self.done.push(name);
                continue;
            }
            match self.known.get(&name) {
                Some(true) => continue,
                Some(false) => return Err(format!("the kernel module {name} needs itself")),
                None => {}
            }
            let Some(module) = self.kernel.modules.get(&name) else { continue };
            self.known.insert(name.clone(), false);
            self.open.push((name.clone(), true));
            for other in &module.needs {
                let present = self.kernel.modules.contains_key(other);
                if !present && !self.kernel.builtin.contains(other) {
                    return Err(format!("the kernel module {name} needs {other}, which is not there"));
                }
                if present && self.known.get(other) != Some(&true) {
                    self.open.push((other.clone(), false));
                }
            }
            // A soft dependency helps and is never required; in a circle it is left out.
            for other in &module.soft {
                let open = |name: &String| self.known.get(name) == Some(&false);
                if !self.known.contains_key(other) && !self.kernel.needed(other).iter().any(open) {
                    self.open.push((other.clone(), false));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
