//! Checks which files of a catalogue can be added: the file is in the folder, has the stated length and checksum, and is
//! described completely.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component as Part, Path, PathBuf};

use md5::Md5;
use sha2::{Digest, Sha256};

use super::{Checksum, Listed};
use crate::file::{FileName, FirmwareFile, MAX_MODELS, Sha256Digest};
use crate::identity::{Component, InvalidIdentity, Model};

const PIECE: usize = 1 << 20;

/// The models and the component that the operator adds to a catalogue that does not state them.
#[derive(Clone, Debug, Default)]
pub struct Additions {
    /// The models of files without a model.
    pub models: BTreeSet<Model>,
    /// The component of files without a component.
    pub component: Option<Component>,
}

/// Why a file of a catalogue is not added.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueProblem {
    /// The file is not in the folder.
    #[error("the file is not in the folder")]
    Missing,
    /// The path of the catalogue leaves the folder.
    #[error("the path leaves the folder")]
    Outside,
    /// The length differs from the catalogue.
    #[error("the file has {actual} bytes, the catalogue says {stated}; download it again")]
    OtherSize {
        /// The length in the catalogue.
        stated: u64,
        /// The length of the file.
        actual: u64,
    },
    /// The checksum differs from the catalogue.
    #[error("the checksum is not that of the catalogue; download the file again")]
    OtherChecksum,
    /// The catalogue states no model.
    #[error("the catalogue states no model; give --for-model")]
    NoModel,
    /// There are more models than a file can have.
    #[error(
        "the file is for more than {MAX_MODELS} models; add it with `shoal firmware add` for the models that you have"
    )]
    TooManyModels,
    /// The catalogue states no known component.
    #[error("the catalogue states no known component; give --for-component")]
    NoComponent,
    /// A value is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidIdentity),
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// A file that can be added.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckResult {
    /// The file on disk.
    pub path: PathBuf,
    /// The description of the file.
    pub file: FirmwareFile,
    /// Whether the catalogue has a checksum, which the file has.
    pub verified: bool,
}

/// The result of a check.
pub type Checked = Result<CheckResult, CatalogueProblem>;

/// Checks one file of a catalogue in its folder. The file is read once. Blocks on the disk.
///
/// # Errors
/// [`CatalogueProblem`]: why the file is not added.
pub fn check(folder: &Path, listed: &Listed, additions: &Additions) -> Checked {
    let path = place(folder, &listed.path)?;
    let component = listed.component.or(additions.component).ok_or(CatalogueProblem::NoComponent)?;
    let stated = listed.models(Some(component));
    let models = if stated.is_empty() { additions.models.clone() } else { stated };
    if models.is_empty() {
        return Err(CatalogueProblem::NoModel);
    }
    if models.len() > MAX_MODELS {
        return Err(CatalogueProblem::TooManyModels);
    }
    let mut file = File::open(&path)?;
    let length = file.metadata()?.len();
    if let Some(stated) = listed.size.filter(|stated| *stated != length) {
        return Err(CatalogueProblem::OtherSize { stated, actual: length });
    }
    let (sha256, md5, size) = digests(&mut file)?;
    let matches = match listed.checksum {
        Some(Checksum::Md5(stated)) => stated == md5,
        Some(Checksum::Sha256(stated)) => stated == sha256,
        None => true,
    };
    if !matches {
        return Err(CatalogueProblem::OtherChecksum);
    }
    let name: FileName = path.file_name().unwrap_or_default().to_string_lossy().parse()?;
    let of = (listed.vendor.clone(), models, component);
    let mut file = FirmwareFile::new(of, &listed.version, (name, sha256, size))?;
    file.restart = listed.restart.unwrap_or(file.restart);
    Ok(CheckResult { path, file, verified: listed.checksum.is_some() })
}

/// The file in the folder: at the path of the catalogue, else by its name.
fn place(folder: &Path, path: &str) -> Result<PathBuf, CatalogueProblem> {
    let path = PathBuf::from(path.replace('\\', "/"));
    if path.as_os_str().is_empty() || !path.components().all(|part| matches!(part, Part::Normal(_))) {
        return Err(CatalogueProblem::Outside);
    }
    let name = path.file_name().map(PathBuf::from).ok_or(CatalogueProblem::Outside)?;
    [path, name]
        .iter()
        .map(|path| folder.join(path))
        .find(|path| path.is_file())
        .ok_or(CatalogueProblem::Missing)
}

/// SHA-256, MD5 and length of a file.
fn digests(file: &mut File) -> io::Result<(Sha256Digest, [u8; 16], u64)> {
    let (mut sha256, mut md5, mut size) = (Sha256::new(), Md5::new(), 0);
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                sha256.update(&piece[..read]);
                md5.update(&piece[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((Sha256Digest::new(sha256.finalize().into()), md5.finalize().into(), size))
}
