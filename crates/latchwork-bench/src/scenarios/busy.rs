//! Operations while other programs compete for the CPUs: as many spinning programs as there are processors, or twice as
//! many, or a quota of half a processor.
//!
//! The figure is the 99th percentile of the time of an operation, as one task measures it: a lock acquired and
//! released, a block of 1 KiB allocated and freed, or a message sent and one received. Further figures are the
//! distribution over all rounds (about as few operations as are beyond the 99.99th percentile meet the end of a time
//! slice), operations per second, and operations per second of processor time: a lock whose waiters spin is fast on a
//! quiet machine, and here consumes time that others could have used.
//!
//! The spinning programs are children of this process (see `background.rs`), and end with each sample.

mod queues;
mod workload;

use super::{Prepared, Scenario};
use latchwork::region::{Region, RegionOptions};

use crate::contestant::Contestant;
use crate::machine;
use crate::measure::Sampler;
use crate::peers::background::Quota;
use crate::peers::heap::Malloc;
use crate::peers::locks::{self, Between, Peer};
use crate::plan::Plan;
use crate::published::Source;
use crate::result::{Variant, Warning};
use workload::{Background, QUOTA, Workload};

pub(super) struct Busy;

const PEERS: &[&Peer] = &locks::MUTEXES;
const MALLOC: &str = "malloc";
const HEAP: &str = "latchwork heap";

/// Spinning programs for each processor.
const SPINNERS: [u32; 3] = [0, 1, 2];

impl Scenario for Busy {
    fn name(&self) -> &'static str {
        "busy"
    }

    fn about(&self) -> &'static str {
        "locks, heaps and queues beside programs that spin, or with half a processor; ns that 99 of 100 operations take at most"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        locks::GLIBC.name
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn contestants(&self) -> Vec<Contestant> {
        let locks = PEERS.iter().map(|peer| peer.contestant());
        let heaps = [MALLOC, HEAP].map(Contestant::ready);
        locks.chain(heaps).chain(queues::contestants()).collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let cpus = u32::try_from(machine::cpus().len()).unwrap_or(1);
        let own = [2 * cpus];
        let tasks = plan.tasks_or(&own);
        let mut backgrounds: Vec<Background> = SPINNERS
            .map(|times| Background::Spinners(times * cpus))
            .to_vec();
        if plan.may_be_confined() {
            match Quota::enter(QUOTA) {
                Ok(_) => backgrounds.push(Background::Quota),
                Err(error) => prepared.warnings.push(Warning::Skipped {
                    text: format!("a quota of half a processor skipped: {error}"),
                }),
            }
        }
        for background in backgrounds {
            for &tasks in tasks {
                let workload = Workload {
                    tasks,
                    window: plan.window,
                    background,
                };
                for peer in self.available(plan) {
                    if let Ok(sampler) = peer.visit(Between::Threads, workload) {
                        let case = Variant::ContestedMutex;
                        prepared
                            .cases
                            .push(workload.case(case, peer.name, self.base(), sampler));
                    }
                }
                for (name, sampler) in heaps(plan, workload, &mut prepared.warnings) {
                    prepared
                        .cases
                        .push(workload.case(Variant::Pair, name, MALLOC, sampler));
                }
                for (name, sampler) in queues::samplers(plan, workload) {
                    let case = workload.case(Variant::Message, name, queues::BASE, sampler);
                    prepared.cases.push(case);
                }
            }
        }
        prepared
    }
}

/// The heaps that `plan` wants; if it wants one, the other one is the base.
fn heaps(
    plan: &Plan,
    workload: Workload,
    warnings: &mut Vec<Warning>,
) -> Vec<(&'static str, Sampler)> {
    let mut heaps: Vec<(&'static str, Sampler)> = Vec::new();
    if plan.names(HEAP) {
        let options = RegionOptions::new().max_bytes(64 << 20);
        let options = options.max_tasks(u16::try_from(2 * workload.tasks + 2).unwrap_or(u16::MAX));
        match options.label("bench").create_anonymous() {
            Ok(region) => heaps.push((HEAP, workload.on_heap::<Region>(region))),
            Err(error) => warnings.push(Warning::Skipped {
                text: format!("{HEAP} skipped: {error}"),
            }),
        }
    }
    if plan.names(MALLOC) || !heaps.is_empty() {
        heaps.push((MALLOC, workload.on_heap(Malloc)));
    }
    heaps
}
