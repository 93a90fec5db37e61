//! Sealing of columns that may contain secrets: recipes, inputs of runs, URLs.
//!
//! ```text
//!   write   text ── seal_text(text, 'jobs/ID/recipe_json') ──> sealed:v1:…   in the row, the WAL and every copy of the database
//!   read    sealed:v1:… ── open_text(sealed, 'jobs/ID/recipe_json') ──> text, or NULL with another key, row or column
//! ```
//!
//! The two functions are SQL functions of each connection, so that no value passes unsealed between a statement and the file. A
//! store without a [`TextSeal`] keeps the texts as they are; the controller always has one.
//!
//! A sealed text names the version of its key. [`SEALED`] lists every column with sealed texts, and what the context of each is.
//!
//! Invariants
//! - The context names table, row and column, so a sealed text that is copied to another row cannot be opened there.
//! - A text that was sealed before its transaction passes `reseal_text` there: when the key was rotated meanwhile, the row gets the
//!   text sealed with the version in force. So no transaction after a rotation writes a text of a former version.

use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};

use super::error::StoreError;

/// Seals and opens texts. The controller implements it with its master key.
pub trait TextSeal: Send + Sync {
    /// Seals a text for one place.
    ///
    /// # Errors
    /// Why the text cannot be sealed; it does not repeat the text.
    fn seal(&self, context: &str, text: &str) -> Result<String, String>;
    /// Opens a text that was sealed for this place; `None` when it was sealed with another key or for another place.
    fn open(&self, context: &str, sealed: &str) -> Option<String>;
    /// Seals a text again with the version in force. `None` when that version sealed it, or when it cannot be opened.
    fn reseal(&self, purpose: SealPurpose, context: &str, sealed: &str) -> Option<String>;
    /// The version of the key with which a text is sealed; `None` for a text that is not sealed.
    fn key_of(&self, sealed: &str) -> Option<String>;
    /// The version of the key that is in force.
    fn in_force(&self) -> String;
}

/// The purpose of a sealed text. Texts of different purposes are sealed with different keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SealPurpose {
    /// A credential: the password of a BMC, the secret of a webhook.
    Credential,
    /// A text that `seal_text` sealed.
    Text,
    /// The recorded inputs of an image.
    MediaInputs,
    /// An open BMC session.
    Session,
}

impl SealPurpose {
    const ALL: [Self; 4] = [Self::Credential, Self::Text, Self::MediaInputs, Self::Session];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Credential => "credential",
            Self::Text => "text",
            Self::MediaInputs => "media-inputs",
            Self::Session => "session",
        }
    }
}

/// A column with sealed texts.
pub(super) struct SealedColumn {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
    pub(super) purpose: SealPurpose,
    /// The context of a row, as SQL over its columns.
    pub(super) context: &'static str,
    /// Whether a row is of no use when its text cannot be opened.
    pub(super) disposable: bool,
}

impl SealedColumn {
    const fn kept(
        table: &'static str,
        column: &'static str,
        purpose: SealPurpose,
        context: &'static str,
    ) -> Self {
        Self { table, column, purpose, context, disposable: false }
    }
}

/// Every column with sealed texts.
pub(super) const SEALED: [SealedColumn; 9] = [
    SealedColumn::kept("servers", "bmc_password", SealPurpose::Credential, "serial"),
    SealedColumn::kept("webhooks", "secret", SealPurpose::Credential, "'webhook/' || id"),
    SealedColumn::kept("webhooks", "url", SealPurpose::Text, "'webhooks/' || id || '/url'"),
    SealedColumn::kept("jobs", "recipe_json", SealPurpose::Text, "'jobs/' || id || '/recipe_json'"),
    SealedColumn::kept(
        "jobs",
        "maintenance_iso_url",
        SealPurpose::Text,
        "'jobs/' || id || '/maintenance_iso_url'",
    ),
    SealedColumn::kept("run_inputs", "input", SealPurpose::Text, "'run_inputs/' || run || '/input'"),
    SealedColumn::kept(
        "media_inputs",
        "inputs",
        SealPurpose::MediaInputs,
        "'media-grant/' || (SELECT run FROM media_grants WHERE id = media_grant)",
    ),
    SealedColumn::kept("signing_keys", "sealed", SealPurpose::Text, "'signing_keys/' || id || '/sealed'"),
    SealedColumn {
        table: "bmc_sessions",
        column: "sealed",
        purpose: SealPurpose::Session,
        context: "'bmc-session/' || server || '/' || (SELECT bmc_address FROM servers WHERE serial = server)",
        // The address of the BMC has changed: no controller can close the session.
        disposable: true,
    },
];

