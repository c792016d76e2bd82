//! lat_ctx's token ring: the cost of a context switch.
//!
//! A token goes round a ring of pipes. Each task that receives it sums a private array, which displaces about the
//! array's size from the data cache, and passes the token on. The time that one task needs to write into a pipe, read
//! from it and sum a hot array is subtracted; cache misses that only the switch causes are intentionally included. The
//! benchmark's authors saw 10 to 15 % of variation between runs.
//!
//! The tasks are threads, forked processes, or clean coprocs, which share a region with the ring's first task. Coprocs,
//! too, have their arrays in private memory, though a program would have its data in the region: processes and coprocs
//! then differ only in the way in which they were created, and neither profits from another kind of pages.
//!
//! The figures that the talk "On Threads, Processes and Co-Processes" (CELF Embedded Linux Conference Europe 2009,
//! pages 12 to 22) published for threads and processes are shown beside the measured ones.

mod published;

use std::hint::black_box;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use latchwork::coproc::{Attributes, Coproc, Coprocs, Options, descriptors};
use latchwork::region::{Region, RegionOptions};

use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::machine;
use crate::measure::{Case, Pace, Sample};
use crate::peers::{ours, pin_to, process};
use crate::plan::Plan;
use crate::published::{COPROC, Experiment, Source};
use crate::result::{Kind, Params, Placement, Unit, Warning};

pub(super) struct ContextSwitch;

const TASKS: [u32; 4] = [2, 5, 10, 20];
const QUICK_TASKS: [u32; 2] = [2, 8];
const SIZES: [u64; 3] = [0, 16 << 10, 128 << 10];

impl Scenario for ContextSwitch {
    fn name(&self) -> &'static str {
        "context-switch"
    }

    fn about(&self) -> &'static str {
        "a token goes round a ring of pipes, each task sums an array; µs per switch, net of the \
         work; ratio to threads"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &COPROC,
            place: ", pages 12 to 22",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        "pipe"
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn contestants(&self) -> Vec<Contestant> {
        vec![Contestant::ready("pipe")]
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let own: &[u32] = if plan.quick { &QUICK_TASKS } else { &TASKS };
        let chosen = plan.tasks_or(own);
        if chosen.contains(&1) {
            prepared.warnings.push(Warning::Skipped {
                text: "a ring of 1 task skipped: there is no other task to switch to".into(),
            });
        }
        let mut makers = vec![Maker::Threads, Maker::Processes];
        match start_coprocs(chosen.iter().copied().max().unwrap_or(0)) {
            Ok(coprocs) => makers.push(Maker::Coprocs(coprocs)),
            Err(error) => prepared.warnings.push(Warning::Skipped {
                text: format!("rings of coprocs skipped: {error}"),
            }),
        }
        for placement in [Placement::SameCpu, Placement::Free] {
            for size in SIZES {
                for &tasks in chosen.iter().filter(|tasks| **tasks > 1) {
                    for maker in &makers {
                        prepared
                            .cases
                            .push(case(plan, placement, size, tasks, maker.clone()));
                    }
                }
            }
        }
        prepared
    }
}

fn case(plan: &Plan, placement: Placement, size: u64, tasks: u32, maker: Maker) -> Case {
    let kind = maker.kind();
    let group = Params {
        tasks: Some(tasks),
        size: Some(size),
        placement: Some(placement),
        ..Params::default()
    };
    // Half of the time for the overhead, half for the ring.
    let mut overhead_pace = Pace::new(plan.sample);
    let mut ring_pace = Pace::new(plan.sample);
    let words = usize::try_from(size).unwrap_or(usize::MAX) / size_of::<u32>();
    Case {
        contestant: "pipe",
        params: Params {
            kind: Some(kind),
            ..group.clone()
        },
        group,
        is_base: kind == Kind::Threads,
        unit: Unit::Us,
        further: Vec::new(),
        sampler: Box::new(move || {
            on_thread_placed(placement, || {
                let overhead = overhead_pace.ns_per_call(Hop::new(tasks, words)?.by_one_task())?;
                let mut ring = Ring::start(&maker, tasks, words)?;
                let lap = ring_pace.ns(|laps| ring.laps(laps));
                let stopped = ring.stop();
                let lap = lap?;
                stopped?;
                Ok(Sample {
                    figure: (lap / f64::from(tasks) - overhead) / 1000.0,
                    extra: vec![("overhead_us", overhead / 1000.0)],
                    timed: None,
                })
            })
        }),
    }
}

