//! `latchwork completions`: the completion script of a shell, made from the command's definitions.

use clap::{Command, ValueEnum};
use clap_complete::Shell;
use std::io::{self, Write};

#[derive(clap::Args)]
pub struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Script,
}

/// The shells for which `install.sh` knows a place.
#[derive(Clone, Copy, ValueEnum)]
enum Script {
    Bash,
    Fish,
    Zsh,
}

pub fn run(args: &Args, mut command: Command, out: &mut impl Write) -> io::Result<()> {
    let shell = match args.shell {
        Script::Bash => Shell::Bash,
        Script::Fish => Shell::Fish,
        Script::Zsh => Shell::Zsh,
    };
    // The generator panics if it cannot write: the script is a text first.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "latchwork", &mut script);
    out.write_all(&script)
}
