//! Where users and API tokens are managed: through a running controller, or on a data directory that no controller uses.

use clap::Args;
use serde_json::Value;

use super::settings_args::SettingsArgs;
use access::accounts::AccountError;
use client::connection::{Client, ConnectionArgs};
use client::error::CliError;
use client::exit::Exit;
use client::output::plain;
use controller::app::OfflineAccounts;
use model::{Clock, SystemClock, Time, error_chain};
use settings::Settings;

/// The actor of changes on a data directory.
pub(super) const LOCAL: &str = "local";

/// Where the users and tokens are.
#[derive(Args, Clone, Debug)]
pub(super) struct PlaceArgs {
    /// Work on the data directory of the settings, while no controller runs; needs no login. Flags of settings stand before the
    /// subcommand, such as `shoal user --data DIR list --offline`
    #[arg(long, global = true)]
    offline: bool,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    connection: ConnectionArgs,
}

impl PlaceArgs {
    /// The settings of the data directory of `--offline`; `None` for a running controller.
    pub(super) fn offline_settings(&self) -> Result<Option<Settings>, CliError> {
        self.offline.then(|| self.settings.clone().load()).transpose()
    }

    /// A client of the running controller.
    pub(super) fn client(&self) -> Result<Client, CliError> {
        Client::new(&self.connection)
    }
}

/// Users and tokens of a running controller, or of a data directory.
pub(super) enum Place {
    Online(Client),
    Offline(OfflineAccounts),
}

impl Place {
    pub(super) async fn open(arguments: PlaceArgs) -> Result<Self, CliError> {
        let PlaceArgs { offline, settings, connection } = arguments;
        if !offline {
            return Ok(Self::Online(Client::new(&connection)?));
        }
        let opened = OfflineAccounts::open(&settings.load()?, now()).await;
        opened.map(Self::Offline).map_err(|error| CliError::failed(plain(&error_chain(&error).to_string())))
    }
}

/// The time of a change.
pub(super) fn now() -> Time {
    SystemClock.now()
}

/// The error of a command on a data directory.
pub(super) fn failed(error: AccountError) -> CliError {
    let message = plain(&error_chain(&error).to_string());
    match error {
        AccountError::Invalid { .. } | AccountError::Password(_) => CliError::Usage(message),
        AccountError::UnknownUser(_)
        | AccountError::UnknownToken(_)
        | AccountError::UnknownWorkerToken(_) => CliError::Local { message, exit: Exit::NotFound },
        _ => CliError::failed(message),
    }
}

/// A value as JSON. A view is always representable.
pub(super) fn document(view: impl serde::Serialize) -> Value {
    serde_json::to_value(view).unwrap_or_default()
}
