//! Locks that are none. Each has one fault, and the checks must find it.

use crate::driver::{Crew, play};
use crate::field::{Scene, private_lock, shared_lock, shared_store};
use crate::locks::{CEILINGS, Ended, Kind, Lock, Repair};
use crate::mail::Mail;
use crate::report::{Tally, Trouble};
use crate::stores::Store;
use crate::task::{Spot, Verb};
use crate::witness::{Fault, Halves};
use core::cell::Cell;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use core::time::Duration;
use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, MutexGuard, RawLock, Robust, WaitWake};
use latchwork::region::{Region, Shareable};
use latchwork::sharing::Shared;
use latchwork::time::Deadline;
use latchwork_testkit::Trial;
use latchwork_testkit::priority::{fifo, may_use_priorities};
use std::thread;

/// Three threads and nothing that processes share.
const THREADS: Crew = Crew {
    threads: 3,
    steady: 0,
    mortal: 0,
    patience: None,
};

struct Nothing;

impl Scene for Nothing {
    fn open(_: &Region, _: bool) -> Vec<Spot<'_>> {
        Vec::new()
    }
}

/// Rounds without a finding that are enough.
const ROUNDS: u64 = 4000;

/// Goes on until something is found, and says what.
fn found<S: Scene>(
    trial: &Trial,
    crew: Crew,
    priorities: bool,
    private: impl Fn() -> Vec<Spot<'static>>,
) -> Trouble {
    RESCUE.store(false, SeqCst);
    let ended: Result<Tally, Trouble> = play::<S>(trial, crew, priorities, private, |driver| {
        let ended = driver.rounds(|driver| driver.tally.rounds >= ROUNDS);
        RESCUE.store(true, SeqCst);
        ended
    });
    ended.expect_err("nothing was found")
}

fn faults(trouble: Trouble) -> String {
    match trouble {
        Trouble::Faults(faults) => faults.join("; "),
        other => panic!("something else was found: {other}"),
    }
}

fn says(faults: &str, fault: Fault) -> bool {
    faults.contains(Fault::TEXTS[fault as usize])
}

/// Turns a lock without data of this file into a protocol.
macro_rules! simple_kind {
    ($lock:ty) => {
        impl Kind for $lock {
            fn make() -> Self {
                Self::default()
            }
            fn expect<G>(outcome: G) -> G {
                outcome
            }
            fn interruptible<T>(
                mutex: &Mutex<T, Self>,
                deadline: Option<Deadline>,
            ) -> Result<MutexGuard<'_, T, Self>, Ended> {
                match deadline {
                    Some(deadline) => mutex.lock_until(deadline).ok_or(Ended::TimedOut),
                    None => Ok(mutex.lock()),
                }
            }
        }
    };
}

/// Whoever has waited for long goes in.
#[derive(Default)]
struct Leaky(AtomicBool);

// SAFETY: it does not exclude, which the test is about; but what it protects here are atomics, which
// nobody takes a unique reference to.
#[allow(unsafe_code)]
unsafe impl RawLock for Leaky {
    fn lock(&self) {
        for _ in 0..20 {
            if self.try_lock() {
                return;
            }
            thread::yield_now();
        }
    }
    fn try_lock(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }
    fn lock_until(&self, _: Deadline) -> bool {
        self.lock();
        true
    }
    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
    }
}
simple_kind!(Leaky);

#[test]
fn a_lock_that_lets_two_in_is_found_out() {
    let trial = Trial::begin("a_lock_that_lets_two_in_is_found_out");
    let leaky = || vec![private_lock::<Mutex<Halves, Leaky>>("leaky")];
    let found = faults(found::<Nothing>(&trial, THREADS, false, leaky));
    assert!(says(&found, Fault::TwoInside), "{found}");
}

/// Ends the waits for locks that have forgotten somebody.
static RESCUE: AtomicBool = AtomicBool::new(false);

/// Some unlocks wake nobody.
#[derive(Default)]
struct Forgetful {
    held: AtomicBool,
    bell: AtomicU64,
    unlocks: AtomicU64,
}