/// Runs `work` on a thread of its own, so that the caller keeps its placement; the tasks that
/// `work` creates inherit the thread's.
fn on_thread_placed<T: Send>(
    placement: Placement,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            if placement == Placement::SameCpu {
                pin_to(machine::cpus().last().copied().unwrap_or(0))?;
            }
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the ring's first task panicked")))
    })
}

/// The token's value says whether to continue.
const GO: [u8; 4] = [1; 4];
const STOP: [u8; 4] = [0; 4];

/// Reads a pipe, does the work, writes a pipe.
struct Task {
    from: PipeReader,
    to: PipeWriter,
    array: Vec<u32>,
}

impl Task {
    fn new(from: PipeReader, to: PipeWriter, words: usize) -> Self {
        // Not zeros, which might all be mapped to one page.
        let array = vec![1; words];
        Self { from, to, array }
    }

    fn receive(&mut self) -> io::Result<[u8; 4]> {
        let mut token = STOP;
        self.from.read_exact(&mut token)?;
        Ok(token)
    }

    fn work(&self) {
        let sum = self
            .array
            .iter()
            .fold(0_u32, |sum, word| sum.wrapping_add(*word));
        black_box(sum);
    }

    /// Passes the token on until it says stop, or the previous task has ended.
    fn live(mut self) -> io::Result<()> {
        loop {
            let token = self.receive()?;
            self.work();
            self.to.write_all(&token)?;
            if token == STOP {
                return Ok(());
            }
        }
    }
}

/// The overhead: one task passes the token through as many pipes as the ring has.
struct Hop {
    tasks: Vec<Task>,
}

impl Hop {
    fn new(pipes: u32, words: usize) -> io::Result<Self> {
        let tasks = (0..pipes)
            .map(|index| {
                let (from, to) = io::pipe()?;
                // One array for all hops, so that it stays in the cache.
                Ok(Task::new(from, to, if index == 0 { words } else { 0 }))
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { tasks })
    }

    fn by_one_task(mut self) -> impl FnMut() -> io::Result<()> {
        let mut next = 0;
        move || {
            let task = &mut self.tasks[next];
            task.to.write_all(&GO)?;
            task.receive()?;
            self.tasks[0].work();
            next = (next + 1) % self.tasks.len();
            Ok(())
        }
    }
}

/// One runtime for rings of up to so many tasks, used by all cases, as a program would.
fn start_coprocs(tasks: u32) -> io::Result<Coprocs> {
    // The runtime's server is a task, too, and so are the first task of the ring and that of the previous sample, which
    // may still be leaving.
    let slots = u16::try_from(tasks + 3).unwrap_or(u16::MAX);
    let region = RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(slots)
        .label("bench")
        .create_anonymous()
        .map_err(io::Error::other)?;
    ours::start(&region, &Options::new()).map_err(io::Error::other)
}

/// The way in which the tasks of a ring are created.
#[derive(Clone)]
enum Maker {
    Threads,
    Processes,
    Coprocs(Coprocs),
}

impl Maker {
    fn kind(&self) -> Kind {
        match self {
            Self::Threads => Kind::Threads,
            Self::Processes => Kind::Processes,
            Self::Coprocs(_) => Kind::Coprocs,
        }
    }

    /// Creates the task that reads `from` and writes `to`; it must not inherit the pipe ends in `kept`.
    fn make(
        &self,
        from: PipeReader,
        to: PipeWriter,
        words: usize,
        kept: &mut Vec<(PipeReader, PipeWriter)>,
    ) -> io::Result<Other> {
        match self {
            Self::Threads => Ok(Other::Thread(thread::spawn(move || {
                Task::new(from, to, words).live()
            }))),
            Self::Processes => process::fork(|| {
                // A pipe reports its end only when no other process holds its other end.
                kept.clear();
                i32::from(Task::new(from, to, words).live().is_err())
            })
            .map(Other::Process),
            Self::Coprocs(coprocs) => {
                // A clean coproc has the runtime's placement, the other kinds have that of this thread.
                let attributes = Attributes::new()
                    .name("ring")
                    .affinity(machine::cpus())
                    .descriptor(from)
                    .descriptor(to);
                coprocs
                    .spawn_value(live_as_coproc, words, &attributes)
                    .map(Other::Coproc)
                    .map_err(io::Error::other)
            }
        }
    }
}

fn live_as_coproc(_: &Region, words: usize) -> i32 {
    let mut ends = descriptors().into_iter();
    let (Some(from), Some(to)) = (ends.next(), ends.next()) else {
        return 2;
    };
    i32::from(Task::new(from.into(), to.into(), words).live().is_err())
}

/// The ring, from the view of its first task, the caller.
struct Ring {
    first: Task,
    others: Vec<Other>,
}

enum Other {
    Thread(JoinHandle<io::Result<()>>),
    Process(libc::pid_t),
    Coproc(Coproc),
}

impl Ring {
    fn start(maker: &Maker, tasks: u32, words: usize) -> io::Result<Self> {
        let mut readers = Vec::new();
        let mut writers = Vec::new();
        for _ in 0..tasks {
            let (reader, writer) = io::pipe()?;
            readers.push(reader);
            writers.push(writer);
        }
        // Task n reads what task n - 1 writes; the first reads the last.
        readers.rotate_right(1);
        let mut ends: Vec<_> = readers.into_iter().zip(writers).collect();
        let mut others = Vec::new();
        while ends.len() > 1 {
            let Some((from, to)) = ends.pop() else { break };
            match maker.make(from, to, words, &mut ends) {
                Ok(other) => others.push(other),
                Err(error) => {
                    drop(ends);
                    // They end without a token; the reason why there is none is the error to report.
                    let _ = join(others);
                    return Err(error);
                }
            }
        }
        let Some((from, to)) = ends.pop() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let first = Task::new(from, to, words);
        Ok(Self { first, others })
    }

