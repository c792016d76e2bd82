//! One run of a whole program with given locks, in a scratch of its own, which is removed afterwards; the program is
//! killed if it does not end.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tempfile::TempDir;

/// A program that has not ended after this time hangs. They take seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// The locks that a program uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Glibc,
    Throughput,
    Check,
}

impl Way {
    pub(super) const ALL: [Self; 3] = [Self::Glibc, Self::Throughput, Self::Check];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Glibc => "program as it is",
            Self::Throughput => "program --mutex=tp",
            Self::Check => "program --check",
        }
    }
}

/// One run of a program.
pub(super) struct Run {
    command: &'static Path,
    way: Way,
    pub(super) quick: bool,
    scratch: TempDir,
}

impl Run {
    pub(super) fn new(command: &'static Path, way: Way, quick: bool) -> io::Result<Self> {
        let scratch = tempfile::Builder::new()
            .prefix("latchwork-bench-")
            .tempdir()?;
        Ok(Self {
            command,
            way,
            quick,
            scratch,
        })
    }

    /// The amount of work.
    pub(super) fn much(&self, full: u32) -> u32 {
        if self.quick { full / 10 } else { full }
    }

    /// A file that is removed after the run.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Starts a program in a scratch of its own.
    pub(super) fn start(&self, program: &str, arguments: &[&str]) -> io::Result<Running> {
        let mut command = match self.way {
            Way::Glibc => Command::new(program),
            way => {
                let mut command = Command::new(self.command);
                command.arg("run");
                match way {
                    // (On a busy machine a wait may be long though nothing is wrong.)
                    Way::Check => command.args(["--check", "--json", "--long", "0"]),
                    _ => command.args(["--mutex=tp", "--quiet"]),
                };
                command.arg("--").arg(program);
                command
            }
        };
        let child = command
            .args(arguments)
            .current_dir(self.scratch.path())
            .stdin(Stdio::null())
            .stdout(File::create(self.file("stdout"))?)
            .stderr(File::create(self.file("stderr"))?)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
        Ok(Running(child))
    }

    /// Runs a program to its end; returns its output, and how many seconds it took.
    pub(super) fn to_end(&self, program: &str, arguments: &[&str]) -> io::Result<(String, f64)> {
        let began = Instant::now();
        let status = self.start(program, arguments)?.end()?;
        let seconds = began.elapsed().as_secs_f64();
        self.well(status)?;
        Ok((std::fs::read_to_string(self.file("stdout"))?, seconds))
    }

    /// Fails with the program's output, if it has not ended successfully.
    pub(super) fn well(&self, status: ExitStatus) -> io::Result<()> {
        if status.success() {
            return Ok(());
        }
        let said = std::fs::read(self.file("stderr"))?;
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().last().unwrap_or("nothing");
        Err(io::Error::other(format!("{status}; it said: {last}")))
    }

    /// How many findings the checker has reported, in all processes of the program.
    pub(super) fn findings(&self) -> io::Result<f64> {
        let said = std::fs::read(self.file("stderr"))?;
        let said = String::from_utf8_lossy(&said);
        let rules = said.lines().filter(|line| line.contains("\"rule\":"));
        Ok(rules.count() as f64)
    }
}

/// A program that is killed if its end is not waited for.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.0.id().cast_signed())
    }

    /// Waits for its end.
    pub(super) fn end(mut self) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(&self.0);
        let descriptor = pidfd_open(pid, PidfdFlags::empty())?;
        let patience = Timespec {
            tv_sec: PATIENCE.as_secs() as _,
            tv_nsec: 0,
        };
        let mut ends = [PollFd::new(&descriptor, PollFlags::IN)];
        if poll(&mut ends, Some(&patience))? == 0 {
            return Err(io::Error::other("it does not end"));
        }
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail, harmlessly, if it has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
