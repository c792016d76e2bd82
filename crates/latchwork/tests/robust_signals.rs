//! Robust mutexes in signal handlers that interrupt the taking and releasing of others.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use latchwork::mutex::{LockError, Mutex, Robust};
#[cfg(target_arch = "x86_64")]
use latchwork::region::RegionOptions;
use latchwork_testkit::{Trial, in_dying_thread};
use std::process::abort;
use std::thread;

mod robust_support;
#[cfg(target_arch = "x86_64")]
mod single_step;
use latchwork_testkit::ThreadId;
use robust_support::{announced, list_is_empty};
#[cfg(target_arch = "x86_64")]
use robust_support::{list, list_is_whole};

type Ours = Mutex<u32, Robust>;

static HANDLERS: Ours = Mutex::robust(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);
static AFTER: AtomicUsize = AtomicUsize::new(0);

extern "C" fn take_another_lock(_: libc::c_int) {
    BEFORE.store(announced(), Ordering::Relaxed);
    let Ok(mut runs) = Pin::static_ref(&HANDLERS).lock() else {
        abort()
    };
    *runs += 1;
    drop(runs);
    AFTER.store(announced(), Ordering::Relaxed);
}

fn install_handler() {
    // SAFETY: all-zero is a valid sigaction; the handler is safe to run anywhere.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = take_another_lock as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
    }
}

#[test]
fn a_signal_handlers_lock_leaves_the_interrupted_announcement_as_it_was() {
    let trial =
        Trial::begin("a_signal_handlers_lock_leaves_the_interrupted_announcement_as_it_was");
    install_handler();
    let lock = pin!(Mutex::robust(0_u32));
    let lock = lock.as_ref();
    let guard = lock.lock().unwrap();
    let id = ThreadId::default();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            id.set();
            drop(lock.lock().unwrap());
            assert_eq!(announced(), 0);
            assert!(list_is_empty());
        });
        trial.wait_until(|| id.is_in_futex());
        AFTER.store(0, Ordering::Relaxed);
        id.signal(libc::SIGUSR1);
        trial.wait_until(|| AFTER.load(Ordering::Relaxed) != 0);
        assert_eq!(
            AFTER.load(Ordering::Relaxed),
            BEFORE.load(Ordering::Relaxed)
        );
        trial.wait_until(|| id.is_in_futex());
        drop(guard);
        waiter.join().unwrap();
    });
}

#[test]
fn signal_handlers_may_lock_at_any_point_of_a_lock_or_unlock() {
    const SIGNALS: u32 = 1000;
    let trial = Trial::begin("signal_handlers_may_lock_at_any_point_of_a_lock_or_unlock");
    install_handler();
    let lock = pin!(Mutex::robust(0_u32));
    let lock = lock.as_ref();
    let id = ThreadId::default();
    let runs = || *Pin::static_ref(&HANDLERS).lock().unwrap();
    let begin = runs();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            in_dying_thread(|| {
                // The first use allocates: no signal before it.
                drop(lock.lock().unwrap());
                id.set();
                while !end.load(Ordering::Relaxed) {
                    *lock.lock().unwrap() += 1;
                }
                assert_eq!(announced(), 0);
                assert!(list_is_empty());
                forget(lock.lock());
            })
        });
        trial.wait_until(|| id.is_set());
        for sent in 1..=SIGNALS {
            id.signal(libc::SIGUSR1);
            trial.wait_until(|| runs() >= begin + sent);
        }
        end.store(true, Ordering::Relaxed);
        worker.join().unwrap();
    });
    assert!(matches!(lock.lock(), Err(LockError::OwnerDied(_))));
}

/// Whether a handler found its lock where the kernel would not.
#[cfg(target_arch = "x86_64")]
static LOST: AtomicBool = AtomicBool::new(false);

#[cfg(target_arch = "x86_64")]
fn take_another_lock_which_the_kernel_finds() {
    let before = list().count();
    let Ok(guard) = Pin::static_ref(&HANDLERS).lock() else {
        abort()
    };
    LOST.fetch_or(list().count() != before + 1, Ordering::Relaxed);
    drop(guard);
}