/// Defines the SQL functions of sealing on a connection. NULL stays NULL.
///
/// ```text
/// seal_text(text, context)               the sealed text
/// open_text(sealed, context)             the text, or NULL
/// reseal_text(sealed, purpose, context)  sealed with the version in force; unchanged when it cannot be opened
/// seal_key(sealed)                       the version that sealed it, or NULL
/// stale_key(sealed)                      the version that sealed it when another one is in force, or NULL
/// ```
pub(super) fn attach(connection: &Connection, seal: Option<&Arc<dyn TextSeal>>) -> rusqlite::Result<()> {
    let failed = |why: String| rusqlite::Error::UserFunctionError(why.into());
    let sealing = seal.cloned();
    connection.create_scalar_function("seal_text", 2, FunctionFlags::SQLITE_UTF8, move |call| {
        let Some((text, context)) = arguments(call)? else { return Ok(None) };
        match &sealing {
            Some(seal) => seal.seal(context, text).map(Some).map_err(failed),
            None => Ok(Some(text.to_owned())),
        }
    })?;
    let opening = seal.cloned();
    connection.create_scalar_function("open_text", 2, FunctionFlags::SQLITE_UTF8, move |call| {
        let Some((text, context)) = arguments(call)? else { return Ok(None) };
        Ok(match &opening {
            Some(seal) => seal.open(context, text),
            None => Some(text.to_owned()),
        })
    })?;
    let resealing = seal.cloned();
    connection.create_scalar_function("reseal_text", 3, FunctionFlags::SQLITE_UTF8, move |call| {
        let Some(text) = call.get_raw(0).as_str_or_null()? else { return Ok(None) };
        let purpose = call.get_raw(1).as_str()?;
        let purpose = SealPurpose::ALL.into_iter().find(|known| known.as_str() == purpose);
        let purpose = purpose.ok_or_else(|| failed("this purpose of sealing is unknown".to_owned()))?;
        // Without a context (a row that refers to nothing) the text cannot be opened.
        let context = call.get_raw(2).as_str_or_null()?;
        let again =
            resealing.as_ref().zip(context).and_then(|(seal, context)| seal.reseal(purpose, context, text));
        Ok(Some(again.unwrap_or_else(|| text.to_owned())))
    })?;
    let (naming, comparing) = (seal.cloned(), seal.cloned());
    connection.create_scalar_function("seal_key", 1, FunctionFlags::SQLITE_UTF8, move |call| {
        let text = call.get_raw(0).as_str_or_null()?;
        Ok(text.zip(naming.as_ref()).and_then(|(text, seal)| seal.key_of(text)))
    })?;
    connection.create_scalar_function("stale_key", 1, FunctionFlags::SQLITE_UTF8, move |call| {
        let text = call.get_raw(0).as_str_or_null()?;
        let key = text
            .zip(comparing.as_ref())
            .and_then(|(text, seal)| seal.key_of(text).filter(|key| *key != seal.in_force()));
        Ok(key)
    })
}

/// Defines `seal_key(sealed)` on a connection without a key.
pub(super) fn attach_key_of(
    connection: &Connection,
    key_of: fn(&str) -> Option<String>,
) -> rusqlite::Result<()> {
    connection.create_scalar_function("seal_key", 1, FunctionFlags::SQLITE_UTF8, move |call| {
        Ok(call.get_raw(0).as_str_or_null()?.and_then(key_of))
    })
}

fn arguments<'a>(call: &'a Context<'_>) -> rusqlite::Result<Option<(&'a str, &'a str)>> {
    let text = call.get_raw(0).as_str_or_null()?;
    Ok(text.zip(call.get_raw(1).as_str_or_null()?))
}

/// The error of a sealed column that cannot be opened.
pub(super) fn unopened(operation: &'static str, column: &'static str) -> StoreError {
    StoreError::Corrupt {
        operation,
        column,
        detail: "it was sealed with another master key or for another row; restore the master key of this database".to_owned(),
    }
}
