//! Users that are killed at random moments.

use super::{all_binary, priority, region};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::region::Region;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{BinarySemaphore, CountingSemaphore, Discipline, ObtainError};
use latchwork_testkit::{Page, Storm, Trial, Worker, fastrand};

const SEATS: usize = 6;
const UNITS: u32 = 2;

/// Where a worker is, as it says itself.
const OUTSIDE: u32 = 0;
/// In an obtain or a release, which may have taken effect.
const BETWEEN: u32 = 1;
const INSIDE: u32 = 2;

struct Journal {
    phase: Page<[AtomicU32; SEATS]>,
    progress: Page<[AtomicU64; SEATS]>,
    /// What each semaphore protects: two numbers, changed one after the other.
    data: Page<[[AtomicU64; 2]; 2]>,
    deaths_told: Page<AtomicU64>,
}

impl Journal {
    fn new() -> Self {
        Self {
            phase: Page::new(),
            progress: Page::new(),
            data: Page::new(),
            deaths_told: Page::new(),
        }
    }

    fn seats_at(&self, phase: u32) -> u32 {
        let at = |seat: &&AtomicU32| seat.load(SeqCst) == phase;
        self.phase.iter().filter(at).count() as u32
    }
}

/// Half of the waits have a short deadline.
fn timeout(rng: &mut fastrand::Rng) -> Option<Duration> {
    rng.bool().then(|| Duration::from_nanos(rng.u64(..200_000)))
}

fn count_for_ever(worker: Worker, semaphore: CountingSemaphore<'_>, journal: &Journal) {
    let mut rng = worker.rng();
    let say = |phase| journal.phase[worker.seat].store(phase, SeqCst);
    loop {
        say(BETWEEN);
        let obtained = match timeout(&mut rng) {
            Some(timeout) => semaphore.obtain_for(timeout),
            None => semaphore.obtain(),
        };
        match obtained {
            Ok(()) => {
                say(INSIDE);
                if rng.u32(..8) == 0 {
                    std::thread::yield_now();
                }
                say(BETWEEN);
                semaphore.release().unwrap();
            }
            Err(ObtainError::TimedOut | ObtainError::Flushed) => {}
            Err(error) => panic!("{error}"),
        }
        say(OUTSIDE);
        journal.progress[worker.seat].fetch_add(1, SeqCst);
        if rng.u32(..64) == 0 {
            semaphore.flush().unwrap();
        }
    }
}

/// What each kill may take is at most one unit, and nothing makes one.
#[test]
fn killed_users_of_a_count_take_no_more_than_they_had() {
    let trial = Trial::begin("killed_users_of_a_count_take_no_more_than_they_had");
    for discipline in [Discipline::Fifo, Discipline::Priority] {
        let region = region(&trial);
        let semaphore = CountingSemaphore::create(&region, "s", UNITS, discipline).unwrap();
        let journal = Journal::new();
        let mut storm = Storm::start(&trial, SEATS, |worker| {
            count_for_ever(worker, semaphore, &journal);
        });
        while storm.kills() < trial.times(150) {
            storm.kill_all();
            region.sweep().unwrap();
            semaphore.flush().unwrap();
            assert_eq!(semaphore.waiting(), 0);
            let inside = journal.seats_at(INSIDE);
            let between = journal.seats_at(BETWEEN);
            let count = semaphore.count();
            assert!(
                count + inside <= UNITS,
                "{count} units are free, and {inside} were taken, of {UNITS}"
            );
            assert!(
                count + inside + between >= UNITS,
                "{count} units are free, {inside} taken, {between} perhaps, of {UNITS}"
            );
            for _ in count..UNITS {
                semaphore.release().unwrap();
            }
            journal
                .phase
                .iter()
                .for_each(|seat| seat.store(OUTSIDE, SeqCst));
            storm.refill_all();
            storm.wait_for_progress(|seat| journal.progress[seat].load(SeqCst));
        }
        storm.finish();
    }
}

/// Obtains semaphore `index`, and settles what it protects if its owner has died.
fn obtain(
    semaphores: [BinarySemaphore<'_>; 2],
    index: usize,
    rng: &mut fastrand::Rng,
    journal: &Journal,
) -> bool {
    let obtained = match timeout(rng) {
        Some(timeout) => semaphores[index].obtain_for(timeout),
        None => semaphores[index].obtain(),
    };
    let held = match obtained {
        Ok(held) => held,
        Err(ObtainError::TimedOut | ObtainError::Flushed | ObtainError::Deadlock) => return false,
        Err(error) => panic!("{error}"),
    };
    let [first, second] = &journal.data[index];
    if held.owner_died() {
        journal.deaths_told.fetch_add(1, SeqCst);
        second.store(first.load(SeqCst), SeqCst);
    }
    let seen = first.load(SeqCst);
    assert_eq!(seen, second.load(SeqCst), "nobody was told of a death");
    first.store(seen + 1, SeqCst);
    if rng.u32(..16) == 0 {
        std::thread::yield_now();
    }
    second.store(seen + 1, SeqCst);
    held.keep();
    true
}

fn own_for_ever(
    worker: Worker,
    region: &Region,
    semaphores: [BinarySemaphore<'_>; 2],
    journal: &Journal,
) {
    let mut rng = worker.rng();
    let me = region.task_id().unwrap();
    loop {
        me.set_priority(region, priority(rng.u8(1..20))).unwrap();
        // Mostly in one order; else circles are closed.
        let first = usize::from(rng.u32(..4) == 0);
        if obtain(semaphores, first, &mut rng, journal) {
            if rng.bool() {
                // Nested.
                drop(semaphores[first].try_obtain().unwrap());
            }
            if rng.bool() && obtain(semaphores, 1 - first, &mut rng, journal) {
                semaphores[1 - first].release().unwrap();
            }
            semaphores[first].release().unwrap();
        }
        journal.progress[worker.seat].fetch_add(1, SeqCst);
        if rng.u32(..64) == 0 {
            semaphores[rng.usize(..2)].flush().unwrap();
        }
    }
}

#[test]
fn killed_owners_are_reported_and_no_waiter_hangs() {
    let trial = Trial::begin("killed_owners_are_reported_and_no_waiter_hangs");
    for (name, options) in all_binary() {
        let region = region(&trial);
        let semaphores =
            ["a", "b"].map(|name| BinarySemaphore::create(&region, name, &options).unwrap());
        let journal = Journal::new();
        let mut storm = Storm::start(&trial, SEATS, |worker| {
            own_for_ever(worker, &region, semaphores, &journal);
        });
        for round in 0..trial.times(60) {
            if round % 4 == 3 {
                storm.kill_recoverers();
            } else {
                storm.kill();
            }
            storm.wait_for_progress(|seat| journal.progress[seat].load(SeqCst));
        }
        storm.kill_all();
        for semaphore in semaphores {
            semaphore.flush().unwrap();
            assert_eq!(semaphore.waiting(), 0);
            drop(semaphore.try_obtain().unwrap());
            assert_eq!(semaphore.owner(), None);
            semaphore.delete().unwrap();
        }
        println!(
            "{name}: {} deaths were told of",
            journal.deaths_told.load(SeqCst)
        );
        storm.finish();
    }
}
