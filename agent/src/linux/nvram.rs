//! The firmware's boot entries: variables `Boot####` and `BootOrder` in efivarfs.
//!
//! ```text
//! file NAME-GUID: 4 bytes attributes | data
//! Boot####   attributes 4 | length of path 2 | description UTF-16, 0 | HD(part, first, count, GUID) File(\EFI\…) End
//! BootOrder  numbers of 2 bytes
//! ```
//!
//! The entry is a convenience: the loader at `EFI/BOOT` starts without it. So a refused variable is a warning.
//!
//! Invariants: a `BootOrder` that exists and cannot be read is not written. Only entries whose partition was on the wiped
//! disk are deleted. UEFI 2.10 sections 3.1.3 and 10.3.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::PathBuf,
};

use rustix::fs::IFlags;
use uuid::Uuid;

const GLOBAL: &str = "8be4df61-93ca-11d2-aa0d-00e098032b8c";
/// Non-volatile, for boot services and for the running system.
const ATTRIBUTES: u32 = 7;
const MAX_VARIABLE: u64 = 64 * 1024;
const MAX_ENTRIES: usize = 1024;

/// An entry that starts a file of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvramEntry {
    /// The text that the menu of the firmware shows.
    pub description: String,
    /// The number of the partition.
    pub partition: u32,
    /// The first sector of the partition.
    pub first_lba: u64,
    /// The number of sectors of the partition.
    pub sectors: u64,
    /// The GUID of the partition.
    pub guid: Uuid,
    /// The path of the file with backslashes.
    pub file: String,
}

impl NvramEntry {
    /// Returns the bytes of an EFI_LOAD_OPTION.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let utf16 =
            |text: &str| -> Vec<u8> { text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect() };
        let mut path = vec![4, 1, 42, 0];
        path.extend(self.partition.to_le_bytes());
        path.extend(self.first_lba.to_le_bytes());
        path.extend(self.sectors.to_le_bytes());
        path.extend(self.guid.to_bytes_le());
        path.extend([2, 2]);
        let file = utf16(&self.file);
        path.extend([4, 4]);
        path.extend(u16::try_from(file.len() + 4).unwrap_or(u16::MAX).to_le_bytes());
        path.extend(file);
        path.extend([0x7f, 0xff, 4, 0]);
        let mut option = 1_u32.to_le_bytes().to_vec();
        option.extend(u16::try_from(path.len()).unwrap_or(u16::MAX).to_le_bytes());
        option.extend(utf16(&self.description));
        option.extend(path);
        option
    }
}

/// Returns the GUID of the GPT partition that a load option names, if it names one.
pub(crate) fn partition_of(option: &[u8]) -> Option<Uuid> {
    let length = usize::from(u16::from_le_bytes([*option.get(4)?, *option.get(5)?]));
    let mut at = 6;
    while option.get(at..at + 2)? != [0, 0] {
        at += 2;
    }
    let path = option.get(at + 2..(at + 2).checked_add(length)?)?;
    let mut at = 0;
    loop {
        let node = path.get(at..at + 4)?;
        let size = usize::from(u16::from_le_bytes([node[2], node[3]]));
        if node[0] == 0x7f || size < 4 {
            return None;
        }
        let body = path.get(at..at.checked_add(size)?)?;
        if node[..2] == [4, 1] && size == 42 && body[41] == 2 {
            return <[u8; 16]>::try_from(&body[24..40]).ok().map(Uuid::from_bytes_le);
        }
        at += size;
    }
}

/// The variables of a firmware.
#[derive(Debug)]
pub struct Nvram {
    folder: PathBuf,
}

impl Nvram {
    /// Uses the variables in a folder of efivarfs.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Makes the entry the first of the boot order, and deletes entries whose partition is one of `gone`. Returns its number.
    ///
    /// # Errors
    /// Returns a sentence when the firmware refuses a variable.
    pub fn install(&self, entry: &NvramEntry, gone: &[Uuid]) -> Result<u16, String> {
        let failed = |what: &str, source: io::Error| format!("{what}: {source}");
        let order = match self.read("BootOrder") {
            Ok(bytes) => bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect(),
            Err(source) if source.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(failed("reading BootOrder", source)),
        };
        let wanted = entry.encode();
        let (mut known, mut own) = (Vec::new(), None);
        for number in self.numbers().map_err(|source| failed("listing the boot entries", source))? {
            let Ok(option) = self.read(&name(number)) else {
                known.push(number);
                continue;
            };
            let partition = partition_of(&option);
            if option == wanted && own.is_none() {
                own = Some(number);
                known.push(number);
            } else if partition.is_some_and(|guid| guid == entry.guid || gone.contains(&guid)) {
                self.delete(&name(number))
                    .map_err(|source| failed("deleting an entry of the old system", source))?;
            } else {
                known.push(number);
            }
        }
        let number = match own {
            Some(number) => number,
            None => {
                let free = (0..=u16::MAX).find(|number| !known.contains(number));
                let number = free.ok_or("the firmware has no free boot entry")?;
                self.write(&name(number), &wanted)
                    .map_err(|source| failed("writing the boot entry", source))?;
                known.push(number);
                number
            }
        };
        let rest = order.iter().copied().filter(|other| *other != number && known.contains(other));
        let new: Vec<u16> = std::iter::once(number).chain(rest).collect();
        if new != order {
            let bytes: Vec<u8> = new.iter().flat_map(|number| number.to_le_bytes()).collect();
            self.write("BootOrder", &bytes).map_err(|source| failed("writing BootOrder", source))?;
        }
        Ok(number)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}-{GLOBAL}"))
    }

    fn numbers(&self) -> io::Result<Vec<u16>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(64 * MAX_ENTRIES) {
            let file = entry?.file_name();
            let Some(name) = file.to_str().and_then(|text| text.strip_suffix(GLOBAL)) else { continue };
            let digits = name.strip_prefix("Boot").and_then(|rest| rest.strip_suffix('-'));
            let number = digits.filter(|digits| digits.len() == 4);
            numbers.extend(number.and_then(|digits| u16::from_str_radix(digits, 16).ok()));
        }
        numbers.sort_unstable();
        numbers.truncate(MAX_ENTRIES);
        Ok(numbers)
    }

    /// Returns the data of a variable without its attributes.
    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.path(name))?.take(MAX_VARIABLE).read_to_end(&mut bytes)?;
        if bytes.len() < 4 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a variable has no attributes"));
        }
        Ok(bytes.split_off(4))
    }

    fn write(&self, name: &str, data: &[u8]) -> io::Result<()> {
        self.unlock(name);
        let mut bytes = ATTRIBUTES.to_le_bytes().to_vec();
        bytes.extend(data);
        // One write is one SetVariable. Truncation would be a write of its own, which the kernel refuses.
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).open(self.path(name))?;
        let written = file.write(&bytes)?;
        if written == bytes.len() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::WriteZero, "the variable was not written whole"))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        self.unlock(name);
        fs::remove_file(self.path(name))
    }

    /// Linux marks variables as immutable against `rm -r`. File systems without this mark have nothing to remove.
    fn unlock(&self, name: &str) {
        if let Ok(file) = File::open(self.path(name))
            && let Ok(flags) = rustix::fs::ioctl_getflags(&file)
            && flags.contains(IFlags::IMMUTABLE)
        {
            let _ = rustix::fs::ioctl_setflags(&file, flags - IFlags::IMMUTABLE);
        }
    }
}

fn name(number: u16) -> String {
    format!("Boot{number:04X}")
}