/// Locks are taken and released among others, in front of them and between them.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_handlers_lock_at_any_instruction_leaves_the_list_intact() {
    /// Lock, or unlock, and how many are held then.
    const STEPS: [(usize, usize); 6] = [(0, 1), (1, 2), (2, 3), (1, 2), (2, 1), (0, 0)];
    /// Instructions that are interrupted alone; each is, together with all others.
    const SINGLE: u64 = 30;
    let trial = Trial::begin("a_handlers_lock_at_any_instruction_leaves_the_list_intact");
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap();
    let locks = [const { Mutex::robust(0_u32) }; 3];
    let locks = pin!(locks);
    // SAFETY: pinned with the array.
    let locks = locks
        .as_ref()
        .get_ref()
        .each_ref()
        .map(|lock| unsafe { Pin::new_unchecked(lock) });
    let play = |interrupted: usize, instructions: core::ops::Range<usize>| {
        let mut guards = [const { None }; 3];
        let mut count = 0;
        let others = list().count();
        for (index, (lock, held)) in STEPS.into_iter().enumerate() {
            let mut toggle = || {
                guards[lock] = match guards[lock].take() {
                    Some(_) => None,
                    None => locks[lock].lock().ok(),
                };
            };
            if index == interrupted {
                count = single_step::run(
                    take_another_lock_which_the_kernel_finds,
                    instructions.clone(),
                    toggle,
                );
            } else {
                toggle();
            }
            assert!(
                // A region has a life-word and a tail there.
                list_is_whole(others / 2) && list().count() == others + held,
                "step {index}, instructions {instructions:?} of step {interrupted}"
            );
        }
        trial.progress();
        count
    };
    // The first use allocates: no signal before it.
    drop(Pin::static_ref(&HANDLERS).lock().unwrap());
    let mut rng = trial.seed().rng(0);
    for join in [false, true] {
        if join {
            region.join("stepped").unwrap();
        }
        for step in 0..STEPS.len() {
            let count = play(step, 0..usize::MAX);
            assert!(count > 20, "the trap flag has no effect");
            let stride = count.div_ceil(trial.times(SINGLE) as usize);
            for at in (rng.usize(..stride)..count).step_by(stride) {
                play(step, at..at + 1);
            }
        }
    }
    assert!(!LOST.load(Ordering::Relaxed));
    assert_eq!(announced(), 0);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_handlers_lock_at_any_instruction_of_joining_and_leaving_a_region_is_found() {
    let trial =
        Trial::begin("a_handlers_lock_at_any_instruction_of_joining_and_leaving_a_region_is_found");
    let regions: [_; 2] = core::array::from_fn(|_| {
        RegionOptions::new()
            .max_bytes(1 << 20)
            .max_tasks(4)
            .max_names(4)
            .create_anonymous()
            .unwrap()
    });
    // The first use allocates: no signal before it.
    drop(Pin::static_ref(&HANDLERS).lock().unwrap());
    for (first, second) in [(0, 1), (1, 0)] {
        let mut leaving = regions.each_ref().map(|region| Some(region.clone()));
        let mut count = 0;
        let mut step = |operation: &mut dyn FnMut()| {
            let handler = take_another_lock_which_the_kernel_finds;
            count += single_step::run(handler, 0..usize::MAX, operation);
            assert!(!LOST.swap(false, Ordering::Relaxed), "after {count} steps");
            assert!(list_is_whole(list().count() / 2));
            trial.progress();
        };
        for region in &regions {
            step(&mut || region.join("stepped").unwrap());
        }
        for index in [first, second] {
            step(&mut || leaving[index].take().unwrap().detach().unwrap());
        }
        println!("{count} instructions");
    }
    assert!(list_is_empty());
    assert_eq!(announced(), 0);
}

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn a_handlers_lock_at_any_instruction_leaves_the_list_intact() {
    println!("skipped: only on x86-64 can a thread trap its own instructions");
}

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn a_handlers_lock_at_any_instruction_of_joining_and_leaving_a_region_is_found() {
    println!("skipped: only on x86-64 can a thread trap its own instructions");
}
