//! MrsP among schedulers, where the kernel takes part: a waiter lends the processor of its scheduler.

use super::bound::{processors_of, real_time_of, thread_id, two_processors};
use super::schedulers::{MRSP, OTHER, split};
use super::*;
use latchwork::classic::{NO_TIMEOUT, WAIT};
use latchwork_testkit::Trial;
use std::sync::mpsc::channel;
use std::thread;

/// The calling thread as a task of this scheduler and priority, which the kernel knows.
fn enter(rtems: Classic<'_>, scheduler: Id, priority: u32) {
    let moved = rtems.task_set_scheduler(SELF, scheduler, priority);
    assert_eq!(moved, Status::Successful);
    assert_eq!(rtems.task_mirror(SELF, true), Status::Successful);
    assert_eq!(real_time_of(0), 100 - priority as i32);
}

#[test]
fn a_waiter_of_another_scheduler_lends_its_processor_and_has_its_own_ceiling() {
    const NAME: &str = "a_waiter_of_another_scheduler_lends_its_processor_and_has_its_own_ceiling";
    let Some([first, second]) = two_processors(NAME) else {
        return;
    };
    let _trial = Trial::begin(NAME);
    let region = region();
    let rtems = split(&region, [first, second].map(|processor| processor as u32));
    let (tell, told) = channel();
    let (go, is_to_go) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            enter(rtems, SCHEDULER, 60);
            let id = create(rtems, 1, MRSP, 50);
            let mut old = 0;
            let set = rtems.semaphore_set_priority(id, OTHER, 45, Some(&mut old));
            assert_eq!(set, Status::Successful);
            assert_eq!(
                rtems.semaphore_obtain(id, WAIT, NO_TIMEOUT),
                Status::Successful
            );
            assert_eq!(real_time_of(0), 50);
            tell.send((id, thread_id())).unwrap();
            is_to_go.recv().unwrap();
            assert_eq!(rtems.semaphore_release(id), Status::Successful);
            assert_eq!(processors_of(0), [first]);
            assert_eq!(real_time_of(0), 40);
        });
        let (id, owner) = told.recv().unwrap();
        scope.spawn(move || {
            enter(rtems, OTHER, 60);
            assert_eq!(
                rtems.semaphore_obtain(id, WAIT, NO_TIMEOUT),
                Status::Successful
            );
            assert_eq!(current(rtems, SELF), 45);
            assert_eq!(real_time_of(0), 55);
            assert_eq!(rtems.semaphore_release(id), Status::Successful);
            assert_eq!(processors_of(0), [second]);
            assert_eq!(real_time_of(0), 40);
        });
        let mut both = [first, second];
        both.sort_unstable();
        // The owner sleeps in its section, and may run on both processors.
        semaphore_support::until(|| processors_of(owner) == both);
        go.send(()).unwrap();
    });
}
