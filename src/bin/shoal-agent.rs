//! The program `shoal-agent`; its code is in the crate `agent`.

fn main() -> std::process::ExitCode {
    agent::command::main()
}
