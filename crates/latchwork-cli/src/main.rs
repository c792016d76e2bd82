//! The command `latchwork`. All of it is in the library beside this file.

fn main() -> std::process::ExitCode {
    latchwork_cli::main()
}
