//! Which commands have no sample of their JSON, and why. Every other command has one in `golden/cli-json`, from the walk of
//! `tests/json_samples.rs`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Command;

use super::super::definition;

/// The commands without a sample, with the reason. In the order of `shoal --help`.
pub(super) const WITHOUT_JSON: &[(&str, &str)] = &[
    ("serve", RUNS),
    ("demo", RUNS),
    ("sim", RUNS),
    ("sim-bmc show", LABORATORY),
    ("sim-bmc faults", LABORATORY),
    ("sim-bmc fault", NOTHING),
    ("sim-bmc clear", NOTHING),
    ("sim-bmc journal", LABORATORY),
    ("sim-bmc restart", NOTHING),
    ("sim-bmc certificate", NOTHING),
    ("agent", RUNS),
    ("vm-connect", RUNS),
    ("selftest", RUNS),
    ("webhook remove", NOTHING),
    ("firmware remove", NOTHING),
    ("firmware set delete", NOTHING),
    ("firmware set import", "needs the folder of a vendor's catalogue"),
    ("user passwd", NOTHING),
    ("user remove", NOTHING),
    ("token revoke", NOTHING),
    ("worker token revoke", NOTHING),
    ("openapi", "the document is golden/openapi.json"),
    ("iso cat", "the bytes of a file"),
    ("maintenance build", PACKAGES),
    ("maintenance fetch", PACKAGES),
    ("maintenance inspect", PACKAGES),
    ("completions", "a script of a shell"),
    ("man", FILE),
];

const RUNS: &str = "it runs until it is stopped, and writes a log";
const NOTHING: &str = "nothing on standard output: what it removed or changed is on standard error";
const LABORATORY: &str = "faults and journals of simulated BMCs as the crate `lab-bmc` has them";
const FILE: &str = "it writes files";
const PACKAGES: &str = "it needs packages of a distribution";

/// The paths of the commands that do something.
pub(super) fn commands() -> BTreeSet<String> {
    fn collect(command: &Command, above: &str, found: &mut BTreeSet<String>) {
        let path = format!("{above} {}", command.get_name()).trim().to_owned();
        // A command that does something also without a command below it.
        let own = command.get_positionals().next().is_some();
        if command.get_subcommands().next().is_none() || own {
            found.insert(path.clone());
        }
        command.get_subcommands().for_each(|sub| collect(sub, &path, found));
    }
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    let mut found = BTreeSet::new();
    command.get_subcommands().for_each(|sub| collect(sub, "", &mut found));
    found
}

fn sample(path: &str) -> PathBuf {
    let name = format!("{}.json", path.replace(' ', "-"));
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden/cli-json").join(name)
}

#[test]
fn every_command_has_a_sample_of_its_json_or_a_reason_why_it_has_none() {
    let commands = commands();
    let without: BTreeSet<&str> = WITHOUT_JSON.iter().map(|(command, _)| *command).collect();
    let neither: Vec<&String> =
        commands.iter().filter(|path| !sample(path).exists() && !without.contains(path.as_str())).collect();
    assert!(neither.is_empty(), "add them to the walk of tests/json_samples.rs, or here: {neither:?}");
    for (path, reason) in WITHOUT_JSON {
        assert!(commands.contains(*path), "{path} is no command");
        assert!(!sample(path).exists(), "{path} has a sample: remove its reason");
        assert!(!reason.is_empty());
    }
    assert_eq!(without.len(), WITHOUT_JSON.len(), "a command is listed twice");
}
