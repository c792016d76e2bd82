//! Region locks whose callers in C are killed at each instruction of the functions of the header, the inlined free paths
//! among them.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::time::Duration;
use latchwork::mutex::{InRegion, Mutex, RegionProtocol, Throughput, WaitWake};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::sharing::Shared;
use latchwork_c as _;
use latchwork_testkit::bodies::kill::{Arena, Mortal};
use latchwork_testkit::bodies::rwlock::Halves;
use latchwork_testkit::{Mapped, Trial};

#[path = "../../latchwork/tests/region_form_support/mod.rs"]
mod region_form_support;
use region_form_support::with_every_form;

type Call = unsafe extern "C" fn(*const c_void) -> c_int;

unsafe extern "C" {
    fn lw_region_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_lock_interruptible(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_timedlock(mutex: *const c_void, limit: *const libc::timespec) -> c_int;
    fn lw_region_mutex_trylock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_region_mutex_consistent(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_lock(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_lock_interruptible(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_timedlock(mutex: *const c_void, limit: *const libc::timespec) -> c_int;
    fn lw_region_tp_mutex_trylock(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_unlock(mutex: *const c_void) -> c_int;
    fn lw_region_tp_mutex_consistent(mutex: *const c_void) -> c_int;
}

/// The functions of C for the locks of one form.
struct Calls {
    lock: Call,
    interruptible: Call,
    timed: unsafe extern "C" fn(*const c_void, *const libc::timespec) -> c_int,
    attempt: Call,
    unlock: Call,
    consistent: Call,
}

trait Form: RegionProtocol + Shareable {
    const CALLS: Calls;
    /// Whether a lone waiter makes so few polls that a test can step through them wherever it runs.
    const POLLS_ARE_FEW: bool;
}

impl Form for WaitWake<Shared> {
    const POLLS_ARE_FEW: bool = true;
    const CALLS: Calls = Calls {
        lock: lw_region_mutex_lock,
        interruptible: lw_region_mutex_lock_interruptible,
        timed: lw_region_mutex_timedlock,
        attempt: lw_region_mutex_trylock,
        unlock: lw_region_mutex_unlock,
        consistent: lw_region_mutex_consistent,
    };
}

impl Form for Throughput<Shared> {
    const POLLS_ARE_FEW: bool = false;
    const CALLS: Calls = Calls {
        lock: lw_region_tp_mutex_lock,
        interruptible: lw_region_tp_mutex_lock_interruptible,
        timed: lw_region_tp_mutex_timedlock,
        attempt: lw_region_tp_mutex_trylock,
        unlock: lw_region_tp_mutex_unlock,
        consistent: lw_region_tp_mutex_consistent,
    };
}

/// A lock that is used in C only, and what it protects.
struct InC<'r, P: Form> {
    lock: *const c_void,
    /// How a wait without a limit begins.
    call: Call,
    halves: Mapped<[AtomicU64; 2]>,
    form: PhantomData<(&'r Region, P)>,
}

impl<'r, P: Form> InC<'r, P> {
    fn new(region: &'r Region, call: Call) -> Self {
        let lock = region.object("lock", || Mutex::from_raw(InRegion::<P>::new(), ()));
        Self {
            lock: ptr::from_ref(lock.unwrap().get_ref()).cast(),
            call,
            halves: Mapped::new(Default::default()),
            form: PhantomData,
        }
    }

    fn call(&self, call: Call) -> c_int {
        // SAFETY: a lock of the form to which the function belongs; the region lives.
        unsafe { call(self.lock) }
    }

    /// What a call that acquires the lock returned.
    fn acquired(&self, result: c_int, repair: impl FnOnce(&mut Halves)) -> Option<Held<'_, P>> {
        let mut held = match result {
            0 | libc::EOWNERDEAD => Held(self),
            libc::ETIMEDOUT | libc::EINTR | libc::EBUSY => return None,
            error => panic!("{}", std::io::Error::from_raw_os_error(error)),
        };
        if result == libc::EOWNERDEAD {
            repair(&mut held);
            assert_eq!(self.call(P::CALLS.consistent), 0);
        }
        Some(held)
    }
}

/// The right to use what a lock protects.
struct Held<'a, P: Form>(&'a InC<'a, P>);

impl<P: Form> Deref for Held<'_, P> {
    type Target = Halves;
    fn deref(&self) -> &Halves {
        // SAFETY: the lock is held, and both types have the same bytes.
        unsafe { &*ptr::from_ref(&*self.0.halves).cast() }
    }
}

impl<P: Form> DerefMut for Held<'_, P> {
    fn deref_mut(&mut self) -> &mut Halves {
        let first: *const AtomicU64 = self.0.halves.as_ptr();
        // SAFETY: as above; an atomic number may be changed through a shared reference.
        unsafe { &mut *first.cast_mut().cast() }
    }
}

impl<P: Form> Drop for Held<'_, P> {
    fn drop(&mut self) {
        assert_eq!(self.0.call(P::CALLS.unlock), 0);
    }
}

impl<P: Form> Mortal for InC<'_, P> {
    type Held<'a>
        = Held<'a, P>
    where
        Self: 'a;

    fn acquire(
        &self,
        limit: Option<Duration>,
        repair: impl FnOnce(&mut Halves),
    ) -> Option<Held<'_, P>> {
        let result = match limit {
            None => self.call(self.call),
            Some(limit) => {
                let end = end_of(limit);
                // SAFETY: as in `call`.
                unsafe { (P::CALLS.timed)(self.lock, &raw const end) }
            }
        };
        self.acquired(result, repair)
    }
}

