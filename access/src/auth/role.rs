//! Roles and the permissions that follow from them.
//!
//! ```text
//!                 own account   read   operate   administer   report
//!  admin               x          x       x          x
//!  operator            x          x       x
//!  viewer              x          x
//!  report-only         x                                          x     API tokens only
//!  registry-only       x                                                API tokens only; their registry scopes
//! ```
//!
//! What a role may do in the registry is decided by its policy, for which the role is a group; the limits of a token are in
//! `limits`. The table is golden: `golden/roles.txt`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The role of a user or a program, from which its permissions follow.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    PartialEq,
    Serialize,
    schemars::JsonSchema,
    strum::IntoStaticStr,
    strum::EnumString,
    strum::Display,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = UnknownName, parse_err_fn = unknown_role)]
pub enum Role {
    /// All permissions of the API.
    Admin,
    /// Reads everything, and operates servers, jobs and batches.
    Operator,
    /// Reads everything.
    Viewer,
    /// Sends installation reports and does nothing else; for API tokens.
    ReportOnly,
    /// Does in the registry what its scopes say and nothing else; for API tokens.
    RegistryOnly,
}

impl Role {
    /// Whether this role has a permission.
    pub fn allows(self, permission: Permission) -> bool {
        use Permission::{Administer, Operate, OwnAccount, Read, Report};
        match self {
            Self::Admin => matches!(permission, OwnAccount | Read | Operate | Administer),
            Self::Operator => matches!(permission, OwnAccount | Read | Operate),
            Self::Viewer => matches!(permission, OwnAccount | Read),
            Self::ReportOnly => matches!(permission, OwnAccount | Report),
            Self::RegistryOnly => matches!(permission, OwnAccount),
        }
    }

    /// Whether a user or a JWT can have this role; the other roles are for API tokens.
    pub fn is_for_users(self) -> bool {
        matches!(self, Self::Admin | Self::Operator | Self::Viewer)
    }

    /// The name in the database, in a JWT and on the command line.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The permission that a route requires.
#[derive(Clone, Copy, Debug, Eq, PartialEq, strum::VariantArray)]
pub enum Permission {
    /// Seeing and changing the caller's own login.
    OwnAccount,
    /// Reading: jobs, servers, events, status and metrics.
    Read,
    /// Operating: creating and controlling jobs, changing servers, draining, talking to BMCs.
    Operate,
    /// Administering: users, tokens, webhooks, the registry, and what an image of a job contains.
    Administer,
    /// Sending installation reports.
    Report,
}

/// A name that is not in a list of known names. The error does not repeat the name: it may be a misplaced secret.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("unknown {what}; use one of: {known}")]
pub struct UnknownName {
    pub(super) what: &'static str,
    pub(super) known: &'static str,
}

fn unknown_role(_: &str) -> UnknownName {
    UnknownName { what: "role", known: "admin, operator, viewer, report-only, registry-only" }
}
