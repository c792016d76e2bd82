//! The cost of a block of memory: allocated, its first byte written, and freed, by one task or by several at once.
//!
//! Page faults are counted in addition: glibc returns the top of its heap to the system once 128 KiB of it are free,
//! and batches of large blocks then fault their pages in again and again. A program that sets no tunables gets this
//! behaviour, but it is a policy, not the cost of the algorithm (with a high `glibc.malloc.trim_threshold` such a pair
//! costs as little as a small one).

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::{Prepared, Scenario};
use latchwork::region::{Region, RegionOptions};

use crate::contestant::{Absent, Contestant};
use crate::machine;
use crate::measure::{Case, Pace, Sample};
use crate::peers::heap::{self, Malloc};
use crate::peers::minor_faults;
use crate::plan::Plan;
use crate::published::Source;
use crate::result::{Kind, Params, Unit, Variant, Warning};

pub(super) struct Heap;

/// Sizes from one or two words to far above a page.
const SIZES: [u64; 7] = [16, 64, 256, 1024, 4096, 16_384, 65_536];
const QUICK_SIZES: [u64; 3] = [16, 1024, 65_536];

/// Task counts if the machine has the CPUs; smaller machines stop at twice their number.
const TASKS: [u32; 6] = [1, 2, 4, 8, 16, 32];

impl Scenario for Heap {
    fn name(&self) -> &'static str {
        "heap"
    }

    fn about(&self) -> &'static str {
        "allocate and free a block, 1 to N tasks at once; ns per pair as one task sees it"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        "malloc"
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn contestants(&self) -> Vec<Contestant> {
        vec![
            Contestant::ready("malloc"),
            Contestant {
                name: "latchwork heap",
                absent: region(1).err(),
            },
        ]
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let tasks = tasks(plan, &mut prepared.warnings);
        // One region for all cases, as in a program.
        let region = if plan.wants(self.base(), "latchwork heap") {
            region(tasks.iter().copied().max().unwrap_or(1)).ok()
        } else {
            None
        };
        let sizes: &[u64] = if plan.quick { &QUICK_SIZES } else { &SIZES };
        for case in [Variant::Pair, Variant::Batch] {
            for &size in sizes {
                for &tasks in &tasks {
                    let params = Params {
                        tasks: Some(tasks),
                        size: Some(size),
                        kind: Some(Kind::Threads),
                        case: Some(case),
                        ..Params::default()
                    };
                    let malloc = measured(self, "malloc", Malloc, params.clone(), plan);
                    prepared.cases.push(malloc);
                    if let Some(region) = region.clone() {
                        let ours = measured(self, "latchwork heap", region, params, plan);
                        prepared.cases.push(ours);
                    }
                }
            }
        }
        prepared
    }
}

/// The task counts to measure: the user's, or up to a number that oversubscribes this machine.
fn tasks(plan: &Plan, warnings: &mut Vec<Warning>) -> Vec<u32> {
    if !plan.tasks.is_empty() {
        return plan.tasks.clone();
    }
    let cpus = machine::cpus().len();
    let most = u32::try_from(2 * cpus).unwrap_or(u32::MAX);
    let tasks: Vec<u32> = TASKS.into_iter().filter(|tasks| *tasks <= most).collect();
    if tasks.len() < TASKS.len() {
        warnings.push(Warning::FewCpus {
            text: format!(
                "{cpus} CPUs: the task counts stop at {}, which oversubscribes them; --tasks asks \
                 for more",
                tasks.last().unwrap_or(&1)
            ),
        });
    }
    tasks
}

/// A region for so many tasks at once, or the reason why there is none.
fn region(tasks: u32) -> Result<Region, Absent> {
    let live = u64::from(tasks) * heap::BATCH as u64 * SIZES[SIZES.len() - 1];
    RegionOptions::new()
        // The blocks allocated at once, and ample room for each task's own free blocks.
        .max_bytes((4 * live).max(64 << 20))
        // Also for the measuring thread, and for threads of the previous sample that are still leaving.
        .max_tasks(u16::try_from(2 * tasks + 2).unwrap_or(u16::MAX))
        .label("bench")
        .create_anonymous()
        .map_err(|error| Absent {
            reason: error.to_string(),
            package: None,
        })
}

/// A case of one heap, with code compiled for it.
fn measured<H: heap::Heap>(
    scenario: &Heap,
    contestant: &'static str,
    heap: H,
    params: Params,
    plan: &Plan,
) -> Case {
    let mut pace = Pace::new(plan.sample);
    let tasks = params.tasks.unwrap_or(1);
    let size = usize::try_from(params.size.unwrap_or(0)).unwrap_or(usize::MAX);
    let batch = params.case == Some(Variant::Batch);
    Case {
        contestant,
        group: params.clone(),
        params,
        is_base: contestant == scenario.base(),
        unit: Unit::Ns,
        further: Vec::new(),
        sampler: Box::new(move || {
            let mut faults = 0.0;
            let figure = pace.ns(|pairs| {
                let work = |pairs| {
                    if batch {
                        heap::batches(&heap, size, pairs)
                    } else {
                        heap::pairs(&heap, size, pairs)
                    }
                };
                // A thread's first block registers it with the heap, and is not counted.
                let before = minor_faults();
                let elapsed = together(tasks, || work(1), || work(pairs))?;
                faults = (minor_faults() - before) as f64 / (pairs * u64::from(tasks)) as f64;
                Ok::<_, io::Error>(elapsed)
            })?;
            Ok(Sample {
                figure,
                extra: vec![("page_faults", faults)],
                timed: None,
            })
        }),
    }
}

/// Runs `work` in so many tasks at once, after each has done `first`. Returns the time from the start of the first one
/// to the end of the last one. Each takes its own times, since the thread that starts them may not get a CPU until they
/// have ended.
fn together(
    tasks: u32,
    first: impl Fn() -> io::Result<()> + Sync,
    work: impl Fn() -> io::Result<()> + Sync,
) -> io::Result<Duration> {
    let start = Barrier::new(tasks as usize);
    thread::scope(|scope| {
        let (start, first, work) = (&start, &first, &work);
        let threads: Vec<_> = (0..tasks)
            .map(|_| {
                scope.spawn(move || {
                    let first = first();
                    start.wait();
                    let begun = Instant::now();
                    first.and_then(|()| work())?;
                    Ok((begun, Instant::now()))
                })
            })
            .collect();
        let mut times = Vec::new();
        for thread in threads {
            let ended = thread.join();
            times.push(ended.unwrap_or_else(|_| Err(io::Error::other("a task panicked")))?);
        }
        let begun = times.iter().map(|(begun, _)| *begun).min();
        let ended = times.iter().map(|(_, ended)| *ended).max();
        Ok(begun
            .zip(ended)
            .map_or(Duration::ZERO, |(begun, ended)| ended - begun))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{pin_to, yields_to_all};
    use std::sync::Mutex;

    /// The thread that starts the tasks gets to run after all of them: on one processor, at the lowest priority.
    #[test]
    fn the_time_together_is_no_shorter_than_one_tasks_own() {
        pin_to(machine::cpus()[0]).unwrap();
        yields_to_all(true).unwrap();
        for _ in 0..10 {
            let longest = Mutex::new(Duration::ZERO);
            let work = || {
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(5) {}
                let own = begun.elapsed();
                let mut longest = longest.lock().unwrap();
                *longest = own.max(*longest);
                Ok(())
            };
            let elapsed = together(2, || yields_to_all(false), work).unwrap();
            let own = *longest.lock().unwrap();
            assert!(elapsed >= own, "{elapsed:?}, and one task took {own:?}");
        }
    }
}
