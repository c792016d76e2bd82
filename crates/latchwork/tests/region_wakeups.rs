//! Tasks that are killed between a change and the wake-up that belongs to it, and who is woken nevertheless.
#![cfg(not(loom))]
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::isolated;
use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::coproc::{Attributes, Outcome, Signal, wait_any};
use latchwork::event::{EventSet, Events};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Child, Page, Trial, install, is_in_region_sleep, region_sleep_words};

/// Where the slots are in a region. A slot begins with the task's life-word.
const SLOTS: usize = 4096;
const SLOT_BYTES: usize = 1792;
const WAITERS: u32 = 0x8000_0000;

fn region() -> Region {
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(16);
    options.create_anonymous().unwrap()
}

/// A task of the region that does this after it has joined.
fn task(trial: &Trial, region: &Region, act: impl FnOnce()) -> Child {
    let joined = Page::<AtomicU32>::new();
    let child = Child::fork(|| {
        region.join("task").unwrap();
        joined.store(1, SeqCst);
        act();
    });
    trial.wait_until(|| joined.load(SeqCst) == 1);
    child
}

fn sleep_for_ever() {
    loop {
        std::thread::park();
    }
}

/// The word in the region's header that counts the slots which were ever used. The tasks that join for it stay.
fn slots_used<'r>(trial: &Trial, region: &'r Region, tasks: &mut Vec<Child>) -> &'r AtomicU32 {
    // SAFETY: the header is mapped, and its words are atomics.
    let words = unsafe {
        let header = region.base().cast::<AtomicU32>();
        core::slice::from_raw_parts(header, SLOTS / size_of::<AtomicU32>())
    };
    region.join("first").unwrap();
    let mut candidates: Vec<&AtomicU32> = words.iter().collect();
    for used in 2..6 {
        tasks.push(task(trial, region, sleep_for_ever));
        candidates.retain(|word| word.load(SeqCst) == used);
    }
    assert_eq!(candidates.len(), 1, "words that count slots");
    candidates[0]
}

/// A thread that joins raises the number of slots, and wakes the sleepers, since they do not watch its slot yet. If it is killed
/// in between, the next thread that joins gets the same slot, and finds the number raised.
#[test]
fn sleepers_watch_the_slot_of_a_thread_that_was_killed_before_it_woke_them() {
    let trial =
        Trial::begin("sleepers_watch_the_slot_of_a_thread_that_was_killed_before_it_woke_them");
    let region = region();
    let mut tasks = Vec::new();
    let used = slots_used(&trial, &region, &mut tasks);
    let sleeper = task(&trial, &region, || {
        let _ = Events::new(&region).receive_any(EventSet::all());
    });
    trial.wait_until(|| sleeper.is_in_region_sleep());
    let Some(before) = region_sleep_words(sleeper.pid()) else {
        println!("skipped: what a sleeper watches is not known without futex_waitv");
        return;
    };
    // The killed thread.
    used.fetch_add(1, SeqCst);
    let _next = task(&trial, &region, sleep_for_ever);
    trial.wait_until(|| region_sleep_words(sleeper.pid()) == Some(before + 1));
}

/// From now on, this process is killed by its first futex call on the word at this address.
fn die_by_a_futex_call_on(address: usize) {
    let step = |code: u32, k, jf| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    // Where `seccomp_data` has the call, and the halves of its first argument.
    let [low, high] = if cfg!(target_endian = "big") {
        [20, 16]
    } else {
        [16, 20]
    };
    let mut program = [
        step(load, 0, 0),
        step(is, libc::SYS_futex as u32, 5),
        step(load, low, 0),
        step(is, address as u32, 3),
        step(load, high, 0),
        step(is, (address as u64 >> 32) as u32, 1),
        step(answer, libc::SECCOMP_RET_KILL_PROCESS, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0),
    ];
    install(&mut program);
}

/// Returns when its creator sleeps in the join, and is killed as it leaves the region, before it has woken the creator.
fn killed_as_it_leaves(region: &Region, creator: i32) -> i32 {
    while !is_in_region_sleep(creator) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let slot = usize::from(region.task_id().unwrap().slot());
    let place = SLOTS + slot * SLOT_BYTES;
    // SAFETY: the life-word lies in the region, and is an atomic.
    let life = unsafe { &*region.base().add(place).cast::<AtomicU32>() };
    // SAFETY: no preconditions.
    let thread = unsafe { libc::gettid() };
    assert_eq!(life.load(SeqCst), thread as u32 | WAITERS);
    die_by_a_futex_call_on(region.base().addr() + place);
    7
}

#[test]
fn a_join_ends_also_if_the_coproc_is_killed_as_it_leaves() {
    let _trial = Trial::begin("a_join_ends_also_if_the_coproc_is_killed_as_it_leaves");
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        // SAFETY: no preconditions.
        let creator = unsafe { libc::getpid() };
        let coproc = coprocs.spawn_value(killed_as_it_leaves, creator, &Attributes::new());
        let exit = coproc.unwrap().join().unwrap();
        assert_eq!(exit.outcome, Outcome::Returned(7));
    });
}

/// Returns with the lock.
fn leaves_with_the_lock(region: &Region, (): ()) -> i32 {
    let lock = region.find::<Mutex<u64, InRegion>>("lock").unwrap();
    forget(lock.lock().unwrap());
    7
}

/// The kernel wakes one sleeper for a death. If that is the thread that joins, the others depend on what it does.
#[test]
fn a_join_settles_a_death_after_the_result() {
    let _trial = Trial::begin("a_join_settles_a_death_after_the_result");
    isolated(|| {
        let region = region();
        region.object("lock", || Mutex::in_region(0_u64)).unwrap();
        let coprocs = coproc_support::start(&region).unwrap();
        let coproc = coprocs.spawn_value(leaves_with_the_lock, (), &Attributes::new());
        let exit = coproc.unwrap().join().unwrap();
        assert_eq!(exit.outcome, Outcome::Returned(7));
        assert_eq!(region.sweep().unwrap().dead.len(), 0);
    });
}

/// A thread that waits for coprocs of several regions sleeps in one of them.
#[test]
fn a_wait_for_coprocs_of_two_regions_settles_a_death_in_either() {
    let _trial = Trial::begin("a_wait_for_coprocs_of_two_regions_settles_a_death_in_either");
    isolated(|| {
        let regions = [region(), region()];
        regions[1]
            .object("lock", || Mutex::in_region(0_u64))
            .unwrap();
        let [first, second] = regions
            .each_ref()
            .map(|region| coproc_support::start(region).unwrap());
        let long = |_: &Region, ()| loop {
            std::thread::park();
        };
        let long = first
            .spawn_value(long, (), &Attributes::new().die_with_parent())
            .unwrap();
        // SAFETY: no preconditions.
        let creator = unsafe { libc::getpid() };
        let none = Attributes::new();
        for ends in [
            second.spawn_value(leaves_with_the_lock, (), &none),
            // By then it is no task of this generation any more.
            second.spawn_value(killed_as_it_leaves, creator, &none),
        ] {
            let ends = ends.unwrap();
            assert_eq!(wait_any(&[&long, &ends], None).unwrap(), 1);
            assert_eq!(regions[1].sweep().unwrap().dead.len(), 0);
        }
        long.kill(Signal::KILL).unwrap();
    });
}
