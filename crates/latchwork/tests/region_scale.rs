//! Regions with more tasks than one sleep can watch, and with many names: who notices a death, and that each call still ends.
#![cfg(not(loom))]

use core::mem::forget;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex};
use latchwork::region::{ObjectError, Region, RegionOptions};
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, ObtainError,
};
use latchwork_testkit::{Child, Page, Trial, has_futex_waitv};
use std::sync::Barrier;
use std::thread;

type Lock = Mutex<u64, InRegion>;

/// More slots than one sleep can watch, and as many neighbours as a sleeper watches.
const MANY: usize = 200;

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(64 << 20)
        .max_tasks(1024)
        .label("region_scale")
        .create_anonymous()
        .unwrap()
}

fn lock_in<'r>(region: &'r Region, name: &str) -> &'r Lock {
    let lock = region.object(name, || Mutex::in_region(0));
    lock.unwrap().get_ref()
}

/// A region in which so many slots were used.
fn used_region() -> Region {
    let region = region();
    let all_joined = Barrier::new(MANY);
    thread::scope(|scope| {
        for _ in 0..MANY {
            scope.spawn(|| {
                region.join("early").unwrap();
                all_joined.wait();
            });
        }
    });
    region
}

/// A process that has the lock until it is killed. It takes a slot before all that are forked later.
fn owner_of(trial: &Trial, lock: &'static Lock) -> Child {
    let owner = Child::fork(|| {
        let _held = lock.lock().unwrap();
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| lock.try_lock().is_err());
    owner
}

/// Waits for a lock whose owner dies.
fn outlive_owner(lock: &'static Lock) -> Child {
    Child::fork(|| match lock.lock() {
        Err(LockError::OwnerDied(died)) => *died.make_consistent() += 1,
        other => panic!("{other:?}"),
    })
}

/// Until a task sleeps, most likely: beyond its first sleep, which is a short one.
fn wait_for_sleep(trial: &Trial, task: &Child) {
    trial.wait_until(|| task.is_in_futex());
    thread::sleep(Duration::from_millis(20));
    trial.wait_until(|| task.is_in_futex());
}

#[derive(Clone, Copy, Debug)]
enum First {
    /// The waiter is the only sleeper.
    Nobody,
    Sleeps,
    IsStopped,
    IsKilled,
}

/// The sleeper's neighbours are the tasks that joined after it, so it does not watch the owner.
#[test]
fn a_death_is_noticed_whatever_became_of_the_first_sleeper() {
    let trial = Trial::begin("a_death_is_noticed_whatever_became_of_the_first_sleeper");
    let region: &'static Region = Box::leak(Box::new(used_region()));
    let (lock, other) = (lock_in(region, "lock"), lock_in(region, "other"));
    for first in [
        First::Nobody,
        First::Sleeps,
        First::IsStopped,
        First::IsKilled,
    ] {
        let held = other.lock().unwrap();
        let mut owner = owner_of(&trial, lock);
        let mut sleeper = match first {
            First::Nobody => None,
            _ => Some(Child::fork(|| drop(other.lock().unwrap()))),
        };
        if let Some(sleeper) = &sleeper {
            wait_for_sleep(&trial, sleeper);
        }
        let waiter = outlive_owner(lock);
        wait_for_sleep(&trial, &waiter);
        if let (First::IsStopped, Some(sleeper)) = (first, &sleeper) {
            sleeper.signal(libc::SIGSTOP);
            trial.wait_until(|| sleeper.is_stopped());
        }
        if let (First::IsKilled, Some(sleeper)) = (first, &mut sleeper) {
            sleeper.kill();
        }
        owner.kill();
        waiter.succeed();
        drop(held);
        if let Some(sleeper) = sleeper
            && !matches!(first, First::IsKilled)
        {
            sleeper.signal(libc::SIGCONT);
            sleeper.succeed();
        }
    }
    assert_eq!(*lock.lock().unwrap(), 4);
}

/// The waiter asks about no owner by itself, as one for a lock does.
#[test]
fn the_waiter_for_a_semaphore_notices_a_death_beside_a_stopped_lookout() {
    let trial = Trial::begin("the_waiter_for_a_semaphore_notices_a_death_beside_a_stopped_lookout");
    let region: &'static Region = Box::leak(Box::new(used_region()));
    let empty = CountingSemaphore::create(region, "empty", 0, Discipline::Fifo).unwrap();
    let held = BinarySemaphore::create(region, "held", &BinaryOptions::new()).unwrap();
    let mut owner = Child::fork(|| {
        held.obtain().unwrap().keep();
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| held.owner().is_some());
    let mut lookout = Child::fork(|| drop(empty.obtain()));
    wait_for_sleep(&trial, &lookout);
    let waiter = Child::fork(|| drop(held.obtain().unwrap()));
    wait_for_sleep(&trial, &waiter);
    lookout.signal(libc::SIGSTOP);
    trial.wait_until(|| lookout.is_stopped());
    owner.kill();
    waiter.succeed();
    lookout.kill();
}

/// Sleeps of which none lasts for as long as lies between two checks of all tasks, by a task that does not watch the owner of
/// `lock`, who is killed.
fn notice_by_short_sleeps(trial: &Trial, region: &'static Region) {
    let empty = CountingSemaphore::create(region, "empty", 0, Discipline::Fifo).unwrap();
    let [lock, joined, dead] = ["lock", "joined", "dead"].map(|name| lock_in(region, name));
    let mut owner = owner_of(trial, lock);
    let not_dead = dead.lock().unwrap();
    let sleeper = Child::fork(|| {
        let _joined = joined.lock().unwrap();
        while dead.try_lock().is_err() {
            thread::sleep(Duration::from_millis(1));
        }
        for _ in 0..20 {
            let ended = empty.obtain_for(Duration::from_millis(30));
            assert!(matches!(ended, Err(ObtainError::TimedOut)));
        }
        // A sweep that finds the death now would be the first that does.
        assert_eq!(region.sweep().unwrap().dead, [""; 0]);
    });
    trial.wait_until(|| joined.try_lock().is_err());
    owner.kill();
    drop(not_dead);
    sleeper.succeed();
}

/// The only sleeper takes turns with itself as the lookout.
#[test]
fn short_sleeps_together_notice_a_death() {
    let trial = Trial::begin("short_sleeps_together_notice_a_death");
    let region: &'static Region = Box::leak(Box::new(used_region()));
    notice_by_short_sleeps(&trial, region);
}

/// A lookout was killed, and the next task in its slot does not sleep.
#[test]
fn a_successor_in_the_slot_is_not_taken_for_the_lookout() {
    let trial = Trial::begin("a_successor_in_the_slot_is_not_taken_for_the_lookout");
    let region: &'static Region = Box::leak(Box::new(used_region()));
    let held = lock_in(region, "held").lock().unwrap();
    let mut lookout = Child::fork(|| drop(lock_in(region, "held").lock().unwrap()));
    wait_for_sleep(&trial, &lookout);
    lookout.kill();
    region.sweep().unwrap();
    // It gets the first slot that is free.
    let mut successor = owner_of(&trial, lock_in(region, "successor's"));
    notice_by_short_sleeps(&trial, region);
    drop(held);
    successor.kill();
}

#[test]
fn hundreds_of_waiters_in_two_processes_get_the_lock_of_a_dead_owner_although_one_process_is_killed()
 {
    let trial = Trial::begin("hundreds of waiters");
    let region: &'static Region = Box::leak(Box::new(region()));
    let lock = lock_in(region, "lock");
    let joined = lock_in(region, "joined");
    let mut owner = owner_of(&trial, lock);
    let wait_for_lock = || {
        *joined.lock().unwrap() += 1;
        match lock.lock() {
            Ok(mut count) => *count += 1,
            Err(LockError::OwnerDied(died)) => *died.make_consistent() += 1,
            Err(error) => panic!("{error}"),
        }
    };
    let all_wait = |count: u64| trial.wait_until(|| *joined.lock().unwrap() == count);
    let in_threads = || {
        thread::scope(|scope| {
            for _ in 0..300 {
                scope.spawn(wait_for_lock);
            }
        });
    };
    let mut others = Child::fork(in_threads);
    all_wait(300);
    thread::scope(|scope| {
        scope.spawn(in_threads);
        all_wait(600);
        others.kill();
        owner.kill();
    });
    assert_eq!(*lock.lock().unwrap(), 300);
}

/// 10,000 tasks of two processes (fewer where `LATCHWORK_KILLS` says so) wait for 100 locks, of 100,000 in the region.
#[test]
fn ten_thousand_waiters_get_the_locks_of_a_dead_owner_and_each_death_is_reported_once() {
    const OBJECTS: usize = 100_000;
    let trial = Trial::begin("ten thousand waiters");
    // Sleepers that wake 20 times a second each would leave nothing of two processors.
    let waiters = if has_futex_waitv() { 10_000 } else { 1_000 };
    let each = trial.times(waiters) as usize / 2;
    let region = RegionOptions::new()
        .max_bytes(256 << 20)
        .max_tasks(12_000)
        .max_names(OBJECTS as u32 * 5 / 4)
        .label("region_scale")
        .create_anonymous();
    let region: &'static Region = Box::leak(Box::new(region.unwrap()));
    let locks: Vec<&Lock> = (0..OBJECTS)
        .map(|number| lock_in(region, &format!("lock {number}")))
        .collect();
    let held = &locks[..100];
    let [joined, deaths, missing] = [(); 3].map(|()| Page::<AtomicU32>::new());
    let mut owner = Child::fork(|| {
        held.iter().for_each(|lock| forget(lock.lock().unwrap()));
        joined.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| joined.load(SeqCst) == 1);
    let wait = |lock: &Lock| {
        region.join("waiter").unwrap();
        joined.fetch_add(1, SeqCst);
        match lock.lock() {
            Ok(mut count) => *count += 1,
            Err(LockError::OwnerDied(died)) => {
                *died.make_consistent() += 1;
                deaths.fetch_add(1, SeqCst);
            }
            Err(error) => panic!("{error}"),
        }
    };
    // Both before the threads, which may use up what the user may have.
    let processes = [1, 1 + each].map(|before| {
        Child::fork(|| {
            trial.wait_until(|| joined.load(SeqCst) as usize >= before);
            thread::scope(|scope| {
                for lock in held.iter().cycle().take(each) {
                    let small = thread::Builder::new().stack_size(256 << 10);
                    if small.spawn_scoped(scope, || wait(lock)).is_err() {
                        missing.fetch_add(1, SeqCst);
                        joined.fetch_add(1, SeqCst);
                    }
                }
            });
        })
    });
    trial.wait_until(|| joined.load(SeqCst) as usize == 1 + 2 * each);
    owner.kill();
    processes.into_iter().for_each(Child::succeed);
    let counts: Vec<u64> = held.iter().map(|lock| *lock.lock().unwrap()).collect();
    let missing = missing.load(SeqCst);
    if missing != 0 {
        println!(
            "skipped: {missing} of {} waiters: no room for their threads",
            2 * each
        );
    }
    assert_eq!(
        counts.iter().sum::<u64>() + u64::from(missing),
        2 * each as u64,
        "{counts:?}"
    );
    if missing == 0 {
        assert_eq!(deaths.load(SeqCst), 100);
    }
}

#[test]
fn names_are_found_in_a_full_directory_and_after_others_were_removed() {
    const NAMES: u64 = 2000;
    let region = RegionOptions::new()
        .max_bytes(64 << 20)
        .max_names(NAMES as u32)
        .label("region_scale")
        .create_anonymous()
        .unwrap();
    let name = |number: u64| format!("object {number}");
    let make = |number| region.object(&name(number), || number);
    let finds = |number| match region.find::<u64>(&name(number)) {
        Ok(found) => *found == number,
        Err(ObjectError::NotFound) => false,
        Err(error) => panic!("{error}"),
    };
    (0..NAMES).for_each(|number| assert_eq!(*make(number).unwrap(), number));
    assert!(matches!(
        make(NAMES),
        Err(ObjectError::DirectoryFull { .. })
    ));
    assert!((0..NAMES).all(finds) && !finds(NAMES));
    for number in (0..NAMES).step_by(3) {
        // SAFETY: no task uses the object.
        #[allow(unsafe_code)]
        unsafe { region.remove::<u64>(&name(number)) }.unwrap();
    }
    assert!((0..NAMES).all(|number| finds(number) == (number % 3 != 0)));
    (NAMES..NAMES + NAMES / 3).for_each(|number| assert_eq!(*make(number).unwrap(), number));
    assert!((NAMES..NAMES + NAMES / 3).all(finds));
}
