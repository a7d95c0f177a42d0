//! The `outboxd` command. Everything it does is in the library; here are arguments, printing and exit codes.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main(std::env::args_os(), std::env::vars_os()).into()
}
