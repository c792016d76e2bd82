//! RTEMS's own tables of pre- and post-conditions, run against the classic semaphores.
#![cfg(not(loom))]

#[path = "semaphore_mrsp/bound.rs"]
mod bound;

use latchwork::classic::{
    CURRENT_PRIORITY, Classic, ClassicOptions, SCHEDULER, SEARCH_ALL_NODES, SELF, Status,
    build_name,
};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::Watchdog;
use latchwork_testkit::conformance::semaphores::{self, ClassicSemaphores};
use std::sync::Arc;

struct Ours {
    region: Region,
    capacity: u16,
    schedulers: Vec<u32>,
    watchdog: Watchdog,
}

impl Ours {
    fn classic(&self) -> Classic<'_> {
        Classic::open(&self.region).unwrap()
    }

    fn priority(&self, task: u32, new: u32) -> u32 {
        let mut old = 0;
        let answer = self.classic().task_set_priority(task, new, Some(&mut old));
        assert_eq!(answer, Status::Successful);
        old
    }
}

impl ClassicSemaphores for Ours {
    fn join(&self, priority: u32) -> u64 {
        // Beside other programs all tables take minutes.
        self.watchdog.progress();
        self.priority(SELF, priority);
        self.classic().task_self().into()
    }
    fn set_own_priority(&self, priority: u32) {
        self.priority(SELF, priority);
    }
    fn priority_of(&self, task: u64) -> u32 {
        self.priority(task as u32, CURRENT_PRIORITY)
    }
    fn create(&self, name: u32, count: u32, bits: u32, ceiling: u32, id: Option<&mut u32>) -> u32 {
        let classic = self.classic();
        classic
            .semaphore_create(name, count, bits, ceiling, id)
            .code()
    }
    fn ident(&self, name: u32, id: Option<&mut u32>) -> u32 {
        self.classic()
            .semaphore_ident(name, SEARCH_ALL_NODES, id)
            .code()
    }
    fn delete(&self, id: u32) -> u32 {
        self.classic().semaphore_delete(id).code()
    }
    fn obtain(&self, id: u32, options: u32, ticks: u32) -> u32 {
        self.classic().semaphore_obtain(id, options, ticks).code()
    }
    fn release(&self, id: u32) -> u32 {
        self.classic().semaphore_release(id).code()
    }
    fn flush(&self, id: u32) -> u32 {
        self.classic().semaphore_flush(id).code()
    }
    fn set_priority(&self, id: u32, scheduler: u32, new: u32, old: Option<&mut u32>) -> u32 {
        let classic = self.classic();
        classic
            .semaphore_set_priority(id, scheduler, new, old)
            .code()
    }
    fn scheduler(&self) -> u32 {
        SCHEDULER
    }
    fn schedulers(&self) -> Vec<u32> {
        self.schedulers.clone()
    }
    fn set_own_scheduler(&self, scheduler: u32, priority: u32) -> u32 {
        self.classic()
            .task_set_scheduler(SELF, scheduler, priority)
            .code()
    }
    fn processor(&self) -> u32 {
        self.classic().scheduler_get_processor()
    }
    fn capacity(&self) -> u32 {
        self.capacity.into()
    }
}

/// A system with a scheduler of all processors; or with one for each of the processors, and another without any.
fn system(processors: &[usize]) -> Arc<Ours> {
    const CAPACITY: u16 = 8;
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap();
    let mut options = ClassicOptions::new()
        .semaphores(CAPACITY)
        .tick(semaphores::TICK);
    for (name, processor) in (1..).zip(processors) {
        options = options.scheduler(name, &[*processor as u32]);
    }
    if !processors.is_empty() {
        options = options.scheduler(build_name(*b"NONE"), &[]);
    }
    Classic::create(&region, &options).unwrap();
    Arc::new(Ours {
        region,
        capacity: CAPACITY,
        schedulers: (SCHEDULER..).take(processors.len().max(1)).collect(),
        watchdog: Watchdog::start("classic_semaphores_do_as_rtems_tables_say".to_owned()),
    })
}

#[test]
fn classic_semaphores_do_as_rtems_tables_say() {
    semaphores::run(&system(&[])).assert_passed();
    match &bound::processors_of(0)[..] {
        all @ [_, _, ..] => {
            semaphores::run(&system(&all[..all.len().min(3)])).assert_passed();
        }
        _ => {
            println!("skipped: combinations with several schedulers (FewSchedulers): one processor")
        }
    }
}
