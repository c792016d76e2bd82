//! The cost of creating a task and waiting for its end, as the creating process grows.
//!
//! Source: the talk "On Threads, Processes and Co-Processes" (CELF Embedded Linux Conference Europe 2009), page 7: a
//! process takes about twice as long to create as a thread.
//!
//! fork copies the parent's page tables, so every parent size needs a process of its own: a worker, forked while this
//! process is still small, grows to the size and measures on request. Each worker first forks a small single-threaded
//! server: a clone of the server, adopted by the worker, is the floor, the least cost of a process that does not depend
//! on its parent's size.

mod published;

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use latchwork::coproc::{Attributes, Coprocs, Options};
use latchwork::time::Deadline;

use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::machine;
use crate::measure::{Case, Pace};
use crate::peers::{ours, process};
use crate::plan::Plan;
use crate::published::{COPROC, Experiment, Source};
use crate::result::{Params, Unit, Variant, Warning};

pub(super) struct Spawn;

/// How a contestant is measured, in a worker.
enum Measured {
    /// Creates a task and waits for its end, repeatedly.
    OneByOne(fn(&mut Tools) -> io::Result<()>),
    /// Measures by itself: the mean time of one, and its variant.
    Itself(fn(&mut Tools) -> io::Result<Duration>, Variant),
}
use Measured::{Itself, OneByOne};

const ENTRIES: &[(&str, Measured)] = &[
    (
        "pthread_create",
        OneByOne(|_| process::create_and_join_thread()),
    ),
    ("fork", OneByOne(|_| process::wait(process::fork(|| 0)?))),
    ("posix_spawn", OneByOne(|_| process::spawn_and_wait())),
    (
        "floor small-server",
        OneByOne(|tools| tools.server.spawn_and_wait()),
    ),
    (
        "latchwork coproc-clean",
        OneByOne(|tools| ours::spawn_and_join(&tools.clean, &Attributes::new())),
    ),
    (
        "latchwork coproc-snapshot",
        OneByOne(|tools| ours::spawn_and_join(&tools.clean, &ours::copying())),
    ),
    (
        "latchwork coproc-pooled",
        Itself(|tools| tools.while_the_pool_lasts(), Variant::PoolLasts),
    ),
    (
        "latchwork coproc-pooled",
        Itself(|tools| tools.sustained(), Variant::Sustained),
    ),
];

/// The objects that contestants need before the worker grows.
struct Tools {
    server: Server,
    clean: Coprocs,
    pooled: Coprocs,
    /// The number of coprocs in a sustained run.
    run: u32,
}

/// How many coprocs are ready, and how many of them one sample uses: the refill begins when half are gone.
const POOL: usize = 128;
const FROM_POOL: u32 = 48;
const WAKING: u32 = 12;
/// How many coprocs a sustained run creates for each millisecond of the plan's window.
const SUSTAINED_PER_MS: u32 = 10;
/// After what time the pool will not be filled any more, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(300);

impl Tools {
    fn start(run: u32) -> io::Result<Self> {
        let region = ours::region_for_coprocs()?;
        let start = |options| ours::start(&region, &options).map_err(io::Error::other);
        Ok(Self {
            server: Server::start()?,
            clean: start(Options::new())?,
            pooled: start(Options::new().pool(POOL))?,
            run,
        })
    }

    fn while_the_pool_lasts(&mut self) -> io::Result<Duration> {
        let deadline = Deadline::after(PATIENCE);
        let ready = self.pooled.fill(deadline).map_err(io::Error::other)?;
        if ready < POOL {
            return Err(io::Error::other(format!(
                "only {ready} of {POOL} coprocs became ready"
            )));
        }
        // Waits for the teardown of the last ones. The processors have then reached such a deep sleep that waking them
        // takes a tenth of a millisecond, which must not be measured.
        std::thread::sleep(Duration::from_millis(60));
        self.pooled_one_by_one(WAKING)?;
        self.pooled_one_by_one(FROM_POOL)
    }

    fn sustained(&mut self) -> io::Result<Duration> {
        self.pooled_one_by_one(self.run)
    }

    fn pooled_one_by_one(&self, count: u32) -> io::Result<Duration> {
        let started = Instant::now();
        for _ in 0..count {
            ours::spawn_and_join(&self.pooled, &Attributes::new())?;
        }
        Ok(started.elapsed() / count)
    }
}

/// How much memory to leave free besides a worker's, in MiB.
const SLACK_MIB: u64 = 512;

impl Scenario for Spawn {
    fn name(&self) -> &'static str {
        "spawn"
    }

    fn about(&self) -> &'static str {
        "create a task and join it, from parents of several sizes; µs"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &COPROC,
            place: ", page 7",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        "pthread_create"
    }

    fn contestants(&self) -> Vec<Contestant> {
        let mut names: Vec<_> = ENTRIES.iter().map(|(name, _)| *name).collect();
        names.dedup();
        names.into_iter().map(Contestant::ready).collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        // A round should include several forks of a large parent.
        let sample = plan.sample * 4;
        let run = SUSTAINED_PER_MS * (plan.window.as_millis() as u32).max(1);
        for &parent_mib in plan.parents_mib {
            let worker = match Worker::start(parent_mib, sample, run) {
                Ok(worker) => Rc::new(RefCell::new(worker)),
                Err(text) => {
                    prepared.warnings.push(Warning::Memory { text });
                    continue;
                }
            };
            let params = Params {
                parent_mib: Some(parent_mib),
                ..Params::default()
            };
            for (index, (name, measured)) in (0..).zip(ENTRIES) {
                if !plan.wants(self.base(), name) {
                    continue;
                }
                let worker = Rc::clone(&worker);
                let case = match measured {
                    OneByOne(_) => None,
                    Itself(_, variant) => Some(*variant),
                };
                prepared.cases.push(Case {
                    contestant: name,
                    params: Params {
                        case,
                        ..params.clone()
                    },
                    group: params.clone(),
                    is_base: *name == self.base(),
                    unit: Unit::Us,
                    further: Vec::new(),
                    sampler: Box::new(move || Ok(worker.borrow_mut().measure(index)?.into())),
                });
            }
        }
        prepared
    }
}

