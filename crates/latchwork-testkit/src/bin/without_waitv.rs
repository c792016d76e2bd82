//! `without_waitv COMMAND…`: runs a command with `futex_waitv` refused, as before Linux 5.16, or in the sandbox of a container
//! engine that does not know the call.
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else {
        eprintln!("usage: without_waitv COMMAND…");
        return ExitCode::from(2);
    };
    latchwork_testkit::refuse(libc::SYS_futex_waitv, libc::ENOSYS);
    let error = Command::new(&program).args(words).exec();
    eprintln!("without_waitv: {}: {error}", program.display());
    ExitCode::from(127)
}
