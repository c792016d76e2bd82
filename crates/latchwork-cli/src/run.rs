//! `latchwork run`: a program that was not made for this library, with other mutexes or under the checker.
//!
//! The command becomes the program (`exec`), which the dynamic linker then loads a library into. So its
//! terminal, its signals and its exit status are its own.
//!
//! Where the library comes from: Cargo builds it with this command, since that depends on it, and puts it
//! into `deps` beside it; an installation puts it beside the command or into `../lib/latchwork`. (To depend on
//! the artifact, Cargo's own way to say this, is not in its stable versions. A build script that embeds it
//! would have to run Cargo inside of Cargo, build everything twice, and write the library to a file to be
//! loaded from.)

use crate::program::{self, Unsuitable};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which lock is to be inside of the program's mutexes
    #[arg(long, value_name = "KIND")]
    mutex: Option<Mutex>,
    /// Say nothing about the run itself
    #[arg(long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// A lock of this library's, or glibc's.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mutex {
    /// Throughput: most work done with many threads
    Tp,
    /// Wait-wake: the plain one
    WaitWake,
    /// Inheriting: the holder runs at the priority of who waits
    Pi,
    /// None: what the program does by itself, for comparison
    Glibc,
}

impl Mutex {
    const fn name(self) -> &'static str {
        match self {
            Self::Tp => "tp",
            Self::WaitWake => "wait-wake",
            Self::Pi => "pi",
            Self::Glibc => "glibc",
        }
    }
}

/// Why a program does not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("run: say what for: --mutex=tp, for instance")]
    NothingToDo,
    #[error("run: cannot find {name}; looked at {places}")]
    NoLibrary { name: &'static str, places: String },
    #[error(
        "run: the dynamic linker cannot load {0:?}: its path has a space or a colon, which separate \
         libraries there"
    )]
    Path(PathBuf),
    #[error("run: {0}")]
    Program(#[from] Unsuitable),
    #[error("run: cannot start {program:?}: {error}")]
    Start { program: PathBuf, error: io::Error },
}

impl Error {
    /// As `env` and shells have it: 127 not found, 126 found and no program, 125 anything else.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Program(Unsuitable::NotFound { .. }) => 127,
            Self::Program(_) | Self::Start { .. } => 126,
            _ => 125,
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let Some(mutex) = args.mutex else {
        return Err(Error::NothingToDo);
    };
    let library = library("liblatchwork_preload.so")?;
    let path = program::find(&args.program[0])?;
    program::check(&path)?;
    let mut command = Command::new(&path);
    command
        .arg0(&args.program[0])
        .args(&args.program[1..])
        .env("LD_PRELOAD", with_others(&library))
        .env("LATCHWORK_MUTEX", mutex.name());
    if !args.quiet {
        // The program has this ID, and what it starts another one.
        command.env("LATCHWORK_SPEAKER", std::process::id().to_string());
    }
    let error = command.exec();
    Err(Error::Start {
        program: path,
        error,
    })
}

/// A library that came with this command.
fn library(name: &'static str) -> Result<PathBuf, Error> {
    let command = std::env::current_exe().unwrap_or_default();
    let here = command.parent().unwrap_or(Path::new("."));
    let places = ["", "deps", "../lib/latchwork"].map(|place| here.join(place).join(name));
    match places.iter().find(|place| place.is_file()) {
        Some(found) => {
            let path = found.canonicalize().unwrap_or_else(|_| found.clone());
            if path
                .as_os_str()
                .as_bytes()
                .iter()
                .any(|byte| b" :".contains(byte))
            {
                return Err(Error::Path(path));
            }
            Ok(path)
        }
        None => Err(Error::NoLibrary {
            name,
            places: places.map(|place| place.display().to_string()).join(", "),
        }),
    }
}

/// The library first, then what the caller has loaded into programs.
fn with_others(library: &Path) -> OsString {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}
