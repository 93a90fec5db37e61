//! Completions, manual pages and examples.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};

use super::super::examples::{EXAMPLES, of, words};
use super::super::shell::{ShellName, script};
use super::super::{Cli, definition};
use super::shoal;

#[test]
fn every_command_has_a_manual_page_with_its_examples() {
    let directory = tempfile::tempdir().unwrap();
    let ran = shoal(&["man", directory.path().to_str().unwrap()]).ends_with(0);
    let pages = fs::read_dir(directory.path()).unwrap().count();
    assert!(ran.out.starts_with(&format!("{pages} manual pages")), "{}", ran.out);
    let page = fs::read_to_string(directory.path().join("shoal-job-list.1")).unwrap();
    for part in ["shoal job list", ".SH", "outcome failed", "since"] {
        assert!(page.replace('\\', "").contains(part), "{part} in {page}");
    }
}

#[test]
fn scripts_complete_commands_and_names() {
    for shell in [ShellName::Bash, ShellName::Zsh, ShellName::Fish] {
        let text = script(shell, definition());
        for word in ["power-cycle", "firmware", "wide"] {
            assert!(text.contains(word), "{shell:?} {word}");
        }
    }
    let bash = script(ShellName::Bash, definition());
    assert_eq!(bash.matches("\ncomplete -F").count(), 1, "one registration, after the generated function");
}

#[test]
fn completion_asks_no_password() {
    // Before the program is run, the scripts look for a login without a question.
    for (shell, run) in
        [(ShellName::Bash, "timeout 2 \"${COMP_WORDS[0]}\""), (ShellName::Fish, "timeout 2 shoal")]
    {
        let text = script(shell, definition());
        let (before, _) = text.split_once(run).unwrap();
        let check = before.rfind("SHOAL_USER_PASSWORD").expect("the script looks for a password");
        assert!(before[check..].contains("return"), "{shell:?}");
    }
    assert!(!script(ShellName::Zsh, definition()).contains("timeout 2"));
}

#[test]
fn no_shell_expands_a_name_that_a_controller_sends() {
    // `compgen -W` expands the words of its list, with the commands in them.
    let bash = script(ShellName::Bash, definition());
    let (_, names) = bash.split_once("_shoal_names()").unwrap();
    for word in ["compgen", "eval", "$(timeout"] {
        assert!(!names.contains(word), "{word} in {names}");
    }
    // The characters of a serial number; ids of jobs have no other.
    const NAME: &str = "^[A-Za-z0-9][A-Za-z0-9._:+-]*$";
    assert!(names.contains(NAME), "{names}");
    let fish = script(ShellName::Fish, definition());
    let (_, names) = fish.split_once("function __shoal_names").unwrap();
    assert!(names.contains(&format!("| string match --regex -- '{NAME}'")), "{names}");
    let zsh = script(ShellName::Zsh, definition());
    assert!(!zsh.contains("-o name"), "the script for zsh asks no controller");
}

