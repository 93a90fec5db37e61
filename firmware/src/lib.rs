//! Firmware: files, sets of files, and the plan of an installation. Pure except for reading the bytes that it hashes.
//!
//! ```text
//!   catalogue of a vendor --catalogue--> listed files ─┐
//!   file + vendor, models, component, version ─────────┴─> FirmwareFile <--artifact--> manifest in a registry
//!                                                              |
//!                      FirmwareSet: one file per component, vendor and model
//!                                                              |
//!   Installed (components of one server) + FirmwareSet + PlanOptions --plan--> install, skip or refuse, in order
//!                                                              |
//!                      VerifiedFirmware: its bytes were hashed; only these may be sent to a BMC
//! ```
//!
//! The crate knows no registry, no database, no HTTP and no BMC. From `redfish` it takes [`FirmwareVersion`], the text of a
//! version as a BMC shows it, because a plan compares such texts.
//!
//! Invariants
//! - A set has at most one file for a component of a model of a vendor.
//! - A plan is the same for every order of its inputs, and a plan made after its installation installs nothing.
//! - Two versions have an order only if both have numbers. An order is never made up.
//! - A [`VerifiedFirmware`] exists only after its bytes were read and have the recorded digest and size.

mod artifact;
pub mod catalogue;
mod file;
#[doc(hidden)]
pub mod fuzz;
mod identity;
mod plan;
mod recognise;
mod set;
mod verified;
mod version;

#[cfg(test)]
mod tests;

pub use artifact::{
    ARTIFACT_TYPE, ArtifactError, EMPTY_CONFIG, FILE_TYPE, MANIFEST_TYPE, REPOSITORIES, manifest,
    read_manifest, repository, tag,
};
pub use file::{FileName, FirmwareFile, Restart, Sha256Digest};
pub use identity::{Component, InvalidIdentity, Model, Vendor};
pub use plan::{
    Installed, Plan, PlanDecision, PlanOptions, PlannedItem, Refusal, ServerFirmware, SkipReason, plan,
};
pub use recognise::{OwnVersions, Recognised, ShownFirmware, candidates, recognise, running};
pub use redfish::FirmwareVersion;
pub use set::{Entry, FirmwareSet, MAX_FILES, MatchError, SetError, SetName, choose};
pub use verified::{VerifiedFirmware, VerifyError};
pub use version::{VersionOrder, compare};
