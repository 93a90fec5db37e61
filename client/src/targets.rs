//! The servers of a command that takes one serial number or a filter: one request, or a preview and one request for each.
//!
//! ```text
//!   SERIAL                          the command as it is
//!   -l site=a                       preview: the servers that would be changed; nothing is sent
//!   -l site=a --yes                 one after the other; a line, with -o json a document, for each
//!   -l site=a, reading only         no consent: nothing is changed
//! ```
//!
//! Invariant: a refusal of one server is its row, and the others go on; the exit code is 0 only if all succeeded. A filter that selects nothing
//! is an error; a watch goes on, because later it may select something.

use clap::Args;

use super::connection::Client;
use super::error::CliError;
use super::many::{self, Selection, ServerFilter};
use super::output::Output;
use model::Subject;

/// Whether a command changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The command changes something: the servers of a filter are shown first.
    Changes,
    /// The command reads, or previews each server.
    Reads,
}

/// One server, or the servers of a filter.
#[derive(Args, Debug)]
pub(super) struct Targets {
    /// The serial number of the server; without it, the servers of a filter
    pub(super) serial: Option<String>,
    #[command(flatten)]
    selection: Selection,
}

impl Targets {
    /// Whether the servers are those of a filter.
    pub(super) fn are_filtered(&self) -> bool {
        self.selection.filter.is_given()
    }

    /// Runs a command for the one server, or for each of the filter. `verb` names it in the preview.
    pub(super) async fn each(
        &self,
        verb: &str,
        change: Change,
        client: &Client,
        output: &mut Output<'_>,
        run: impl AsyncFn(&str, &mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let serial = self.serial.as_deref();
        let filter = self.selection.or_one(Subject::Servers, serial, "serial number of the server")?;
        if let Some(serial) = serial {
            return run(serial, output).await;
        }
        let serials = match change {
            Change::Reads if output.record.is_some() => many::serials(&filter, client).await?,
            Change::Reads => many::some_serials(&filter, client).await?,
            Change::Changes => match self.selection.servers(verb, &filter, client, output).await? {
                Some(serials) => serials,
                None => return Ok(()),
            },
        };
        many::each(&serials, output, run).await
    }
}

/// One server, or the servers of `--filter`, `--state` and `--serial-glob`, for a command whose `--label` means something else.
#[derive(Args, Debug)]
pub(super) struct FilterTargets {
    /// The serial number of the server; without it, the servers of --filter, --state and --serial-glob
    #[arg(required_unless_present_any = ["filter", "state", "serial_glob"], conflicts_with_all = ["filter", "state", "serial_glob"])]
    serial: Option<String>,
    #[command(flatten)]
    filter: ServerFilter,
}

impl FilterTargets {
    /// Whether the servers are those of a filter.
    pub(super) fn are_filtered(&self) -> bool {
        self.serial.is_none()
    }

    /// Runs a command for the one server, or for each of the filter, as [`Targets::each`] does.
    pub(super) async fn each(
        &self,
        verb: &str,
        change: Change,
        client: &Client,
        output: &mut Output<'_>,
        run: impl AsyncFn(&str, &mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        if let Some(serial) = &self.serial {
            self.filter.expect_none()?;
            return run(serial, output).await;
        }
        let serials = match change {
            Change::Reads => self.filter.selected(client).await?,
            Change::Changes => match self.filter.servers(verb, false, client, output).await? {
                Some(serials) => serials,
                None => return Ok(()),
            },
        };
        many::each(&serials, output, run).await
    }
}
