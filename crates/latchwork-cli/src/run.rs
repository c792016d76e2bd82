//! `latchwork run`: runs an unmodified program with other mutexes, with healed waits, or under the checker.
//!
//! The command becomes the program (`exec`), into which the dynamic linker then loads a library. So the program's
//! terminal, signals and exit status are its own.
//!
//! Where the library comes from: Cargo builds it with this command, which depends on it, and puts it into `deps` beside
//! the command; `install.sh` puts it into `../lib/latchwork`, relative to the command; `cargo install` leaves it out.
//! (Cargo's artifact dependencies, which express this, are not in its stable versions. A build script that embeds the
//! library would have to run Cargo inside Cargo, build everything twice, and write the library to a file to be loaded
//! from.)

use crate::program::{self, Unsuitable};
use latchwork::check::Rule;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace the program's pthread mutexes with mutexes of this kind
    #[arg(long, value_name = "KIND")]
    mutex: Option<Mutex>,
    /// Heal waits for objects that processes share: wake-ups that glibc's robust mutexes lose when a task is killed, and
    /// waits that no task can end any more. The objects stay glibc's: the program can share them with programs that run
    /// without this option. `--heal` is `--heal=report`
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "report", conflicts_with = "check")]
    heal: Option<Heal>,
    /// Check how the program uses its locks, and report each breach of a rule: a finding. (Thread stacks smaller than 128
    /// KiB are enlarged by 64 KiB)
    #[arg(long, conflicts_with = "mutex")]
    check: bool,
    /// Write the findings, and the summary at the end, as JSON: one object per line
    #[arg(long, requires = "check")]
    json: bool,
    /// Also append the findings to DIR/findings.jsonl, and the lock order to DIR/order
    #[arg(long, value_name = "DIR", requires = "check")]
    report: Option<PathBuf>,
    /// Abort the program at the first finding, even if the finding is only suspected. Without this option, findings do
    /// not change the exit status of the program
    #[arg(long, requires = "check")]
    fatal: bool,
    /// Report each lock that was held for longer than MS milliseconds, when the lock is released; 0 means none [default:
    /// 0]
    #[arg(long, value_name = "MS", requires = "check")]
    long_hold: Option<u64>,
    /// Also report hints. There is one kind of hint: a task notifies a condition variable without holding the mutex that
    /// the waiters use
    #[arg(long, requires = "check")]
    hints: bool,
    /// Also report locks that are held when the process ends
    #[arg(long, requires = "check")]
    exit_holding: bool,
    /// Let a lock call fail with EDEADLK if it would make tasks wait for each other in a cycle
    #[arg(long, requires = "check")]
    refuse: bool,
    /// Do not report the findings that FILE lists: one on each line, as a report shows it after `to suppress:`
    #[arg(long, value_name = "FILE", requires = "check")]
    suppress: Option<PathBuf>,
    /// Do not report breaches of this rule (repeatable). The first line of a report shows the name of the rule in
    /// brackets. Example: one-task-order; a single task breaches it if it takes locks in two orders
    #[arg(long, value_name = "RULE", requires = "check", value_parser = rule)]
    without: Vec<Rule>,
    /// Report waits that last longer than MS milliseconds; 0 means none [default: 10,000]
    #[arg(long, value_name = "MS", requires = "check")]
    long: Option<u64>,
    /// Print no summary at the end; findings are still printed
    #[arg(long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// A rule by its name.
fn rule(name: &str) -> Result<Rule, String> {
    let is_it = |rule: &&Rule| rule.name() == name;
    let known = || Rule::ALL.map(Rule::name).join(", ");
    let found = Rule::ALL.iter().find(is_it).copied();
    found.ok_or_else(|| format!("the rules are {}", known()))
}

/// A lock of this library's, or glibc's.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Mutex {
    /// Throughput: if many threads contend for a mutex, most programs get more work done with this kind
    Tp,
    /// Wait-wake: the plain mutex; waiters poll for a moment and then sleep, and a release wakes one of them
    WaitWake,
    /// Inheriting: the owner runs at the priority of its waiters. If a thread other than the owner releases a mutex, that
    /// is reported, and later owners of this mutex inherit no priority
    Pi,
    /// The program's own mutexes, for comparison
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

/// What is done about a wait that no task can end, which is reported in any case.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Heal {
    /// Report such a wait: the owner of a process-shared mutex has ended and the mutex is not robust, or no task is left
    /// that could post a process-shared semaphore
    Report,
    /// Also end the wait, with EOWNERDEAD. The caller then holds the mutex; a semaphore does not change
    End,
}

impl Heal {
    const fn name(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::End => "end",
        }
    }
}

/// The libraries that are loaded into programs.
const PRELOAD: &str = "liblatchwork_preload.so";
const CHECK: &str = "liblatchwork_preload_check.so";

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "run: give one of the options --check, --heal and --mutex=KIND, for example --mutex=tp"
    )]
    NothingToDo,
    #[error("run: cannot use {path:?}: {error}")]
    Report { path: PathBuf, error: io::Error },
    #[error("run: cannot pass the path {0:?} to the checker: it contains a comma")]
    Comma(PathBuf),
    #[error(
        "run: cannot find {name} (looked at {places}). `cargo install` does not install it; \
         crates/latchwork-cli/install.sh does, for example with `--prefix ~/.cargo`, and so does the Debian package latchwork"
    )]
    NoLibrary { name: &'static str, places: String },
    #[error(
        "run: the dynamic linker cannot load {0:?}: the path has a space or a colon, and these characters \
         separate libraries in LD_PRELOAD"
    )]
    Path(PathBuf),
    #[error("run: {0}")]
    Program(#[from] Unsuitable),
    #[error("run: cannot start {program:?}: {error}")]
    Start { program: PathBuf, error: io::Error },
}

