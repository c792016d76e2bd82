//! Checked tasks that are killed at any instruction, the checker's own included: the others go on, and nothing
//! is found, for nothing is wrong.

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use latchwork::check::{self, Checked, Finding};
use latchwork::mutex::{LockError, Mutex, Protocol, Robust, RobustGuard, WaitWake};
use latchwork::region::{RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork_testkit::{Storm, Trial, Worker};

type Kind = Checked<WaitWake<Shared>>;
type Lock = Mutex<u64, Robust<Kind>>;

#[derive(Shareable)]
#[repr(C)]
struct Arena {
    locks: [Lock; 3],
    findings: AtomicU64,
    progress: [AtomicU64; 16],
}

fn take(lock: Pin<&Lock>) -> RobustGuard<'_, u64, Kind> {
    match lock.lock() {
        Ok(guard) => guard,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

/// Where this process counts what it finds.
static COUNT: core::sync::atomic::AtomicPtr<AtomicU64> =
    core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

fn count(finding: &Finding) {
    eprintln!("{finding}");
    let count = COUNT.load(SeqCst);
    // SAFETY: null, or a counter of a named object, which stays mapped.
    #[allow(unsafe_code)]
    if let Some(count) = unsafe { count.as_ref() } {
        count.fetch_add(1, SeqCst);
    }
}

#[test]
fn killed_checked_tasks_harm_neither_the_others_nor_the_checker() {
    let name = "killed_checked_tasks_harm_neither_the_others_nor_the_checker";
    let trial = Trial::begin(name);
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap();
    let make = || Arena {
        locks: [(); 3].map(|()| Mutex::from_raw(Robust::new(), 0)),
        findings: AtomicU64::new(0),
        progress: [const { AtomicU64::new(0) }; 16],
    };
    let arena = region.object("arena", make).unwrap();
    let arena: &Arena = &arena;
    let pinned = region.pin(arena);
    let work = |worker: Worker| {
        COUNT.store((&raw const arena.findings).cast_mut(), SeqCst);
        check::set_text(false);
        check::set_reporter(Some(count));
        let private: Checked<WaitWake> = Checked::named("private", WaitWake::new());
        let mut random = worker.rng();
        loop {
            // In one order, with some left out.
            let mut held = Vec::new();
            let _ = private.acquire();
            for index in 0..arena.locks.len() {
                if random.bool() {
                    #[allow(unsafe_code)]
                    // SAFETY: a part of a named object, which never moves.
                    let lock =
                        unsafe { Pin::map_unchecked(pinned, |arena: &Arena| &arena.locks[index]) };
                    held.push(take(lock));
                }
            }
            drop(held);
            #[allow(unsafe_code)]
            // SAFETY: taken above.
            unsafe {
                private.release();
            }
            arena.progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, 4, work);
    let kills = trial.times(40);
    while storm.kills() < kills {
        storm.kill();
        storm.wait_for_progress(|seat| arena.progress[seat].load(SeqCst));
    }
    storm.kill_all();
    storm.finish();
    assert_eq!(arena.findings.load(SeqCst), 0, "false alarms");
    region.sweep().unwrap();
    region.check_heap().unwrap();
}
