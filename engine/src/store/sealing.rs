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
//! Invariant: the context names table, row and column, so a sealed text that is copied to another row cannot be opened there.

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
}

/// Defines `seal_text(text, context)` and `open_text(text, context)` on a connection. NULL stays NULL.
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
