//! The two things that are read of an ELF file: the libraries a program needs, and the `.modinfo` section of a kernel module.
//!
//! ```text
//! header (64) -> program headers -> PT_DYNAMIC -> DT_NEEDED, as offsets into the strings at DT_STRTAB
//!                                   PT_INTERP  -> the loader
//!             -> section headers -> ".modinfo" -> key=value\0key=value\0...
//! ```
//!
//! Only 64-bit little-endian files are read. Invariant: no offset, count or address of a file is used before a check; the work
//! is limited by the length of the file and by constants.

/// The most libraries of one program.
const MOST_NEEDED: usize = 256;
/// The most entries of a table that are looked at.
const MOST_ENTRIES: usize = 100_000;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// The files that a program needs to run.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Needs {
    /// The path of the loader; none for a static program.
    pub(crate) loader: Option<String>,
    /// The names of libraries.
    pub(crate) libraries: Vec<String>,
}

/// Whether the file begins like an ELF file.
pub(crate) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// Reads what a program or library needs.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn needs(bytes: &[u8]) -> Result<Needs, &'static str> {
    let file = Elf::new(bytes)?;
    let mut segments = Vec::new();
    for number in 0..usize::from(file.u16(56)?) {
        let at = file.entry(file.u64(32)?, usize::from(file.u16(54)?), number)?;
        segments.push((file.u32(at)?, file.u64(at + 8)?, file.u64(at + 16)?, file.u64(at + 32)?));
    }
    let mut needs = Needs::default();
    for &(kind, offset, _, length) in &segments {
        if kind == PT_INTERP {
            let text = file.range(offset, length)?;
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            needs.loader =
                Some(str::from_utf8(text).map_err(|_| "the loader's path is not text")?.to_owned());
        }
    }
    let Some(&(_, offset, _, length)) = segments.iter().find(|segment| segment.0 == PT_DYNAMIC) else {
        return Ok(needs);
    };
    let entries: Vec<(u64, u64)> = file
        .range(offset, length)?
        .chunks_exact(16)
        .take(MOST_ENTRIES)
        .map(|entry| (number(&entry[..8]), number(&entry[8..])))
        .take_while(|entry| entry.0 != 0)
        .collect();
    let Some((_, address)) = entries.iter().find(|entry| entry.0 == DT_STRTAB) else { return Ok(needs) };
    let strings = segments
        .iter()
        .filter(|segment| segment.0 == PT_LOAD)
        .find_map(|&(_, offset, start, length)| {
            let into = address.checked_sub(start).filter(|into| *into < length)?;
            offset.checked_add(into)
        })
        .ok_or("the names of libraries are in no segment")?;
    for (_, name) in entries.iter().filter(|entry| entry.0 == DT_NEEDED) {
        if needs.libraries.len() == MOST_NEEDED {
            return Err("the program names too many libraries");
        }
        needs.libraries.push(file.string(strings.checked_add(*name).ok_or(CUT)?)?.to_owned());
    }
    Ok(needs)
}

/// Reads the `key=value` pairs of a kernel module.
///
/// # Errors
/// A sentence that says what is wrong.
pub(crate) fn modinfo(bytes: &[u8]) -> Result<Vec<(&str, &str)>, &'static str> {
    let file = Elf::new(bytes)?;
    let (table, size, count) = (file.u64(40)?, usize::from(file.u16(58)?), usize::from(file.u16(60)?));
    let names = file.entry(table, size, usize::from(file.u16(62)?))?;
    let names = file.u64(names + 24)?;
    for number in 0..count {
        let at = file.entry(table, size, number)?;
        let name = names.checked_add(u64::from(file.u32(at)?)).ok_or(CUT)?;
        if file.string(name).is_ok_and(|name| name == ".modinfo") {
            let content = file.range(file.u64(at + 24)?, file.u64(at + 32)?)?;
            let pairs = content.split(|byte| *byte == 0).filter_map(|pair| str::from_utf8(pair).ok());
            return Ok(pairs.filter_map(|pair| pair.split_once('=')).collect());
        }
    }
    Err("it has no section .modinfo: it is no kernel module")
}

const CUT: &str = "the file is shorter than its tables";

