//! How a program is started: its variables, its folder, and where its output goes.
#![allow(unsafe_code)]

use super::error::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// What a process of the program is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// To run the operation.
    Run,
    /// To check what a kill has left.
    Check,
}

/// A program to start, again and again.
pub(super) struct Launch {
    pub(super) path: PathBuf,
    /// Its name and arguments.
    pub(super) words: Vec<OsString>,
    /// The shell's command that checks, in place of the program.
    pub(super) check: Option<OsString>,
    /// How long a step may take: from the start to a mark, or from a kill to the end.
    pub(super) patience: Duration,
    folder: Folder,
    output: File,
    errors: File,
}

impl Launch {
    pub(super) fn new(
        path: PathBuf,
        words: Vec<OsString>,
        check: Option<OsString>,
        patience: Duration,
    ) -> Result<Self, Error> {
        let file = |name: &str| {
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            rustix::fs::memfd_create(name, flags).map(File::from)
        };
        Ok(Self {
            path: std::path::absolute(&path).unwrap_or(path),
            words,
            check,
            patience,
            folder: Folder::new()?,
            output: file("output").map_err(io::Error::from)?,
            errors: file("errors").map_err(io::Error::from)?,
        })
    }

    /// Empties the program's folder.
    pub(super) fn begin_round(&self) -> Result<(), Error> {
        self.folder.empty()
    }

    /// Starts it. It stops behind its `exec`, for this process to trace it.
    pub(super) fn spawn(&self, phase: Phase) -> Result<Child, Error> {
        let mut command = match (&self.check, phase) {
            (Some(check), Phase::Check) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(check);
                shell
            }
            _ => {
                let mut program = Command::new(&self.path);
                program.arg0(&self.words[0]).args(&self.words[1..]);
                program
            }
        };
        for file in [&self.output, &self.errors] {
            file.set_len(0)?;
            rustix::fs::seek(file, rustix::fs::SeekFrom::Start(0)).map_err(io::Error::from)?;
        }
        command
            .env("LATCHWORK_CRASHTEST", phase.name())
            .env("LATCHWORK_CRASHTEST_DIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(self.output.try_clone()?)
            .stderr(self.errors.try_clone()?);
        // SAFETY: the function makes system calls only.
        unsafe { command.pre_exec(become_traced) };
        command.spawn().map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => Error::Forbidden,
            _ => Error::Start {
                program: self.path.clone(),
                error,
            },
        })
    }

    /// The last line of what the latest process has written to its standard output.
    pub(super) fn said(&self) -> String {
        last_line(&self.output)
    }

    /// The last line of what it has written to its standard error.
    pub(super) fn complained(&self) -> String {
        last_line(&self.errors)
    }
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Check => "check",
        }
    }
}

/// The longest line of a program that is shown.
const LINE: usize = 200;

fn last_line(file: &File) -> String {
    let length = file.metadata().map_or(0, |data| data.len());
    let mut end = vec![0; (length as usize).min(16 * LINE)];
    let from = length - end.len() as u64;
    if file.read_exact_at(&mut end, from).is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&end);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.unwrap_or_default().chars().take(LINE).collect()
}

/// In the child, before `exec`: addresses are the same in each round, the parent is the tracer, and its death this
/// process's.
fn become_traced() -> io::Result<()> {
    // SAFETY: none of the calls has preconditions.
    unsafe {
        // If this is refused, a round counts instructions in place of breakpoints: see `Operation`.
        let now = libc::personality(0xffff_ffff);
        if now != -1 {
            libc::personality((now | libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
        }
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        match libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        }
    }
}

/// The folder for the program's files. It is removed with its contents.
struct Folder {
    path: PathBuf,
    _parent: TempDir,
}

impl Folder {
    fn new() -> Result<Self, Error> {
        let made = tempfile::Builder::new()
            .prefix("latchwork-crashtest-")
            .tempdir();
        let parent = made.map_err(|error| Error::Folder {
            path: std::env::temp_dir(),
            error,
        })?;
        Ok(Self {
            path: parent.path().join("state"),
            _parent: parent,
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn empty(&self) -> Result<(), Error> {
        let failed = |error| Error::Folder {
            path: self.path.clone(),
            error,
        };
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        std::fs::create_dir(&self.path).map_err(failed)
    }
}
