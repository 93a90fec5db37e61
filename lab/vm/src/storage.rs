//! The files of a machine, which stay between starts.
//!
//! ```text
//! FOLDER/SERIAL/            0700
//!     disk0.raw             sparse; only written blocks use space
//!     uefi-vars.fd          the variables of the firmware; secure-boot-vars.fd with Secure Boot
//!     console.log           what the machine printed
//! ```

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::{command::UefiFiles, spec::VmSpec};

/// The files of a machine could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A file or folder could not be made or read.
    #[error("preparing {} of the virtual machine", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A disk is larger than the size that was given.
    #[error(
        "the disk {} has {has} bytes, more than the {wanted} bytes that are wanted; give at least its size, or remove the file, \
         with all that is installed on it",
        path.display()
    )]
    Shrinks {
        /// The file.
        path: PathBuf,
        /// The length of the file in bytes.
        has: u64,
        /// The size that was given.
        wanted: u64,
    },
}

/// The files of one machine.
#[derive(Clone, Debug)]
pub(crate) struct VmFiles {
    folder: PathBuf,
}

impl VmFiles {
    /// Makes the folder of the machine below `folder`.
    pub(crate) fn open(folder: &Path, serial: &str) -> Result<Self, StorageError> {
        let folder = folder.join(serial);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(at(&folder))?;
        Ok(Self { folder })
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("console.log")
    }

    /// Makes the disks that do not exist. Existing disks keep their content; a disk that is too small grows.
    pub(crate) fn disks(&self, spec: &VmSpec) -> Result<Vec<PathBuf>, StorageError> {
        let disks = spec.disks.iter().enumerate();
        disks.map(|(index, size)| self.disk(&format!("disk{index}.raw"), size.bytes())).collect()
    }

    fn disk(&self, name: &str, wanted: u64) -> Result<PathBuf, StorageError> {
        let path = self.folder.join(name);
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(0o600);
        let file = options.open(&path).map_err(at(&path))?;
        let has = file.metadata().map_err(at(&path))?.len();
        if has > wanted {
            return Err(StorageError::Shrinks { path, has, wanted });
        }
        file.set_len(wanted).map_err(at(&path))?;
        Ok(path)
    }

    /// The files of UEFI firmware. The first start copies the template of the variables.
    pub(crate) fn uefi(
        &self,
        spec: &VmSpec,
        (code, template): &(PathBuf, PathBuf),
    ) -> Result<UefiFiles, StorageError> {
        let variables = self.folder.join(format!("{}-vars.fd", spec.firmware));
        if !variables.exists() {
            // Under another name first: a copy that was interrupted is not taken for variables.
            let unfinished = variables.with_extension("new");
            std::fs::copy(template, &unfinished).map_err(at(template))?;
            std::fs::rename(&unfinished, &variables).map_err(at(&variables))?;
        }
        Ok(UefiFiles { code: code.clone(), variables })
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> StorageError + use<> {
    let path = path.to_owned();
    |source| StorageError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::spec::DiskSize;

    fn spec(sizes: &[u64]) -> VmSpec {
        let sizes = sizes.iter().map(|&mib| DiskSize::new(mib << 20).unwrap()).collect();
        VmSpec::new("VM-1").unwrap().with_disks(sizes).unwrap()
    }

    #[test]
    fn disks_are_sparse_stay_and_grow_but_never_shrink() {
        let folder = tempfile::tempdir().unwrap();
        let files = VmFiles::open(folder.path(), "VM-1").unwrap();
        assert_eq!(folder.path().join("VM-1").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let disks = files.disks(&spec(&[1024, 64])).unwrap();
        assert_eq!(disks.len(), 2);
        let about = disks[0].metadata().unwrap();
        assert_eq!((about.len(), about.blocks()), (1 << 30, 0));
        std::fs::write(&disks[1], b"installed").unwrap();
        assert_eq!(files.disks(&spec(&[1024, 128])).unwrap(), disks);
        let kept = std::fs::read(&disks[1]).unwrap();
        assert!(kept.len() == 128 << 20 && kept.starts_with(b"installed"));
        let refused = files.disks(&spec(&[512])).unwrap_err().to_string();
        assert!(refused.contains("disk0.raw") && refused.contains("1073741824"), "{refused}");
    }

    #[test]
    fn the_variables_are_copied_once() {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("template.fd");
        std::fs::write(&template, b"new").unwrap();
        let files = VmFiles::open(folder.path(), "VM-1").unwrap();
        let ovmf = (PathBuf::from("/code.fd"), template);
        let uefi = files.uefi(&spec(&[1]), &ovmf).unwrap();
        assert_eq!(std::fs::read(&uefi.variables).unwrap(), b"new");
        std::fs::write(&uefi.variables, b"used").unwrap();
        let again = files.uefi(&spec(&[1]), &ovmf).unwrap();
        assert_eq!(std::fs::read(&again.variables).unwrap(), b"used");
    }
}
