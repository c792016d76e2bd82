//! Region locks in signal handlers that interrupt the taking and releasing of others, and forks in such handlers.
#![allow(unsafe_code)]

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::SeqCst};
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionProtocol};
use latchwork::region::{DetachError, Region, RegionOptions};
use latchwork_testkit::Trial;
use std::process::abort;
use std::thread;

use crate::region_form_support::with_every_form;
use crate::single_step;

type Lock<P> = Mutex<u64, InRegion<P>>;

with_every_form!(
    a_handler_takes_other_locks_at_any_instruction_and_the_count_stays_right
    a_fork_at_any_instruction_of_an_unlock_takes_the_lock_from_no_other_task
);

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(16)
        .create_anonymous()
        .unwrap()
}

fn lock_in<'a, P: RegionProtocol>(region: &'a Region, name: &str) -> &'a Lock<P> {
    region
        .object(name, || Mutex::from_raw(InRegion::new(), 0))
        .unwrap()
        .get_ref()
}

/// Each of so many instructions of a fast path, or some of the many that an unoptimised one has.
fn spread(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(count.div_ceil(120))
}

static OTHERS: [AtomicPtr<()>; 2] = [const { AtomicPtr::new(core::ptr::null_mut()) }; 2];

fn take_other_locks<P: RegionProtocol>() {
    for other in &OTHERS {
        // SAFETY: a lock in a region that outlives the interrupted operations.
        let other = unsafe { &*other.load(SeqCst).cast::<Lock<P>>() };
        let Ok(_held) = other.lock() else { abort() };
        if !matches!(other.lock(), Err(LockError::Deadlock)) {
            abort();
        }
    }
}

/// A user-mode kernel does not let a thread set its own trap flag.
fn skips(test: &str) -> bool {
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_user_mode = processors.contains("User Mode Linux");
    if is_user_mode {
        println!("skipped: {test}: a thread has no trap flag in a user-mode kernel");
    }
    is_user_mode
}

/// In the first region of the thread, and in another one.
fn a_handler_takes_other_locks_at_any_instruction_and_the_count_stays_right<P: RegionProtocol>() {
    let trial =
        Trial::begin("a_handler_takes_other_locks_at_any_instruction_and_the_count_stays_right");
    if skips(trial.name()) {
        return;
    }
    let regions = [region(), region()];
    for (other, region) in OTHERS.iter().zip(&regions) {
        other.store(
            core::ptr::from_ref(lock_in::<P>(region, "handler"))
                .cast_mut()
                .cast(),
            SeqCst,
        );
        region.join("stepped").unwrap();
    }
    for region in &regions {
        let lock = lock_in::<P>(region, "interrupted");
        let mut held = None;
        let mut steps = |at: core::ops::Range<usize>| {
            let take = || held = Some(lock.lock().unwrap());
            let taken_in = single_step::run(take_other_locks::<P>, at.clone(), take);
            assert!(matches!(
                region.clone().detach(),
                Err(DetachError::Holding { locks: 1, .. })
            ));
            let released_in = single_step::run(take_other_locks::<P>, at, || held = None);
            trial.progress();
            taken_in.max(released_in)
        };
        let count = steps(0..usize::MAX);
        assert!(count > 20, "the trap flag has no effect");
        for at in spread(count) {
            steps(at..at + 1);
        }
    }
    for region in regions {
        region.detach().unwrap();
    }
}

static IS_CHILD: AtomicBool = AtomicBool::new(false);
/// 1: the child has ended; 2: another thread has tried the lock; 3: the operation has ended.
static STAGE: AtomicU32 = AtomicU32::new(0);

fn fork_and_let_another_thread_try() {
    // SAFETY: the child only ends the interrupted operation, and itself.
    let child = unsafe { libc::fork() };
    if child == 0 {
        IS_CHILD.store(true, SeqCst);
        return;
    }
    let mut status = 0;
    // SAFETY: a child of this process, and a place for its status. (It aborts if it drops a guard of its parent.)
    if unsafe { libc::waitpid(child, &raw mut status, 0) } != child {
        abort();
    }
    STAGE.store(1, SeqCst);
    while STAGE.load(SeqCst) == 1 {
        spin_loop();
    }
}

/// The child goes on with its parent's unlock, and may be the one that frees the lock.
fn a_fork_at_any_instruction_of_an_unlock_takes_the_lock_from_no_other_task<P: RegionProtocol>() {
    let trial =
        Trial::begin("a_fork_at_any_instruction_of_an_unlock_takes_the_lock_from_no_other_task");
    if skips(trial.name()) {
        return;
    }
    let region = region();
    let lock = lock_in::<P>(&region, "lock");
    drop(lock.lock().unwrap());
    let step = |at: usize| {
        STAGE.store(0, SeqCst);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                region.join("other").unwrap();
                while STAGE.load(SeqCst) == 0 {
                    spin_loop();
                }
                let taken = lock.try_lock();
                let has_it = taken.is_ok();
                let _ = STAGE.compare_exchange(1, 2, SeqCst, SeqCst);
                while STAGE.load(SeqCst) != 3 {
                    spin_loop();
                }
                has_it && !matches!(lock.try_lock(), Err(LockError::Deadlock))
            });
            let mut held = Some(lock.lock().unwrap());
            let handler = fork_and_let_another_thread_try;
            let count = single_step::run(handler, at..at + 1, || held = None);
            if IS_CHILD.load(SeqCst) {
                // SAFETY: ends the child.
                unsafe { libc::_exit(0) };
            }
            STAGE.store(3, SeqCst);
            let was_robbed = other.join().unwrap();
            assert!(!was_robbed, "at instruction {at}");
            count
        })
    };
    let count = step(usize::MAX - 1);
    assert!(count > 20, "the trap flag has no effect");
    for at in spread(count) {
        step(at);
        trial.progress();
    }
}