// SAFETY: a swap takes it, a store releases it.
#[allow(unsafe_code)]
unsafe impl RawLock for Forgetful {
    fn lock(&self) {
        self.lock_until(Deadline::from_nanoseconds(i64::MAX as u64));
    }
    fn try_lock(&self) -> bool {
        !self.held.swap(true, SeqCst)
    }
    fn lock_until(&self, deadline: Deadline) -> bool {
        loop {
            let bell = self.bell.load(SeqCst);
            if self.try_lock() {
                return true;
            }
            while self.bell.load(SeqCst) == bell && !RESCUE.load(SeqCst) {
                if deadline.has_passed() {
                    return false;
                }
                thread::sleep(Duration::from_micros(50));
            }
        }
    }
    unsafe fn unlock(&self) {
        self.held.store(false, SeqCst);
        if !self.unlocks.fetch_add(1, SeqCst).is_multiple_of(8) {
            self.bell.fetch_add(1, SeqCst);
        }
    }
}
simple_kind!(Forgetful);

/// What waits for ever is to be found soon.
const IMPATIENT: Crew = Crew {
    patience: Some(Duration::from_secs(1)),
    ..THREADS
};

#[test]
fn a_lock_that_forgets_to_wake_is_found_out() {
    let trial = Trial::begin("a_lock_that_forgets_to_wake_is_found_out");
    let forgetful = || vec![private_lock::<Mutex<Halves, Forgetful>>("forgetful")];
    let found = found::<Nothing>(&trial, IMPATIENT, false, forgetful);
    assert!(matches!(found, Trouble::Hang(_)), "{found}");
}

type Quiet = Store<Mutex<Halves, WaitWake<Shared>>, Condvar<Shared>>;

struct Silence;

impl Scene for Silence {
    fn open(region: &Region, _: bool) -> Vec<Spot<'_>> {
        vec![shared_store(region, "silent", || Quiet::that_forgets(4))]
    }
}

#[test]
fn a_change_that_nobody_is_told_of_is_found_out() {
    let trial = Trial::begin("a_change_that_nobody_is_told_of_is_found_out");
    let crew = Crew {
        threads: 2,
        steady: 2,
        ..IMPATIENT
    };
    if !latchwork::probe::Features::probe().has(latchwork::probe::Feature::FutexWaitv) {
        println!("skipped: without futex_waitv each sleep in a region ends by itself");
        return;
    }
    let found = found::<Silence>(&trial, crew, false, Vec::new);
    assert!(matches!(found, Trouble::Hang(_)), "{found}");
}

/// Keeps out writers alone.
struct Porous {
    writer: Mutex<(), WaitWake<Shared>>,
    halves: Halves,
}

struct PorousGuard<'a> {
    _writer: MutexGuard<'a, (), WaitWake<Shared>>,
    halves: &'a Halves,
}

impl Deref for PorousGuard<'_> {
    type Target = Halves;
    fn deref(&self) -> &Halves {
        self.halves
    }
}

impl Lock for Porous {
    const READS: bool = true;
    type Guard<'a> = PorousGuard<'a>;

    fn make() -> Self {
        Self {
            writer: Mutex::shared(()),
            halves: Halves::new(),
        }
    }

    fn take<'a>(&'a self, _: Verb, _: Repair<'_>) -> Result<PorousGuard<'a>, Ended> {
        Ok(PorousGuard {
            _writer: self.writer.lock(),
            halves: &self.halves,
        })
    }

    fn read(&self, _: Verb, _: Repair<'_>, look: &mut dyn FnMut(&Halves)) -> Result<(), Ended> {
        look(&self.halves);
        Ok(())
    }
}

#[test]
fn a_lock_that_lets_readers_in_beside_a_writer_is_found_out() {
    let trial = Trial::begin("a_lock_that_lets_readers_in_beside_a_writer_is_found_out");
    let porous = || vec![private_lock::<Porous>("porous")];
    let found = faults(found::<Nothing>(&trial, THREADS, false, porous));
    assert!(
        says(&found, Fault::BesideWriter) || says(&found, Fault::BesideReader),
        "{found}"
    );
}

/// Keeps the deaths of its holders to itself.
#[derive(Shareable)]
#[repr(C)]
struct Discreet(Mutex<Halves, Robust>);

impl Lock for Discreet {
    const ROBUST: bool = true;
    type Guard<'a> = <Mutex<Halves, Robust> as Lock>::Guard<'a>;

    fn make() -> Self {
        Self(Lock::make())
    }

    fn take<'a>(&'a self, verb: Verb, _: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        self.0.take(verb, &|_| ())
    }
}

struct Discretion;

impl Scene for Discretion {
    fn open(region: &Region, _: bool) -> Vec<Spot<'_>> {
        vec![shared_lock::<Discreet>(region, "discreet")]
    }
}

