//! `shoal completions` and `shoal man`: files for shells and for `man`, from the definition of the command line.
//!
//! ```text
//!   definition ── clap_complete ──> completion script ── serials, job ids ──> shoal server list -o name
//!             └── clap_mangen ────> one page per command
//! ```
//!
//! Invariant: a name that a controller sends is offered only if it has the characters of a serial number, and no shell expands it: it
//! cannot hold a command, a second word or an option.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Command, ValueEnum};
use clap_complete::Shell;

use client::error::CliError;
use client::output::Output;

/// A shell with completions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ShellName {
    /// GNU Bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Arguments of `shoal completions`.
#[derive(Args, Debug)]
pub(super) struct Completions {
    /// The shell
    shell: ShellName,
}

/// Arguments of `shoal man`.
#[derive(Args, Debug)]
pub(super) struct Man {
    /// The directory of the pages; it is made if it does not exist
    directory: PathBuf,
}

impl Completions {
    /// Prints the script for a definition of the command line.
    pub(super) fn run(&self, definition: Command, output: &mut Output<'_>) -> Result<(), CliError> {
        output.out.write_all(script(self.shell, definition).as_bytes())?;
        Ok(output.out.flush()?)
    }
}

/// The completion script of a shell.
pub(super) fn script(name: ShellName, mut definition: Command) -> String {
    let shell = match name {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition, "shoal", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match name {
        ShellName::Bash => with_names_for_bash(&script),
        ShellName::Fish => script + FISH_NAMES,
        ShellName::Zsh => script,
    }
}

/// Serials and ids of jobs for Bash: the generated function is called first; what it does not complete is a name.
fn with_names_for_bash(script: &str) -> String {
    let registration = script.rfind("if [[ \"${BASH_VERSINFO[0]}\"").unwrap_or(script.len());
    format!("{}{BASH_NAMES}", &script[..registration])
}

/// A list that takes long, or has no controller, completes nothing. The names are compared here: `compgen -W` would expand them, and run
/// the commands in them.
const BASH_NAMES: &str = r#"_shoal_names() {
    local kind="" word cur="${COMP_WORDS[COMP_CWORD]}"
    _shoal "$@"
    [[ "$cur" == -* ]] && return 0
    case "${COMP_WORDS[1]} ${COMP_WORDS[2]}" in
        "job create" | "job list" | "batch "*) [[ "${COMP_WORDS[COMP_CWORD-1]}" == --server ]] && kind=server ;;
        "job "*) [[ $COMP_CWORD -ge 3 ]] && kind=job ;;
        "server add" | "server list") ;;
        "server maintenance") [[ $COMP_CWORD -ge 4 ]] && kind=server ;;
        "server "* | "bmc "*) [[ $COMP_CWORD -ge 3 ]] && kind=server ;;
    esac
    [[ -z "$kind" ]] && return 0
    # Nothing can be asked while a line is completed.
    [[ -n "${SHOAL_USER-}" && -z "${SHOAL_USER_PASSWORD-}" ]] && return 0
    case "${COMP_WORDS[COMP_CWORD-1]}" in
        --server) ;;
        -*) return 0 ;;
    esac
    local name="" names='^[A-Za-z0-9][A-Za-z0-9._:+-]*$'
    while IFS= read -r name; do
        [[ "$name" =~ $names && "$name" == "$cur"* ]] && COMPREPLY+=("$name")
    done < <(timeout 2 "${COMP_WORDS[0]}" "$kind" list -o name --limit 500 </dev/null 2>/dev/null)
    return 0
}
complete -F _shoal_names -o bashdefault -o default shoal
"#;

const FISH_NAMES: &str = r#"
function __shoal_names
    # Nothing can be asked while a line is completed.
    test -n "$SHOAL_USER" -a -z "$SHOAL_USER_PASSWORD"; and return
    timeout 2 shoal $argv[1] list -o name --limit 500 2>/dev/null | string match --regex -- '^[A-Za-z0-9][A-Za-z0-9._:+-]*$'
end
complete -c shoal -n "__fish_seen_subcommand_from server bmc; and not __fish_seen_subcommand_from add list" -f -a "(__shoal_names server)"
complete -c shoal -n "__fish_seen_subcommand_from job; and not __fish_seen_subcommand_from create list" -f -a "(__shoal_names job)"
"#;

impl Man {
    /// Writes the pages of a definition of the command line.
    pub(super) fn run(&self, definition: Command, output: &mut Output<'_>) -> Result<(), CliError> {
        let failed = |error: std::io::Error| {
            CliError::failed(format!("cannot write manual pages into {}: {error}", self.directory.display()))
        };
        fs::create_dir_all(&self.directory).map_err(failed)?;
        let mut command = definition.disable_help_subcommand(true);
        command.build();
        let mut pages = 0;
        write_pages(&command, &self.directory, &mut pages).map_err(failed)?;
        output.line(format!("{pages} manual pages written to {}", self.directory.display()))
    }
}

/// Writes the page of a command and of all commands below it, which are built, so that they have the names of their pages.
fn write_pages(command: &Command, directory: &Path, pages: &mut usize) -> std::io::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).manual("Shoal").render(&mut page)?;
    fs::write(directory.join(format!("{name}.1")), page)?;
    *pages += 1;
    command.get_subcommands().try_for_each(|sub| write_pages(sub, directory, pages))
}