/// A program that lists these lines as names, and the completion script beside it.
fn listing(lines: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let fake = directory.path().join("shoal");
    fs::write(directory.path().join("script"), script(ShellName::Bash, definition())).unwrap();
    fs::write(&fake, format!("#!/bin/sh\ncat <<EOF\n{lines}\nEOF\n")).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Completes a line with Bash. Returns the words, with a space after each but the last.
fn complete_with(directory: &Path, line: &str, variables: &[(&str, &str)]) -> String {
    let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
    let run = format!(
        "cd {0}; PATH={0}:$PATH; source script; COMP_WORDS=({1}); COMP_CWORD={2}; _shoal_names shoal \"${{COMP_WORDS[COMP_CWORD]}}\" \"\"; echo \"${{COMPREPLY[@]}}\"",
        directory.display(),
        words.join(" "),
        words.len() - 1
    );
    let mut ran = std::process::Command::new("bash");
    let ran = ran.args(["-c", &run]).env_remove("SHOAL_USER").envs(variables.iter().copied());
    let ran = ran.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

/// Completes a line with Bash and a program that lists names.
#[test]
#[ignore = "needs bash"]
fn bash_completes_serials_and_ids() {
    let directory = listing("$1-1\n$1-2\nother");
    let complete_as =
        |line: &str, variables: &[(&str, &str)]| complete_with(directory.path(), line, variables);
    let complete = |line: &str| complete_as(line, &[]);
    assert_eq!(complete("shoal server show server"), "server-1 server-2");
    let user = ("SHOAL_USER", "bea");
    assert_eq!(complete_as("shoal server show server", &[user]), "", "the program would ask for a password");
    let with_password = [user, ("SHOAL_USER_PASSWORD", "file:/run/bea")];
    assert_eq!(complete_as("shoal server show server", &with_password), "server-1 server-2");
    assert_eq!(complete("shoal job watch job"), "job-1 job-2");
    assert_eq!(complete("shoal job create --server serv"), "server-1 server-2");
    assert!(complete("shoal job wa").contains("watch"));
    assert_eq!(complete("shoal server add serv"), "");
}

#[test]
#[ignore = "needs bash"]
fn bash_runs_no_command_in_a_name_and_offers_no_name_that_is_none() {
    let hostile = "\\$(touch ran)\n\\`touch ran\\`\nserver-1\\$(touch ran)\nserver-1;touch ran\n\\${HOME}\n*\n--yes\n\nserver 3";
    let directory = listing(&format!("{hostile}\nserver-2\nA.b_c:d+e-4"));
    let complete = |line: &str| complete_with(directory.path(), line, &[]);
    assert_eq!(complete("shoal server show server"), "server-2");
    assert_eq!(complete("shoal server show A"), "A.b_c:d+e-4");
    for line in ["shoal server show ", "shoal server show $", "shoal server show *"] {
        complete(line);
        assert!(!directory.path().join("ran").exists(), "{line}");
    }
    let all = complete("shoal server show ");
    assert!(all.ends_with("server-2 A.b_c:d+e-4") && !all.contains(['$', '`', ';', '*']), "{all}");
}

/// The paths of all commands that do something.
fn paths(command: &Command, path: &str, found: &mut Vec<String>) {
    let subcommands: Vec<&Command> =
        command.get_subcommands().filter(|sub| sub.get_name() != "help").collect();
    // A command that needs none below it, such as `backup` and `worker`, does something itself.
    if subcommands.is_empty() || !command.is_subcommand_required_set() {
        found.push(path.to_owned());
    }
    for sub in subcommands {
        paths(sub, format!("{path} {}", sub.get_name()).trim(), found);
    }
}

fn of_laboratory(path: &str) -> bool {
    ["demo", "sim", "sim-bmc", "vm-connect", "selftest"].contains(&path.split(' ').next().unwrap())
}

#[test]
fn every_command_has_an_example_and_every_example_a_command() {
    let mut known = Vec::new();
    paths(&Cli::command(), "", &mut known);
    let without: Vec<&String> = known.iter().filter(|path| of(path).is_empty()).collect();
    assert!(without.is_empty(), "add examples to src/cli/examples.rs: {without:?}");
    // Without the laboratory its commands are not there.
    let unknown: Vec<&str> = EXAMPLES
        .iter()
        .map(|(path, _)| *path)
        .filter(|path| !known.iter().any(|known| known == path))
        .filter(|path| cfg!(feature = "lab") || !of_laboratory(path))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_example_is_a_command_line_that_the_program_accepts() {
    for (path, examples) in EXAMPLES {
        if !cfg!(feature = "lab") && of_laboratory(path) {
            continue;
        }
        for example in *examples {
            assert!(example.starts_with(&format!("shoal {path}")), "{example} is not of {path}");
            if let Err(error) = Cli::read(words(example)) {
                panic!("{example}\n{error}");
            }
        }
    }
}

#[test]
fn words_are_divided_as_a_shell_does() {
    assert_eq!(words("shoal a --reason 'new memory' > file"), ["shoal", "a", "--reason", "new memory"]);
}