#[test]
fn a_death_that_is_not_reported_is_found_out() {
    let trial = Trial::begin("a_death_that_is_not_reported_is_found_out");
    let crew = Crew {
        threads: 1,
        steady: 1,
        mortal: 3,
        patience: None,
    };
    let found = faults(found::<Discretion>(&trial, crew, false, Vec::new));
    assert!(
        says(&found, Fault::Unreported) || says(&found, Fault::Torn),
        "{found}"
    );
}

/// Says now and then that the last holder died.
struct Alarmist(Mutex<Halves, WaitWake<Shared>>);

thread_local!(static TAKEN: Cell<u32> = const { Cell::new(0) });

impl Lock for Alarmist {
    type Guard<'a> = MutexGuard<'a, Halves, WaitWake<Shared>>;

    fn make() -> Self {
        Self(Lock::make())
    }

    fn take<'a>(&'a self, _: Verb, repair: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        let guard = self.0.lock();
        TAKEN.set(TAKEN.get() + 1);
        if TAKEN.get().is_multiple_of(64) {
            repair(&guard);
        }
        Ok(guard)
    }
}

#[test]
fn a_death_that_was_none_is_found_out() {
    let trial = Trial::begin("a_death_that_was_none_is_found_out");
    let alarmist = || vec![private_lock::<Alarmist>("alarmist")];
    let found = faults(found::<Nothing>(&trial, THREADS, false, alarmist));
    assert!(says(&found, Fault::Invented), "{found}");
}

struct Leak;

impl Scene for Leak {
    fn open(region: &Region, _: bool) -> Vec<Spot<'_>> {
        vec![Spot::new("leak", Mail::that_leaks(region, 64), true, false)]
    }
}

#[test]
fn a_message_that_is_lost_is_found_out() {
    let trial = Trial::begin("a_message_that_is_lost_is_found_out");
    let crew = Crew {
        threads: 2,
        steady: 1,
        mortal: 1,
        patience: None,
    };
    let found = faults(found::<Leak>(&trial, crew, false, Vec::new));
    assert!(says(&found, Fault::Lost), "{found}");
}

/// Leaves its holders at its ceiling.
struct Boosting(Mutex<Halves, WaitWake<Shared>>);

impl Lock for Boosting {
    type Guard<'a> = MutexGuard<'a, Halves, WaitWake<Shared>>;

    fn make() -> Self {
        Self(Lock::make())
    }

    fn take<'a>(&'a self, _: Verb, _: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        fifo(CEILINGS[0].into()).give(0);
        Ok(self.0.lock())
    }
}

#[test]
fn a_boost_that_is_kept_is_found_out() {
    if may_use_priorities("a_boost_that_is_kept_is_found_out") {
        let trial = Trial::begin("a_boost_that_is_kept_is_found_out");
        let boosting = || vec![private_lock::<Boosting>("boosting")];
        let found = faults(found::<Nothing>(&trial, THREADS, true, boosting));
        assert!(says(&found, Fault::BoostKept), "{found}");
    }
}

/// Ends the coproc that takes it for the thousandth time, or later.
#[derive(Shareable)]
#[repr(C)]
struct Fragile {
    lock: Mutex<Halves, Robust>,
    calls: AtomicU64,
    creator: AtomicU64,
}

impl Lock for Fragile {
    const ROBUST: bool = true;
    type Guard<'a> = <Mutex<Halves, Robust> as Lock>::Guard<'a>;

    fn make() -> Self {
        Self {
            lock: Lock::make(),
            calls: AtomicU64::new(0),
            creator: AtomicU64::new(std::process::id().into()),
        }
    }

    fn take<'a>(&'a self, verb: Verb, repair: Repair<'_>) -> Result<Self::Guard<'a>, Ended> {
        let is_coproc = self.creator.load(SeqCst) != u64::from(std::process::id());
        if self.calls.fetch_add(1, SeqCst) >= 1000 && is_coproc {
            std::process::exit(0);
        }
        self.lock.take(verb, repair)
    }
}

struct Fragility;

impl Scene for Fragility {
    fn open(region: &Region, _: bool) -> Vec<Spot<'_>> {
        vec![shared_lock::<Fragile>(region, "fragile")]
    }
}

#[test]
fn a_task_that_ends_by_itself_is_found_out() {
    let trial = Trial::begin("a_task_that_ends_by_itself_is_found_out");
    let crew = Crew {
        steady: 2,
        threads: 0,
        ..THREADS
    };
    let found = found::<Fragility>(&trial, crew, false, Vec::new);
    assert!(matches!(found, Trouble::Ended(_)), "{found}");
}