/// The time on `CLOCK_MONOTONIC` after so long.
fn end_of(limit: Duration) -> libc::timespec {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the time is written into it.
    let read = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    assert_eq!(read, 0);
    let end = Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + limit;
    libc::timespec {
        tv_sec: end.as_secs() as libc::time_t,
        tv_nsec: end.subsec_nanos().into(),
    }
}

/// With room for claims that are never freed ([`Trial::across_namespaces`]).
fn region(trial: &Trial) -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(1024)
        .any_pid_namespace(trial.is_across_namespaces())
        .create_anonymous()
        .unwrap()
}

fn free_pairs_are_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("free_pairs_are_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = Arena::new(InC::<P>::new(&region, P::CALLS.lock));
    arena.kill_in_free_pair(&trial, || {
        assert_eq!(arena.lock.call(P::CALLS.attempt), 0);
        assert_eq!(arena.lock.call(P::CALLS.unlock), 0);
    });
}

fn attempts_are_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("attempts_are_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let arena = Arena::new(InC::<P>::new(&region, P::CALLS.attempt));
    arena.kill_in_free_pair(&trial, || ());
}

fn waits_are_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("waits_are_recoverable_at_every_instruction").across_namespaces();
    let region = region(&trial);
    let join = || {
        region.join("victim").unwrap();
    };
    for (name, call) in [
        ("wait", P::CALLS.lock),
        ("interruptible wait", P::CALLS.interruptible),
    ] {
        let arena = Arena::new(InC::<P>::new(&region, call));
        if P::POLLS_ARE_FEW {
            arena.kill_in_lone_wait(&trial, name, join);
        }
        arena.kill_in_wait(&trial, name, join);
    }
    let arena = Arena::new(InC::<P>::new(&region, P::CALLS.lock));
    arena.kill_in_timed_wait(&trial, "timed wait", join);
}

fn unlocks_with_a_sleeper_are_recoverable_at_every_instruction<P: Form>() {
    let trial = Trial::begin("unlocks_with_a_sleeper_are_recoverable_at_every_instruction")
        .across_namespaces();
    let region = region(&trial);
    Arena::new(InC::<P>::new(&region, P::CALLS.lock)).kill_in_unlock_with_sleeper(&trial);
}

with_every_form!(
    free_pairs_are_recoverable_at_every_instruction
    attempts_are_recoverable_at_every_instruction
    waits_are_recoverable_at_every_instruction
    unlocks_with_a_sleeper_are_recoverable_at_every_instruction
);
