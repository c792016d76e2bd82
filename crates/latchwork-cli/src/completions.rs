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

pub fn run(args: &Args, command: Command, out: &mut impl Write) -> io::Result<()> {
    let shell = match args.shell {
        Script::Bash => Shell::Bash,
        Script::Fish => Shell::Fish,
        Script::Zsh => Shell::Zsh,
    };
    // The generator panics if it cannot write: the script is a text first.
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut without_hidden(&command),
        "latchwork",
        &mut script,
    );
    out.write_all(&script)
}

/// The command without the subcommands that only the library calls: bash's script would show them.
fn without_hidden(command: &Command) -> Command {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    Command::new("latchwork")
        .args(command.get_arguments().cloned())
        .subcommands(shown.cloned())
}
