//! How the costs of a region grow with its tasks, its named objects, and the regions of the process.
//!
//! Each case is measured at several sizes of one of the three; its base is the same case at the smallest size, so the
//! ratio is the growth. The tasks that make up a size are threads that have joined the region and sleep elsewhere: what
//! grows is the work of the measured thread alone, not competition for CPUs. (In `asleep` they are what is measured.)
//! `docs/scaling.md` says which part of each operation depends on the size.
//!
//! | case | the figure |
//! | --- | --- |
//! | join-and-leave | a thread becomes a task, and leaves; among so many tasks |
//! | sweep | a task of another process was killed: its death is settled |
//! | recovery | from the kill of a lock's owner until a waiter, which slept, has the lock |
//! | asleep | processor time in a second of one of so many waiters for one lock |
//! | survey | `inspect::survey`, the source of `latchwork ps`: it also reads `/proc`, whatever the region's size |
//! | find | a named object is looked up |
//! | make-and-remove | a named object is made and removed |
//! | make-semaphore | a named semaphore is made and deleted |
//! | make-region | a region is made and dropped, while so many are mapped |

mod world;

use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::measure::Case;
use crate::plan::Plan;
use crate::published::Source;
use crate::result::{Kind, Params, Unit, Variant};

pub(super) struct RegionScale;

/// Its name.
pub(super) const NAME: &str = "region-scale";

const REGION: &str = "latchwork region";

const TASKS: [u32; 5] = [1, 10, 100, 1000, 10_000];
const OBJECTS: [u32; 4] = [100, 1000, 10_000, 100_000];
const REGIONS: [u32; 3] = [1, 10, 100];
const QUICK_TASKS: [u32; 3] = [1, 20, 200];
const QUICK_OBJECTS: [u32; 3] = [100, 1000, 10_000];
const QUICK_REGIONS: [u32; 2] = [1, 20];

/// What a case grows with.
#[derive(Clone, Copy)]
enum Along {
    Tasks,
    Objects,
    Regions,
}

const CASES: [(Variant, Along, Unit, world::Make); 10] = [
    (
        Variant::JoinAndLeave,
        Along::Tasks,
        Unit::Ns,
        world::join_and_leave,
    ),
    (Variant::Sweep, Along::Tasks, Unit::Us, world::sweep),
    (Variant::Recovery, Along::Tasks, Unit::Us, world::recovery),
    (Variant::Asleep, Along::Tasks, Unit::Us, world::asleep),
    (Variant::Survey, Along::Tasks, Unit::Us, world::survey_tasks),
    (Variant::Find, Along::Objects, Unit::Ns, world::find),
    (
        Variant::MakeAndRemove,
        Along::Objects,
        Unit::Ns,
        world::make_and_remove,
    ),
    (
        Variant::MakeSemaphore,
        Along::Objects,
        Unit::Ns,
        world::make_semaphore,
    ),
    (
        Variant::Survey,
        Along::Objects,
        Unit::Us,
        world::survey_objects,
    ),
    (
        Variant::MakeRegion,
        Along::Regions,
        Unit::Us,
        world::make_region,
    ),
];

impl Scenario for RegionScale {
    fn name(&self) -> &'static str {
        NAME
    }

    fn about(&self) -> &'static str {
        "what a region's operations cost with more tasks, more named objects and more regions; the ratio is the growth"
    }

    fn source(&self) -> Option<Source> {
        None
    }

    fn base(&self) -> &'static str {
        REGION
    }

    fn contestants(&self) -> Vec<Contestant> {
        vec![Contestant::ready(REGION)]
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        for (case, along, unit, make) in CASES {
            let sizes = sizes(along, plan);
            for size in &sizes {
                let mut params = Params {
                    case: Some(case),
                    kind: Some(Kind::Threads),
                    ..Params::default()
                };
                let group = params.clone();
                let of = match along {
                    Along::Tasks => &mut params.tasks,
                    Along::Objects => &mut params.objects,
                    Along::Regions => &mut params.regions,
                };
                *of = Some(*size);
                // One group for each case and each kind of size.
                let group = Params {
                    tasks: params.tasks.map(|_| sizes[0]),
                    objects: params.objects.map(|_| sizes[0]),
                    regions: params.regions.map(|_| sizes[0]),
                    ..group
                };
                prepared.cases.push(Case {
                    contestant: REGION,
                    group,
                    is_base: *size == sizes[0],
                    params,
                    unit,
                    further: Vec::new(),
                    sampler: make(*size, plan.sample),
                });
            }
        }
        prepared
    }
}

/// The sizes of a case, the smallest first.
fn sizes(along: Along, plan: &Plan) -> Vec<u32> {
    let sizes: &[u32] = match (along, plan.quick) {
        (Along::Tasks, false) => &TASKS,
        (Along::Tasks, true) => &QUICK_TASKS,
        (Along::Objects, false) => &OBJECTS,
        (Along::Objects, true) => &QUICK_OBJECTS,
        (Along::Regions, false) => &REGIONS,
        (Along::Regions, true) => &QUICK_REGIONS,
    };
    sizes.to_vec()
}
