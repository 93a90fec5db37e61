//! `shoal bmc probe` with a filter: the BMCs of many servers, read at once.

use serde_json::{Value, json};

use crate::connection::Client;
use crate::error::CliError;
use crate::many;
use crate::output::{Column, Output, join, text};
use crate::progress::Progress;

/// The number of BMCs that are read at the same time.
const AT_ONCE: usize = 8;

/// A server and the card of its BMC, or the error of a BMC that could not be read.
struct Probed {
    serial: String,
    card: Result<Value, CliError>,
}

/// Reads the BMCs of the servers of a filter and shows a row for each; fails if one could not be read.
pub(super) async fn probe_all(
    filter: &str,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let serials = many::some_serials(filter, client).await?;
    let count = serials.len();
    let probes = serials.into_iter().map(async |serial| Ok(probe(client, serial).await));
    let probed = Progress::of_things("reading BMCs").each(probes, AT_ONCE, output.err).await?;
    let failed = probed.iter().filter(|probed| probed.card.is_err()).count();
    if output.json {
        probed.iter().try_for_each(|probed| output.row(&probed.document()))?;
    } else {
        show(&probed, output)?;
    }
    match failed {
        0 => Ok(()),
        failed => Err(CliError::failed(format!(
            "{failed} of {count} BMCs could not be read; `shoal bmc doctor SERIAL` shows why and what to do"
        ))),
    }
}

async fn probe(client: &Client, serial: String) -> Probed {
    let card = client.post_slow(&["servers", &serial, "probe"], &[]).await.map(|response| response.body);
    Probed { serial, card }
}

impl Probed {
    fn document(&self) -> Value {
        match &self.card {
            Ok(card) => json!({ "serial": self.serial, "card": card }),
            Err(error) => json!({ "serial": self.serial, "error": error.to_string() }),
        }
    }

    fn row(&self) -> Vec<String> {
        let Ok(card) = &self.card else {
            let why = self.card.as_ref().err().map(CliError::to_string).unwrap_or_default();
            return vec![
                self.serial.clone(),
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                why,
            ];
        };
        let of = |pointer: &str| text(card, pointer);
        vec![
            self.serial.clone(),
            join(&[of("/identity/manufacturer"), of("/identity/model")], " "),
            join(&[of("/identity/bmc_model"), of("/identity/bmc_firmware")], " "),
            of("/host/power"),
            of("/slot_plan/plan"),
            of("/slot_plan/reason"),
        ]
    }
}

fn show(probed: &[Probed], output: &mut Output<'_>) -> Result<(), CliError> {
    const COLUMNS: [Column<'_>; 6] = [
        Column::new("SERVER", 0),
        Column::new("MACHINE", 3),
        Column::new("BMC", 4),
        Column::new("HOST", 2),
        Column::new("SLOT PLAN", 1),
        Column::new("DETAIL", 5),
    ];
    let rows: Vec<Vec<String>> = probed.iter().map(Probed::row).collect();
    output.columns(&COLUMNS, &rows)
}
