//! Arguments, help and exit codes.

use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::super::{Cli, Command};
use super::{refused, shoal};
use client::exit::Exit;
use settings::DEFINITIONS;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn help_lists_the_exit_codes() {
    let help = Cli::command().render_long_help().to_string();
    for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "6 ", "64"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(code)), "{code}");
    }
}

#[test]
fn serve_has_a_flag_for_every_setting() {
    let mut cli = Cli::command();
    let help = cli.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
    for row in DEFINITIONS.iter() {
        assert!(
            help.contains(&format!("--{} ", row.flag())) || help.contains(&format!("--{}\n", row.flag())),
            "{}",
            row.name
        );
        assert!(help.contains(&format!("[{};", row.name)), "{}", row.name);
    }
    assert!(help.contains("--config <FILE>") && help.contains("--data"));
}

#[test]
fn flags_reach_the_settings_with_their_origin() {
    let ran = shoal(&[
        "config",
        "show",
        "--data",
        "/srv/s",
        "--metrics-anonymous",
        "--enable-registry=false",
        "--job-lease-ttl",
        "20m",
    ])
    .ends_with(0);
    let line = |name: &str| {
        let line = ran.out.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("STORAGE_ROOT"), "STORAGE_ROOT /srv/s flag --storage-root");
    assert_eq!(line("METRICS_ANONYMOUS"), "METRICS_ANONYMOUS true flag --metrics-anonymous");
    assert_eq!(line("ENABLE_REGISTRY"), "ENABLE_REGISTRY false flag --enable-registry");
    assert_eq!(line("JOB_LEASE_TTL"), "JOB_LEASE_TTL 20m flag --job-lease-ttl");
}

#[test]
fn a_mistyped_flag_is_refused_with_a_suggestion() {
    let text = refused(&["serve", "--worker-concurency", "3"]);
    assert!(text.contains("--worker-concurrency"), "{text}");
}

#[test]
fn an_invalid_configuration_ends_with_64_and_names_all_problems() {
    let ran = shoal(&["serve", "--worker-concurrency", "many", "--auth-mode", "none"]).ends_with(64);
    assert!(ran.err.contains("2 problems in the configuration:"), "{}", ran.err);
    let ran = shoal(&["config", "check", "--json", "--job-lease-ttl", "1s"]).ends_with(64);
    let error: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(error["error"]["error"], "configuration");
    assert_eq!(error["error"]["problems"].as_array().unwrap().len(), 1);
    shoal(&["config", "check"]).ends_with(0);
}

#[test]
fn a_bmc_password_is_never_an_argument() {
    let text = refused(&[
        "server",
        "add",
        "XF-1",
        "--bmc-address",
        "a",
        "--bmc-user",
        "u",
        "--bmc-password",
        "canary",
    ]);
    assert!(text.contains("--bmc-password"), "{text}");
}

#[test]
#[cfg(feature = "lab")]
fn demo_and_sim_have_their_defaults() {
    let demo = Cli::try_parse_from(["shoal", "demo", "--fail-one", "--json"]).unwrap();
    assert!(demo.json);
    assert!(
        matches!(demo.command, Command::Lab(lab_worlds::Command::Demo(args)) if args.servers == 3 && args.fail_one && !args.keep)
    );
    let sim =
        ["shoal", "sim", "--serial", "A", "--serial", "B", "--unit-time", "500ms", "--bmc-password", "p"];
    let Command::Lab(lab_worlds::Command::Sim(args)) = Cli::try_parse_from(sim).unwrap().command else {
        panic!("not sim")
    };
    assert_eq!((args.serials, args.servers), (vec!["A".to_owned(), "B".to_owned()], None));
    assert_eq!((args.bmc_user.as_str(), args.unit_time), ("admin", Duration::from_millis(500)));
    assert!(!format!("{:?}", args.bmc_password).contains("\"p\""));
    refused(&["demo", "--servers", "0"]);
    refused(&["sim", "--serial", "A", "--servers", "2"]);
    refused(&["sim", "--unit-time", "2"]);
}

#[test]
fn statuses_become_exit_codes() {
    for (status, exit) in [
        (404, Exit::NotFound),
        (409, Exit::Conflict),
        (412, Exit::Conflict),
        (401, Exit::Unauthorised),
        (403, Exit::Unauthorised),
        (503, Exit::Unreachable),
        (400, Exit::Failed),
        (422, Exit::Failed),
        (500, Exit::Failed),
        (302, Exit::Failed),
    ] {
        assert_eq!(Exit::of_status(status), exit, "{status}");
    }
}

#[test]
fn the_help_of_every_command_matches_the_snapshot() {
    fn help(command: &mut clap::Command, path: &str, all: &mut String) {
        let path = format!("{path} {}", command.get_name()).trim().to_owned();
        all.push_str(&format!("==== {path}\n{}\n", command.render_long_help()));
        let names: Vec<String> = command
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .filter(|name| name != "help")
            .collect();
        for name in names {
            if let Some(sub) = command.find_subcommand_mut(&name) {
                help(sub, &path, all);
            }
        }
    }
    let mut all = String::new();
    let mut command = super::super::definition().term_width(100);
    command.build();
    help(&mut command, "", &mut all);
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../../../golden/snapshots");
    settings.set_prepend_module_to_snapshot(false);
    // The values of environment variables are not part of the help.
    settings.add_filter(r"\[env: (\w+)=[^\]]*\]", "[env: $1]");
    let _bound = settings.bind_to_scope();
    insta::assert_snapshot!("cli-help", all);
}

/// The cost of a command line before its command begins: the definition, examples included, and its parse. The process itself is
/// measured by `.ci/starts`, because a test in a busy machine cannot hold milliseconds.
#[test]
fn the_definition_of_the_command_line_is_cheap() {
    let quickest = (0..20)
        .map(|_| {
            let began = std::time::Instant::now();
            Cli::read(["shoal", "job", "list", "--since", "2h"]).unwrap();
            began.elapsed()
        })
        .min()
        .unwrap();
    // Unoptimised code takes about ten times as long as the program that is shipped.
    assert!(quickest < Duration::from_millis(60), "{quickest:?}");
}
