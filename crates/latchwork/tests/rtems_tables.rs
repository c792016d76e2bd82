//! RTEMS's own tables of pre- and post-conditions, run against the classic semaphores.
#![cfg(not(loom))]

use core::time::Duration;
use latchwork::classic::{
    CURRENT_PRIORITY, Classic, ClassicOptions, SCHEDULER, SEARCH_ALL_NODES, SELF, Status,
};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::Trial;
use latchwork_testkit::conformance::semaphores::{self, ClassicSemaphores};
use std::sync::Arc;

struct Ours {
    region: Region,
    capacity: u16,
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
    fn capacity(&self) -> u32 {
        self.capacity.into()
    }
}

#[test]
fn classic_semaphores_do_as_rtems_tables_say() {
    let _trial = Trial::begin("classic_semaphores_do_as_rtems_tables_say");
    const CAPACITY: u16 = 8;
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap();
    let options = ClassicOptions::new()
        .semaphores(CAPACITY)
        .tick(Duration::from_millis(1));
    Classic::create(&region, &options).unwrap();
    let ours = Ours {
        region,
        capacity: CAPACITY,
    };
    semaphores::run(&Arc::new(ours)).assert_passed();
}
