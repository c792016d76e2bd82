//! The scenarios.

mod broadcast;
mod busy;
mod call_overhead;
mod check_overhead;
mod contention;
mod context_switch;
mod donation;
pub(crate) mod fine_grained;
mod footprint;
mod futex_lock;
mod futex_rwlock;
mod heap;
mod inversion;
mod message_throughput;
mod region_scale;
mod rt_latency;
mod scenario;
mod spawn;
mod start;
mod vfs;
mod wait_wakeup;

use crate::Error;
use crate::args::Options;
use crate::plan::Plan;

use scenario::contestants_at;
pub(crate) use scenario::{Prepared, Scenario};

/// Every scenario, in the order of `list`.
pub(crate) const ALL: &[&dyn Scenario] = &[
    &call_overhead::CallOverhead,
    &check_overhead::CheckOverhead,
    &wait_wakeup::WaitWakeup,
    &inversion::Inversion,
    &donation::Donation,
    &broadcast::Broadcast,
    &message_throughput::MessageThroughput,
    &futex_lock::FutexLock,
    &futex_rwlock::FutexRwLock,
    &fine_grained::FineGrained,
    &context_switch::ContextSwitch,
    &spawn::Spawn,
    &heap::Heap,
    &footprint::Footprint,
    &rt_latency::RtLatency,
    &vfs::Vfs,
    &busy::Busy,
    &region_scale::RegionScale,
];

/// The scenarios that show how costs grow: with the number of tasks, and with what a region contains.
pub(crate) fn that_scale() -> Vec<&'static dyn Scenario> {
    let grows = |scenario: &&&dyn Scenario| {
        scenario.varies_tasks() || scenario.name() == region_scale::NAME
    };
    ALL.iter().filter(grows).copied().collect()
}

/// 1, 2, 4 and so on, up to twice the number of CPUs, which oversubscribes them.
pub(crate) fn task_counts(cpus: usize) -> Vec<u32> {
    let most = u32::try_from(2 * cpus).unwrap_or(256).min(256);
    let powers = std::iter::successors(Some(1_u32), |tasks| tasks.checked_mul(2));
    let mut counts: Vec<u32> = powers.take_while(|tasks| *tasks < most).collect();
    counts.push(most);
    counts
}

/// Plans a run, if the chosen scenarios know all names in `options`.
pub(crate) fn plan(options: &Options, chosen: &[&dyn Scenario]) -> Result<Plan, Error> {
    let plan = Plan::new(options)?;
    if let Some(scenario) = chosen.first()
        && !options.tasks.is_empty()
        && !chosen.iter().any(|scenario| scenario.varies_tasks())
    {
        return Err(Error::TasksDoNotApply {
            scenario: scenario.name(),
        });
    }
    let of_loads = [
        ("--load", !options.load.is_empty()),
        ("--window", options.window.is_some()),
    ];
    if let Some((option, _)) = of_loads.iter().find(|(_, given)| *given)
        && !chosen.iter().any(|scenario| scenario.varies_loads())
    {
        return Err(Error::NothingOfLoads { option });
    }
    let mut known: Vec<&'static str> = Vec::new();
    for contestant in chosen.iter().flat_map(|scenario| scenario.contestants()) {
        if !known.contains(&contestant.name) {
            known.push(contestant.name);
        }
    }
    let unknown = |name: &&String| !known.contains(&name.as_str());
    match options.only.iter().find(unknown) {
        Some(name) => Err(Error::UnknownContestant {
            name: name.clone(),
            known,
        }),
        None => Ok(plan),
    }
}