/// A process of a given size that measures on request. It ends when this is dropped, and also when
/// the measuring process dies.
struct Worker {
    process: libc::pid_t,
    /// Requests are a contestant's index; answers are a figure, or the text of an error: see [`reply`].
    line: Option<UnixStream>,
}

impl Worker {
    /// Starts a worker of `mib` MiB, or returns the reason why there is none.
    fn start(mib: u64, sample: Duration, run: u32) -> Result<Self, String> {
        let available = machine::available_mib();
        if available < mib + SLACK_MIB {
            return Err(format!(
                "no parent of {mib} MiB: {available} MiB are available, {} are needed",
                mib + SLACK_MIB
            ));
        }
        let failed = |error: io::Error| format!("no parent of {mib} MiB: {error}");
        let (line, worker_line) = UnixStream::pair().map_err(failed)?;
        let process = process::fork(|| {
            process::close_all_but(worker_line.as_fd());
            match work(mib, sample, run, worker_line) {
                Ok(()) => 0,
                Err(_) => 1,
            }
        })
        .map_err(failed)?;
        let mut worker = Self {
            process,
            line: Some(line),
        };
        // The first answer comes after the worker has grown.
        worker.answer().map_err(failed)?;
        Ok(worker)
    }

    fn measure(&mut self, contestant: u8) -> io::Result<f64> {
        self.line()?.write_all(&[contestant])?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<f64> {
        let mut answer = [0; 12];
        self.line()?
            .read_exact(&mut answer)
            .map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::other("the measuring worker died"),
                _ => error,
            })?;
        let (length, figure) = answer.split_at(4);
        let mut text = vec![0; u32::from_ne_bytes(length.try_into().unwrap_or_default()) as usize];
        if text.is_empty() {
            return Ok(f64::from_ne_bytes(figure.try_into().unwrap_or_default()));
        }
        self.line()?.read_exact(&mut text)?;
        Err(io::Error::other(
            String::from_utf8_lossy(&text).into_owned(),
        ))
    }

    fn line(&mut self) -> io::Result<&mut UnixStream> {
        self.line
            .as_mut()
            .ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The worker ends when its socket is closed; its answers have reported all errors.
        self.line = None;
        let _ = process::wait(self.process);
    }
}

/// The main function of a worker.
fn work(mib: u64, sample: Duration, run: u32, mut line: UnixStream) -> io::Result<()> {
    let mut tools = Tools::start(run)?;
    // If the machine runs out of memory, this process should be killed. An error is ignored.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    reply(&mut line, process::become_large(mib).map(|()| 0.0))?;
    let mut paces: Vec<Pace> = ENTRIES.iter().map(|_| Pace::new(sample)).collect();
    let mut contestant = [0];
    while line.read(&mut contestant)? == 1 {
        let index = usize::from(contestant[0]);
        let nanoseconds = match &ENTRIES[index].1 {
            OneByOne(spawner) => paces[index].ns_per_call(|| spawner(&mut tools)),
            Itself(measure, _) => measure(&mut tools).map(|one| one.as_secs_f64() * 1e9),
        };
        reply(&mut line, nanoseconds.map(|ns| ns / 1000.0))?;
    }
    Ok(())
}

/// The length of an error's text (4 bytes), the figure (8 bytes), and that text; the length is 0 if there is a figure.
fn reply(line: &mut UnixStream, figure: io::Result<f64>) -> io::Result<()> {
    let (figure, text) = match figure {
        Ok(figure) => (figure, String::new()),
        Err(error) => (0.0, error.to_string()),
    };
    line.write_all(&(text.len() as u32).to_ne_bytes())?;
    line.write_all(&figure.to_ne_bytes())?;
    line.write_all(text.as_bytes())
}

/// A small process that clones itself on request; the clone is a child of the worker and exits immediately. The server
/// ends when its socket is closed.
struct Server {
    process: libc::pid_t,
    line: UnixStream,
}

impl Server {
    fn start() -> io::Result<Self> {
        let (line, mut server_line) = UnixStream::pair()?;
        let process = process::fork(|| {
            process::close_all_but(server_line.as_fd());
            let mut request = [0];
            while matches!(server_line.read(&mut request), Ok(1)) {
                // The worker, its parent, waits for the clone, and sees this exit instead.
                if process::clone_sibling_that_exits().is_err() {
                    return 1;
                }
            }
            0
        })?;
        Ok(Self { process, line })
    }

    fn spawn_and_wait(&mut self) -> io::Result<()> {
        self.line.write_all(&[0])?;
        if process::wait_any()? == self.process {
            return Err(io::Error::other("the server could not clone itself"));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.line.shutdown(std::net::Shutdown::Both);
        let _ = process::wait(self.process);
    }
}
