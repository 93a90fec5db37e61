//! The form of an image file, by its first bytes. File names are not looked at: they are often wrong.

use std::fmt;

/// How a file holds the image of a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// The sectors of the disk one after another.
    Raw,
    /// [`Form::Raw`] in members of gzip.
    Gzip,
    /// [`Form::Raw`] in frames of zstd.
    Zstd,
    /// The format of QEMU, version 2 or 3.
    Qcow2,
}

/// A file whose form is known and not supported.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("it is {name}, which is not read; convert it first: qemu-img convert -O raw FILE disk.raw")]
pub struct UnknownForm {
    name: &'static str,
}

impl Form {
    /// The bytes of a file that [`Form::of`] looks at.
    pub const BEGINNING: usize = 512;

    /// The form of a file that begins with these bytes. What has no known beginning is taken as raw.
    ///
    /// # Errors
    /// Returns the name of a form that is known and not supported.
    pub fn of(beginning: &[u8]) -> Result<Self, UnknownForm> {
        const OTHERS: [(usize, &[u8], &str); 9] = [
            (0, b"KDMV", "a VMDK of VMware"),
            (0, b"# Disk DescriptorFile", "the description of a VMDK of VMware"),
            (0, b"vhdxfile", "a VHDX of Hyper-V"),
            (0, b"conectix", "a VHD of Hyper-V"),
            (0x40, &[0x7f, 0x10, 0xda, 0xbe], "a VDI of VirtualBox"),
            (0, b"QED\0", "a QED of QEMU"),
            (0, &[0xfd, b'7', b'z', b'X', b'Z', 0], "compressed with xz"),
            (0, b"BZh", "compressed with bzip2"),
            (0, b"PK\x03\x04", "a ZIP archive"),
        ];
        let has = |at: usize, magic: &[u8]| beginning.get(at..at + magic.len()) == Some(magic);
        if has(0, b"QFI\xfb") {
            return Ok(Self::Qcow2);
        }
        if has(0, &[0x1f, 0x8b]) {
            return Ok(Self::Gzip);
        }
        if beginning.first_chunk().is_some_and(|magic| crate::unpack::is_zstd(*magic)) {
            return Ok(Self::Zstd);
        }
        match OTHERS.into_iter().find(|(at, magic, _)| has(*at, magic)) {
            Some((_, _, name)) => Err(UnknownForm { name }),
            None => Ok(Self::Raw),
        }
    }

    /// The name as documents have it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Qcow2 => "qcow2",
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_recognised_by_the_first_bytes() {
        for (beginning, form) in [
            (&b"QFI\xfb\0\0\0\x03"[..], Form::Qcow2),
            (&[0x1f, 0x8b, 8], Form::Gzip),
            (&[0x28, 0xb5, 0x2f, 0xfd], Form::Zstd),
            (&[0x5a, 0x2a, 0x4d, 0x18], Form::Zstd),
            (&[0xeb, 0x63, 0x90], Form::Raw),
            (b"", Form::Raw),
        ] {
            assert_eq!(Form::of(beginning), Ok(form), "{beginning:?}");
        }
    }

    #[test]
    fn a_known_form_that_is_not_read_is_named_with_the_command_that_converts_it() {
        let mut vdi = vec![0; 0x44];
        vdi[0x40..].copy_from_slice(&[0x7f, 0x10, 0xda, 0xbe]);
        for (beginning, name) in
            [(&b"KDMV\x01"[..], "VMDK"), (b"vhdxfile", "VHDX"), (&vdi, "VDI"), (b"\xfd7zXZ\0", "xz")]
        {
            let refused = Form::of(beginning).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("qemu-img convert"), "{refused}");
        }
    }
}