struct Elf<'a>(&'a [u8]);

impl<'a> Elf<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, &'static str> {
        if !is_elf(bytes) {
            return Err("it is no ELF file");
        }
        if bytes.len() < 64 || bytes[4] != 2 || bytes[5] != 1 {
            return Err("it is no 64-bit little-endian ELF file");
        }
        Ok(Self(bytes))
    }

    fn range(&self, offset: u64, length: u64) -> Result<&'a [u8], &'static str> {
        let end = offset.checked_add(length).and_then(|end| usize::try_from(end).ok()).ok_or(CUT)?;
        // The end fits, so the beginning does.
        self.0.get(usize::try_from(offset).unwrap_or(usize::MAX)..end).ok_or(CUT)
    }

    /// The offset of an entry of a table.
    fn entry(&self, table: u64, size: usize, number: usize) -> Result<usize, &'static str> {
        let table = usize::try_from(table).map_err(|_| CUT)?;
        let at = size.checked_mul(number).and_then(|into| table.checked_add(into)).ok_or(CUT)?;
        // The readers of fields look at most 64 bytes further.
        if size < 56 || at.checked_add(size).is_none_or(|end| end > self.0.len()) {
            return Err(CUT);
        }
        Ok(at)
    }

    fn bytes(&self, at: usize, length: usize) -> Result<&'a [u8], &'static str> {
        at.checked_add(length).and_then(|end| self.0.get(at..end)).ok_or(CUT)
    }

    fn u16(&self, at: usize) -> Result<u16, &'static str> {
        // Two bytes fit.
        Ok(number(self.bytes(at, 2)?) as u16)
    }

    fn u32(&self, at: usize) -> Result<u32, &'static str> {
        // Four bytes fit.
        Ok(number(self.bytes(at, 4)?) as u32)
    }

    fn u64(&self, at: usize) -> Result<u64, &'static str> {
        Ok(number(self.bytes(at, 8)?))
    }

    /// The text that ends with a zero.
    fn string(&self, at: u64) -> Result<&'a str, &'static str> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).ok_or(CUT)?;
        let rest = &rest[..rest.len().min(4096)];
        let end = rest.iter().position(|byte| *byte == 0).ok_or("a name in it does not end")?;
        str::from_utf8(&rest[..end]).map_err(|_| "a name in it is not text")
    }
}

/// A little-endian number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::{module, program};

    #[test]
    fn the_libraries_and_the_loader_of_a_program_are_read() {
        let found = program(Some("/lib64/ld-linux-x86-64.so.2"), &["libc.so.6", "libz.so.1"]);
        let found = needs(&found).unwrap();
        assert_eq!(found.loader.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
        assert_eq!(found.libraries, ["libc.so.6", "libz.so.1"]);
        assert_eq!(needs(&program(None, &[])).unwrap(), Needs::default());
    }

    #[test]
    fn the_information_of_a_module_is_read() {
        let file = module(&["name=sd_mod", "depends=scsi_mod", "alias=scsi:t-0x00*", "no equals sign"]);
        let pairs = modinfo(&file).unwrap();
        assert_eq!(pairs, [("name", "sd_mod"), ("depends", "scsi_mod"), ("alias", "scsi:t-0x00*")]);
    }

    #[test]
    fn every_cut_and_every_changed_byte_gives_a_result_or_an_error() {
        for file in [module(&["name=a", "depends="]), program(Some("/ld"), &["libc.so.6"])] {
            for end in 0..file.len() {
                let _result = (modinfo(&file[..end]), needs(&file[..end]));
            }
            for at in 0..file.len() {
                for value in [0, 0x7f, 0xff] {
                    let mut changed = file.clone();
                    changed[at] = value;
                    let _result = (modinfo(&changed), needs(&changed));
                }
            }
        }
    }

    #[test]
    fn what_is_no_program_is_refused() {
        assert!(needs(b"#!/bin/sh").is_err());
        assert!(modinfo(&program(None, &[])).unwrap_err().contains("no kernel module"));
        let mut narrow = program(None, &[]);
        narrow[4] = 1;
        assert!(needs(&narrow).is_err());
    }
}
