//! What a block of memory costs: allocated, its first byte written, and freed, by one task or by
//! several at once.

use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use super::{Contestant, Prepared, Scenario};
use crate::machine;
use crate::measure::{Case, Pace};
use crate::peers::heap::{self, Malloc};
use crate::plan::Plan;
use crate::result::{Kind, Params, Unit, Variant, Warning};

pub(super) struct Heap;

/// Sizes from a word or two to far above a page.
const SIZES: [u64; 7] = [16, 64, 256, 1024, 4096, 16_384, 65_536];
const QUICK_SIZES: [u64; 3] = [16, 1024, 65_536];

/// Task counts where the machine has the CPUs; smaller machines stop at twice what they have.
const TASKS: [u32; 6] = [1, 2, 4, 8, 16, 32];

impl Scenario for Heap {
    fn name(&self) -> &'static str {
        "heap"
    }

    fn about(&self) -> &'static str {
        "allocate and free a block, 1 to N tasks at once; ns per pair as one task sees it"
    }

    fn base(&self) -> &'static str {
        "malloc"
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn contestants(&self) -> Vec<Contestant> {
        vec![Contestant::ready("malloc")]
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let tasks = tasks(plan, &mut prepared.warnings);
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
                    prepared
                        .cases
                        .push(measured(self, "malloc", Malloc, params, plan));
                }
            }
        }
        prepared
    }
}

/// The task counts to measure: the user's, or as many as oversubscribe this machine.
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
        beside: Vec::new(),
        sampler: Box::new(move || {
            let figure = pace.ns(|pairs| {
                together(tasks, || {
                    if batch {
                        heap::batches(&heap, size, pairs)
                    } else {
                        heap::pairs(&heap, size, pairs)
                    }
                })
            })?;
            Ok(figure.into())
        }),
    }
}

/// Runs `work` in so many tasks at once; the time until the last has ended.
fn together(tasks: u32, work: impl Fn() -> io::Result<()> + Sync) -> io::Result<Duration> {
    let start = Barrier::new(tasks as usize + 1);
    thread::scope(|scope| {
        let (start, work) = (&start, &work);
        let threads: Vec<_> = (0..tasks)
            .map(|_| {
                scope.spawn(move || {
                    start.wait();
                    work()
                })
            })
            .collect();
        start.wait();
        let started = Instant::now();
        for thread in threads {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a task panicked")))?;
        }
        Ok(started.elapsed())
    })
}
