//! The settings as command line flags, generated from their table.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};

use settings::{DEFINITIONS, Definition, SettingKind, Settings, Sources};

use client::error::CliError;

/// The id of `--config` among the arguments.
const CONFIG: &str = "config-file";

/// Every setting with its flag and help. Static, because clap needs texts with static lifetime.
static FLAGS: LazyLock<Vec<(&'static Definition, String, String)>> = LazyLock::new(|| {
    DEFINITIONS
        .iter()
        .map(|&row| (row, row.flag(), format!("{} [{}; default: {}]", row.doc, row.name, row.default)))
        .collect()
});

/// The settings given as flags, and the settings file.
#[derive(Clone, Default)]
pub(super) struct SettingsArgs {
    config: Option<PathBuf>,
    flags: Vec<(String, String)>,
}

impl SettingsArgs {
    /// Merges flags, environment and file, and checks the files and secrets that settings name.
    pub(super) fn load(self) -> Result<Settings, CliError> {
        let environment = |name: &str| -> Option<OsString> { std::env::var_os(name) };
        // A name that is not UTF-8 is no misspelt setting.
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
        let sources = Sources { flags: self.flags, environment: &environment, variables, file: self.config };
        Ok(Settings::load_and_check(&sources, &environment)?)
    }
}

impl fmt::Debug for SettingsArgs {
    /// Names without values: some of them are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.flags.iter().map(|(name, _)| name)).finish()
    }
}

impl Args for SettingsArgs {
    /// Adds `--config` and the first flag, and all others when the command is used: fourteen commands have a hundred each, and one
    /// command runs. The first ones give the options of settings their place in the help.
    fn augment_args(command: Command) -> Command {
        let config = Arg::new(CONFIG)
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("A TOML file of settings");
        let first = FLAGS.iter().take(1);
        first
            .fold(command.arg(config), with_flag)
            .defer(|command| FLAGS.iter().skip(1).fold(command, with_flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn with_flag(command: Command, (row, flag, help): &'static (&'static Definition, String, String)) -> Command {
    command.arg(argument(row, flag, help))
}

impl FromArgMatches for SettingsArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.config = matches.get_one::<PathBuf>(CONFIG).cloned();
        self.flags = DEFINITIONS
            .iter()
            .filter_map(|row| Some((row.name.to_owned(), matches.get_one::<String>(row.name)?.clone())))
            .collect();
        Ok(())
    }
}

fn argument(row: &'static Definition, flag: &'static str, help: &'static str) -> Arg {
    let argument = Arg::new(row.name).long(flag).help(help).help_heading("Settings");
    let argument = match row.flag_alias {
        Some(alias) => argument.visible_alias(alias),
        None => argument,
    };
    match row.kind {
        // `--metrics-anonymous` alone means true.
        SettingKind::Switch => {
            argument.num_args(0..=1).default_missing_value("true").value_name("true|false")
        }
        SettingKind::Choice(words) => argument.value_parser(clap::builder::PossibleValuesParser::new(words)),
        SettingKind::Path => argument.value_name("PATH"),
        SettingKind::Address | SettingKind::Listener => argument.value_name("ADDRESS"),
        SettingKind::Duration { .. } => argument.value_name("DURATION"),
        SettingKind::Size { .. } | SettingKind::Reserve => argument.value_name("SIZE"),
        SettingKind::Count { .. } => argument.value_name("N"),
        SettingKind::BaseUrl | SettingKind::ImageUrl | SettingKind::KeySet | SettingKind::NatsServer => {
            argument.value_name("URL")
        }
        SettingKind::Secret => argument.value_name("env:NAME|file:PATH"),
        SettingKind::Entries(_) => argument.value_name("ENTRY,..."),
        SettingKind::StepTimes => argument.value_name("STEP=DURATION,…"),
        SettingKind::Schedule => argument.value_name("WHEN"),
        SettingKind::BackupTarget => argument.value_name("PATH|oci://…"),
        SettingKind::Text | SettingKind::UserName | SettingKind::PasswordHash | SettingKind::LogFilter => {
            argument.value_name("TEXT")
        }
    }
}
