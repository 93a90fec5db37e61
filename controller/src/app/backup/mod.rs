//! Backups: a copy of the data directory that is made while a controller runs, by a command or by the controller itself, and its
//! restoration (decision D26).
//!
//! ```text
//!   DESTINATION/
//!     backup.json               what the backup contains; written last
//!     SHA256SUMS                one line per file, as sha256sum writes it
//!     data/provisioner.db       the database of one moment, every server in it restored
//!     data/maintenance/*.iso    the maintenance images
//!     data/oci/...              the content and the records of the registry
//!     data/tag-times            when each tag of the registry was pushed
//!     data/master.key           only when requested
//!
//!   back up:  registry --> database --> library, and the registry again (what is new)  --> sums --> backup.json --> rename
//!   restore:  verify everything --> locks --> marker --> files --> sums compared --> marker removed
//! ```
//!
//! Invariants
//! - What the database of the backup refers to is in the backup. The registry is copied before the database (content that is deleted
//!   meanwhile is in the copy) and again after it (content that arrived meanwhile is added). Library images are never deleted.
//! - A backup that was not completed has another name and no `backup.json`. It is removed by the next backup with that name.
//! - A restore that was not completed leaves the marker. No controller starts on such a directory, and the next restore begins
//!   again.
//! - A restored tag is as old as it was, however the backup was copied: retention keeps the tags that it would have kept.
//! - The master key, without which no sealed BMC password can be read, is not part of a backup unless requested.
//! - A scheduled backup is verified before it has its name. What is removed afterwards is recorded as made by this controller, and the
//!   newest backup that is not damaged is never removed.
//!
//! | file | contents |
//! |---|---|
//! | `make`, `copy`, `registry`, `tag_times`, `partial` | a backup in a directory |
//! | `verify`, `restore`, `source` | its check, its restoration, and which backup a path or reference means |
//! | `remote` | backups in an OCI registry |
//! | `state`, `due` | what is recorded about the backups of this controller, and when the next one is due |
//! | `folder`, `target`, `service` | the controller makes, verifies and removes backups |
//! | `own` | which backups the controller of a data directory has made, for commands |
//! | `beside` | the warning that a lost disk takes the backups with the data |

mod beside;
mod copy;
mod due;
mod error;
mod folder;
mod make;
mod names;
mod own;
mod partial;
mod registry;
mod remote;
#[cfg(test)]
mod remote_tests;
mod restore;
mod series;
mod service;
#[cfg(test)]
mod service_tests;
mod source;
mod state;
mod summary;
mod tag_times;
mod target;
#[cfg(test)]
mod tests;
mod verify;
mod work;

pub use beside::{beside_data, beside_data_in_time};
pub use error::BackupError;
pub use folder::same_disk;
pub use make::back_up;
pub use own::{OwnBackups, own_backups};
pub use remote::RemoteBackupError;
pub(super) use restore::refuse_incomplete;
pub use restore::restore;
pub(super) use service::BackupService;
pub use source::BackupSource;
pub use summary::{BackupSummary, SeriesPlace};
pub use verify::verify;