    fn laps(&mut self, laps: u64) -> io::Result<Duration> {
        let started = Instant::now();
        for _ in 0..laps {
            self.send_round(GO)?;
        }
        Ok(started.elapsed())
    }

    fn send_round(&mut self, token: [u8; 4]) -> io::Result<()> {
        self.first.to.write_all(&token)?;
        self.first.receive()?;
        self.first.work();
        Ok(())
    }

    /// Ends every task. A broken ring ends by itself, pipe by pipe.
    fn stop(mut self) -> io::Result<()> {
        let sent = self.send_round(STOP);
        drop(self.first);
        join(self.others)?;
        sent
    }
}

/// Waits for all, and returns the error of the first that failed.
fn join(others: Vec<Other>) -> io::Result<()> {
    let mut result = Ok(());
    for other in others {
        let ended = match other {
            Other::Thread(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a task of the ring panicked"))),
            Other::Process(process) => process::wait(process),
            // Waits for the teardown, which would disturb the next sample.
            Other::Coproc(coproc) => match coproc.join_reaped() {
                Ok(exit) if exit.is_success() => Ok(()),
                Ok(exit) => Err(io::Error::other(format!("a coproc ended: {exit:?}"))),
                Err(error) => Err(io::Error::other(error)),
            },
        };
        result = result.and(ended);
    }
    result
}

#[cfg(test)]
mod tests {
    use latchwork::coproc::Signal;

    use super::*;

    /// So many tasks fit into the runtime's region, and not one more.
    const MOST: u32 = 4;

    fn runs(maker: &Maker, tasks: u32) -> io::Result<()> {
        let mut ring = Ring::start(maker, tasks, 16)?;
        let laps = ring.laps(3);
        ring.stop()?;
        laps.map(drop)
    }

    /// Whether the largest possible rings work repeatedly: they do not if the tasks of an earlier ring still have their
    /// slots.
    fn assert_all_ended(maker: &Maker) {
        for _ in 0..3 {
            runs(maker, MOST).unwrap();
        }
    }

    #[test]
    fn a_token_goes_round_rings_of_every_kind() {
        let coprocs = Maker::Coprocs(start_coprocs(8).unwrap());
        for maker in [Maker::Threads, Maker::Processes, coprocs] {
            for tasks in [2, 8] {
                runs(&maker, tasks).unwrap();
            }
        }
    }

    #[test]
    fn a_ring_that_cannot_be_completed_leaves_no_coproc() {
        let maker = Maker::Coprocs(start_coprocs(MOST).unwrap());
        for _ in 0..2 {
            let error = runs(&maker, MOST + 5).unwrap_err();
            assert!(error.to_string().contains("region"), "{error}");
        }
        assert_all_ended(&maker);
    }

    #[test]
    fn a_ring_that_loses_a_coproc_fails_and_leaves_none() {
        let maker = Maker::Coprocs(start_coprocs(MOST).unwrap());
        let mut ring = Ring::start(&maker, MOST, 16).unwrap();
        for other in &ring.others[1..2] {
            if let Other::Coproc(coproc) = other {
                coproc.kill(Signal::KILL).unwrap();
            }
        }
        // The token is lost at the latest when the pipes of the dead tasks have ended.
        while ring.laps(1).is_ok() {}
        ring.stop().unwrap_err();
        assert_all_ended(&maker);
    }
}
