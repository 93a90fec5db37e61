//! docs/cli.md, generated from the definition of the command line and from samples of real output.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command};

use super::super::{definition, examples, exit};
use super::without_json::WITHOUT_JSON;

const HEAD: &str = "\
# The command line

Generated from the definition of the command line; `UPDATE_GOLDEN=1 cargo test -p shoal --lib reference` writes it again. The
same text is in `shoal COMMAND --help` and, as manual pages, in `shoal man DIRECTORY`. Completions: `shoal completions bash`,
`zsh` or `fish`.

## What every command has in common

| subject | rule |
|---|---|
| data and messages | data goes to standard output, all other text to standard error; no command prompts, but for the password of `--user` on a terminal |
| `-o text` | tables fit the terminal (`COLUMNS`, or its width): columns of less importance are left out and long cells cut, never wrapped. A pipe receives all columns uncut |
| `-o wide` | all columns, whole ids, nothing cut |
| `-o json`, `--json` | the response of the controller, unchanged; members may be added in later versions |
| `-o` of its own | where `-o` of a command is a file or a folder, such as `shoal support-bundle -o FILE`, the document is printed with `--json` |
| `-o yaml` | the same document as YAML |
| `-o name` | one id, serial number or name per line, for other commands; the commands that create or rotate a token or a secret print that, as they do without it |
| ids | the beginning of the id of a job or batch is enough if no other begins so; an ambiguous one is refused with the candidates and exit code 2 |
| times | ages such as `3m` or `2d4h`, `in 12m` for the future; `--utc` shows RFC 3339. `--since` takes `30m`, `2h`, `2d4h`, or RFC 3339 |
| `--watch` of a list | every list of a controller takes it, but `job events`, which has `--follow`; a terminal is redrawn at each change; a pipe receives each new or changed row, with `-o json` one document a line |
| colour | only on a terminal, not with `NO_COLOR` or `TERM=dumb`, and never the only bearer of a meaning |
| progress | what takes longer than two seconds shows on standard error the bytes and their rate, or how many of how many, and the remaining time |
| controller | `--url` (`SHOAL_URL`), `--token` (`SHOAL_TOKEN`) or `--user` (`SHOAL_USER`) with a password (`--user-password env:NAME` or `file:PATH`, `SHOAL_USER_PASSWORD`, or a question), `--ca-file` (`SHOAL_CA_FILE`) |

";

const ERRORS: &str = r#"
## Errors as JSON

With a document as output an error is one line of JSON on standard error. An error of the controller has its HTTP status and body
([errors.md](errors.md) has a page per code):

```json
{"error":{"details":[],"error":"unknown_server","message":"no server with this serial number is registered","request_id":"…"},"status":404}
```

An error of the program itself has the code `client`, `configuration` (with `problems`) or `ambiguous_id` (with `candidates`):

```json
{"error":{"candidates":["0192f3a4-5b  XF-1  queued  2026-01-02T10:00:00.000Z"],"error":"ambiguous_id","message":"…"}}
```
"#;

/// Samples of other documents that an option gives: the command, the option, and the file in `golden/cli-json`.
const WITH_OPTION: [(&str, &str, &str); 2] = [
    ("job create", "several servers and --dry-run", "job-create---dry-run.json"),
    ("batch create", "--dry-run", "job-create---dry-run.json"),
];

/// The options that every command has.
const COMMON: [&str; 7] = ["json", "output", "utc", "help", "version", "url", "token"];

#[test]
fn the_reference_of_the_command_line_is_current() {
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    let mut text = String::from(HEAD);
    writeln!(text, "## Exit codes\n\n```text\n{}\n```", exit::HELP.trim_start_matches("Exit codes:\n"))
        .unwrap();
    text.push_str(ERRORS);
    text.push_str("\n## Commands\n");
    for sub in command.get_subcommands() {
        describe(sub, "", &mut text);
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap_or_default(), "UPDATE_GOLDEN=1 rewrites {path}");
}

fn describe(command: &Command, above: &str, text: &mut String) {
    let path = format!("{above} {}", command.get_name()).trim().to_owned();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let subcommands: Vec<&Command> = command.get_subcommands().collect();
    if !subcommands.is_empty() {
        writeln!(text, "\n### shoal {path}\n\n{about}.").unwrap();
        // A command that does something also without a command below it.
        if command.get_positionals().next().is_some() {
            let usage = command.clone().render_usage().to_string().replace("Usage: ", "");
            writeln!(text, "\n```text\n{}\n```", usage.trim()).unwrap();
            arguments(command, &path, text);
        }
        subcommands.iter().for_each(|sub| describe(sub, &path, text));
        return;
    }
    let level = if above.is_empty() { "###" } else { "####" };
    let usage = command.clone().render_usage().to_string().replace("Usage: ", "");
    writeln!(text, "\n{level} shoal {path}\n\n{about}.\n\n```text\n{}\n```", usage.trim()).unwrap();
    arguments(command, &path, text);
}

