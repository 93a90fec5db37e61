//! The card of the last probe of a BMC, kept beside what jobs observed.

use rusqlite::params;
use serde_json::Value;

use super::rows::{execute, first, to_json};
use super::{Store, StoreError};
use model::{Serial, Time};

/// The card of the last probe of a BMC.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredCard {
    /// When the probe was made.
    pub probed_at: Time,
    /// The card.
    pub card: Value,
}

impl Store {
    /// The card of the last probe of a server's BMC; `None` before the first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn card(&self, serial: &Serial) -> Result<Option<StoredCard>, StoreError> {
        const OPERATION: &str = "read the card of a BMC";
        let serial = serial.clone();
        self.read(OPERATION, move |connection| {
            let sql = "SELECT probed_at, card FROM server_observed WHERE serial = ?1 AND card IS NOT NULL";
            first(connection, OPERATION, sql, &[&serial.as_str()], |columns| {
                Ok(StoredCard { probed_at: columns.time("probed_at")?, card: columns.json("card")? })
            })
        })
        .await
    }

    /// Keeps the card of a probe. A server that was deleted meanwhile, or whose record is no longer at `revision`, is left out.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_card(
        &self,
        serial: &Serial,
        revision: i64,
        card: &Value,
        now: Time,
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "keep the card of a BMC";
        let (serial, card) = (serial.clone(), to_json(OPERATION, card)?);
        self.writer
            .write(OPERATION, move |connection| {
                let kept = execute(
                    connection,
                    OPERATION,
                    "INSERT INTO server_observed (serial, card, probed_at)
                     SELECT serial, ?3, ?4 FROM servers WHERE serial = ?1 AND revision = ?2
                     ON CONFLICT (serial) DO UPDATE SET card = excluded.card, probed_at = excluded.probed_at",
                    params![serial.as_str(), revision, card, now.to_string()],
                )?;
                // A card of another address, which the server no longer has, says nothing about this one.
                if kept == 0 { Ok(()) } else { super::servers::seen(connection, &serial, now) }
            })
            .await
    }
}
