//! The head of an ELF file: for which processor it is, and whether it needs a loader (System V ABI, chapter 5).
//!
//! ```text
//!   0x00 7f 'E' 'L' 'F' 2 (64 bit) 1 (little endian)   0x12 machine   0x20 offset of the program headers
//!   0x36 size of one header   0x38 their number        header: type at +0; 3 = PT_INTERP, the path of the loader
//! ```

/// The processor of a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Architecture {
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

impl Architecture {
    /// The name in a Debian package.
    pub fn debian(self) -> &'static str {
        self.oci()
    }

    /// The name in an OCI image.
    pub fn oci(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

const MAGIC: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
const PT_INTERP: u64 = 3;

/// The processor of a static program; otherwise what is wrong with it.
pub(crate) fn architecture(bytes: &[u8]) -> Result<Architecture, &'static str> {
    if bytes.get(..MAGIC.len()) != Some(&MAGIC[..]) {
        return Err("is no 64-bit ELF program");
    }
    let architecture = match number(bytes, 0x12, 2) {
        Some(62) => Architecture::Amd64,
        Some(183) => Architecture::Arm64,
        _ => return Err("is for a processor that is not packaged (amd64 and arm64 are)"),
    };
    let header = |at| number(bytes, at, 2).and_then(|number| usize::try_from(number).ok());
    let table = number(bytes, 0x20, 8).and_then(|at| usize::try_from(at).ok());
    let (Some(table), Some(size), Some(count)) = (table, header(0x36), header(0x38)) else {
        return Err("is cut off");
    };
    for index in 0..count {
        let at = index.checked_mul(size).and_then(|offset| table.checked_add(offset));
        match at.and_then(|at| number(bytes, at, 4)) {
            None => return Err("is cut off"),
            Some(PT_INTERP) => return Err("is not static: it needs a loader and libraries"),
            Some(_) => {}
        }
    }
    Ok(architecture)
}

/// A little-endian number of `length` bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(length)?)?;
    Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program of one header of this type.
    pub(crate) fn program(machine: u8, header: u8) -> Vec<u8> {
        let mut bytes = vec![0; 0x40 + 56];
        bytes[..6].copy_from_slice(&MAGIC);
        bytes[0x12] = machine;
        bytes[0x20] = 0x40;
        bytes[0x36] = 56;
        bytes[0x38] = 1;
        bytes[0x40] = header;
        bytes
    }

    #[test]
    fn a_program_that_needs_a_loader_or_is_cut_off_is_refused() {
        assert_eq!(architecture(&program(62, 1)), Ok(Architecture::Amd64));
        assert_eq!(architecture(&program(183, 1)), Ok(Architecture::Arm64));
        assert!(architecture(&program(62, 3)).unwrap_err().contains("not static"));
        assert!(architecture(&program(3, 1)).is_err());
        for length in 0..0x43 {
            assert!(architecture(&program(62, 1)[..length]).is_err(), "{length}");
        }
        assert!(architecture(b"#!/bin/sh\n").is_err());
    }
}