/// The arguments, examples and sample of a command.
fn arguments(command: &Command, path: &str, text: &mut String) {
    // The settings have a document of their own.
    let settings = command.get_arguments().any(|argument| argument.get_long() == Some("storage-root"));
    let own = |argument: &&Arg| {
        let id = argument.get_id().as_str();
        let is_common = argument.is_global_set() || COMMON.contains(&id) && id != "output";
        let is_of_serve = settings && argument.get_long().is_some() && is_setting(argument);
        !(is_common || is_of_serve)
    };
    let options: Vec<&Arg> = command.get_arguments().filter(own).collect();
    if !options.is_empty() {
        text.push_str("\n| argument | meaning |\n|---|---|\n");
        for option in options {
            writeln!(text, "| `{}` | {} |", name(option), meaning(option)).unwrap();
        }
    }
    if settings {
        text.push_str("\nAlso the settings: `shoal config reference`.\n");
    }
    let examples = examples::of(path);
    if !examples.is_empty() {
        writeln!(text, "\n```console\n$ {}\n```", examples.join("\n$ ")).unwrap();
    }
    let json = if has_output_of_its_own(command) { "--json" } else { "-o json" };
    if let Ok(sample) = sample(&format!("{}.json", path.replace(' ', "-"))) {
        details(json, &sample, text);
        for (_, option, file) in WITH_OPTION.iter().filter(|(of, ..)| *of == path) {
            details(&format!("{option}, {json}"), &sample_of_option(file), text);
        }
    } else if let Some((_, reason)) = WITHOUT_JSON.iter().find(|(known, _)| *known == path) {
        writeln!(text, "\nNo sample of `{json}`: {reason}.").unwrap();
    }
}

fn sample(file: &str) -> std::io::Result<String> {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/cli-json").join(file))
}

fn sample_of_option(file: &str) -> String {
    sample(file).unwrap_or_else(|error| panic!("{file}: {error}; tests/json_samples.rs makes it"))
}

/// Writes a sample below a line that opens it.
fn details(summary: &str, sample: &str, text: &mut String) {
    writeln!(
        text,
        "\n<details><summary><code>{summary}</code></summary>\n\n```json\n{}\n```\n\n</details>",
        sample.trim_end()
    )
    .unwrap();
}

/// Whether `-o` of a command is a file or a folder.
fn has_output_of_its_own(command: &Command) -> bool {
    command.get_arguments().any(|argument| argument.get_id() == "output" && !argument.is_global_set())
}

#[test]
fn a_command_with_its_own_output_documents_json_as_an_option_of_its_own() {
    let mut command = definition().disable_help_subcommand(true);
    command.build();
    let mut text = String::new();
    command.get_subcommands().for_each(|sub| describe(sub, "", &mut text));
    let sections = text.split("\n#").filter(|section| section.contains("`-o, --output <"));
    let mut samples = 0;
    for section in sections {
        assert!(!section.contains("-o json"), "{section}");
        samples += usize::from(section.contains("<code>--json</code>"));
    }
    assert!(samples >= 3, "{samples} commands with a sample write a file with -o");
}

/// Whether an option is one of the settings of `shoal serve`.
fn is_setting(argument: &Arg) -> bool {
    let flag = argument.get_long().unwrap_or_default();
    ["config", "data"].contains(&flag) || settings::DEFINITIONS.iter().any(|row| row.flag() == flag)
}

fn name(argument: &Arg) -> String {
    let value = match argument.get_value_names() {
        Some([name, ..]) if argument.get_action().takes_values() => format!("<{name}>"),
        _ => String::new(),
    };
    let many = if argument.get_num_args().is_some_and(|number| number.max_values() > 1) { "..." } else { "" };
    match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("-{short}, --{long} {value}"),
        (None, Some(long)) => format!("--{long} {value}"),
        _ => format!("{value}{many}"),
    }
    .trim()
    .replace('|', "\\|")
}

fn meaning(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let is_flag = !argument.get_action().takes_values();
    let values =
        if values.is_empty() || is_flag { String::new() } else { format!(": {}", values.join(", ")) };
    format!("{help}{values}").replace('|', "\\|").replace('\n', " ")
}