impl Error {
    /// As `env` and shells do: 127 for not found, 126 for found but not executable, 125 for anything else.
    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Program(Unsuitable::NotFound { .. }) => 127,
            Self::Program(_) | Self::Start { .. } => 126,
            _ => 125,
        })
    }
}

pub(crate) fn run(args: &Args) -> Result<ExitCode, Error> {
    let name = if args.check {
        CHECK
    } else if args.mutex.is_some() || args.heal.is_some() {
        PRELOAD
    } else {
        return Err(Error::NothingToDo);
    };
    // The program first: what is wrong with it stays wrong when the library is installed.
    let path = program::find(&args.program[0])?;
    let first = program::check(&path)?;
    let library = library(name)?;
    let (others, ours) = inherited();
    let mut command = Command::new(&path);
    command
        .arg0(&args.program[0])
        .args(&args.program[1..])
        .env("LD_PRELOAD", with_others(first, &library, others));
    for ours in ours {
        for variable in ours.variables {
            command.env_remove(variable);
        }
    }
    if let Some(mutex) = args.mutex {
        command.env("LATCHWORK_MUTEX", mutex.name());
    }
    if let Some(heal) = args.heal {
        command.env("LATCHWORK_HEAL", heal.name());
    }
    if args.check {
        command.env("LATCHWORK_CHECK", settings(args)?);
        // The command that prints its reports: see `symbolise.rs`.
        if let Ok(me) = std::env::current_exe() {
            command.env("LATCHWORK_HELPER", me);
        }
    }
    if args.json {
        command.env("LATCHWORK_SUMMARY", "json");
    }
    if !args.quiet {
        // Only the program itself has this ID, not the processes that it starts.
        command.env("LATCHWORK_SPEAKER", std::process::id().to_string());
    }
    let error = command.exec();
    Err(Error::Start {
        program: path,
        error,
    })
}

/// The settings of the checker, in the form in which it reads them.
fn settings(args: &Args) -> Result<OsString, Error> {
    let mut words: Vec<OsString> = vec!["on".into()];
    let mut add = |name: &str, path: &Path| {
        if path.as_os_str().as_bytes().contains(&b',') {
            return Err(Error::Comma(path.to_owned()));
        }
        // The program may change its directory.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let mut word = OsString::from(name);
        word.push(path);
        words.push(word);
        Ok(())
    };
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error| Error::Report { path, error }
    };
    if let Some(directory) = &args.report {
        std::fs::create_dir_all(directory).map_err(unusable(directory))?;
        add("json=", &directory.join("findings.jsonl"))?;
        add("order=", &directory.join("order"))?;
    } else if args.json {
        add("json=", Path::new("/dev/stderr"))?;
    }
    if let Some(file) = &args.suppress {
        std::fs::File::open(file).map_err(unusable(file))?;
        add("suppress=", file)?;
    }
    let flags = [
        (args.json, "quiet"),
        (args.fatal, "fatal"),
        (args.refuse, "refuse"),
        (args.exit_holding, "exit"),
        (args.hints, "hints"),
    ];
    let flags = flags.into_iter().filter(|(wanted, _)| *wanted);
    words.extend(flags.map(|(_, word)| word.into()));
    let without = args
        .without
        .iter()
        .map(|rule| format!("without={rule}").into());
    words.extend(without);
    words.extend(args.long.map(|limit| format!("long={limit}").into()));
    words.extend(
        args.long_hold
            .map(|limit| format!("long-hold={limit}").into()),
    );
    Ok(words.join(OsStr::new(",")))
}

/// The path of a library that was installed with this command.
fn library(name: &'static str) -> Result<PathBuf, Error> {
    let command = std::env::current_exe().unwrap_or_default();
    let here = command.parent().unwrap_or(Path::new("."));
    // A library beside the command in Cargo's directory may be of an earlier build, so `deps` comes first.
    let places = ["deps", "", "../lib/latchwork"].map(|place| here.join(place).join(name));
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

/// One of the two libraries, and the variables that it reads.
struct Ours {
    name: &'static str,
    variables: &'static [&'static str],
}

const OURS: [Ours; 2] = [
    Ours {
        name: CHECK,
        variables: &["LATCHWORK_CHECK", "LATCHWORK_SUMMARY"],
    },
    Ours {
        name: PRELOAD,
        variables: &["LATCHWORK_MUTEX", "LATCHWORK_HEAL"],
    },
];

/// The caller's list of libraries to load, without those of a run that this one is within; and these. Both libraries keep
/// data in the unused bytes of a mutex, so a program has one of them.
fn inherited() -> (Vec<OsString>, Vec<&'static Ours>) {
    let list = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let entries = list.as_bytes().split(|byte| b" :".contains(byte));
    let mut ours = Vec::new();
    let mut others = Vec::new();
    for entry in entries
        .filter(|entry| !entry.is_empty())
        .map(OsStr::from_bytes)
    {
        let name = Path::new(entry).file_name();
        match OURS.iter().find(|ours| name == Some(OsStr::new(ours.name))) {
            Some(library) => ours.push(library),
            None => others.push(entry.to_owned()),
        }
    }
    (others, ours)
}

/// The value of `LD_PRELOAD`: the library, behind the one that must be first, then the others.
fn with_others(first: Option<OsString>, library: &Path, others: Vec<OsString>) -> OsString {
    let list = first.into_iter().chain([library.into()]).chain(others);
    list.collect::<Vec<_>>().join(OsStr::new(":"))
}
