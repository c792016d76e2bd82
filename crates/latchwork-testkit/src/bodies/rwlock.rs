//! What a reader/writer lock must do: bodies over any that is a [`Contestant`], for the tests of the library, and for
//! those of its interface to C and C++. `rwlock_conformance!` makes a test of each that it names.
#![allow(unsafe_code)]

use crate::{Mapped, ThreadId, fastrand};
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use latchwork_sys::time::Deadline;
use std::sync::Barrier;
use std::thread;

/// Two numbers that are equal whenever no writer is inside.
pub type Halves = [u64; 2];

/// Adds one to both halves, the one after the other.
///
/// # Panics
/// If they differ: another writer is inside.
pub fn add_one(halves: &mut Halves) {
    check(halves);
    // Not one store: the compiler may not join the two.
    // SAFETY: a reference to a number is valid for a write.
    unsafe { core::ptr::write_volatile(&raw mut halves[0], halves[0] + 1) };
    halves[1] += 1;
}

/// Reads both halves.
///
/// # Panics
/// If they differ: a writer is inside.
pub fn check(halves: &Halves) {
    // SAFETY: references to numbers are valid for reads.
    let (left, right) = unsafe {
        let left = core::ptr::read_volatile(&raw const halves[0]);
        (left, core::ptr::read_volatile(&raw const halves[1]))
    };
    assert_eq!(left, right, "a writer was inside with another task");
}

/// A lock, as the bodies see it.
pub trait Contestant: Sync + 'static {
    /// A free one.
    fn make() -> Self;
    /// Runs `body` as a reader.
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R;
    /// Runs `body` as a writer.
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R;
    /// Whether it could be read at once; released again.
    fn try_read(self: Pin<&Self>) -> bool;
    /// Whether it could be written at once; released again.
    fn try_write(self: Pin<&Self>) -> bool;
    /// Whether it could be read before the deadline; released again.
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool;
    /// Whether it could be written before the deadline; released again.
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool;
}

/// Two milliseconds from now.
pub fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(2))
}

/// All ways in at once, at random: a writer is never inside with another task.
pub fn a_writer_is_alone<L: Contestant>() {
    const ROUNDS: u64 = 3_000;
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let writes = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..6 {
            let writes = &writes;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                let add = |halves: &mut Halves| {
                    add_one(halves);
                    writes.fetch_add(1, Ordering::Relaxed);
                };
                for _ in 0..ROUNDS {
                    match rng.u32(..32) {
                        0 => lock.write(|halves| {
                            add(halves);
                            thread::yield_now();
                        }),
                        1 => lock.read(|halves| {
                            check(halves);
                            thread::sleep(Duration::from_micros(20));
                        }),
                        2 => drop(lock.try_read()),
                        3 => drop(lock.try_write()),
                        4 => drop(lock.read_until(Deadline::after(Duration::from_micros(10)))),
                        5 => drop(lock.write_until(Deadline::after(Duration::from_micros(10)))),
                        6..16 => lock.write(add),
                        _ => lock.read(check),
                    }
                }
            });
        }
    });
    lock.write(|halves| assert_eq!(halves[0], writes.load(Ordering::Relaxed)));
    assert!(lock.try_read() && lock.try_write());
}

/// Three readers meet inside.
pub fn readers_are_inside_together<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let met = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| lock.read(|_| met.wait().is_leader()));
        }
    });
}

/// A writer keeps all others out, a reader keeps writers out.
pub fn a_holder_keeps_others_out<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let elsewhere =
        |body: &(dyn Fn() -> bool + Sync)| thread::scope(|scope| scope.spawn(body).join().unwrap());
    lock.write(|_| {
        assert!(!elsewhere(&|| lock.try_read()));
        assert!(!elsewhere(&|| lock.try_write()));
        let end = soon();
        assert!(!elsewhere(&|| lock.read_until(end)) && end.has_passed());
        let end = soon();
        assert!(!elsewhere(&|| lock.write_until(end)) && end.has_passed());
    });
    lock.read(|_| {
        assert!(elsewhere(&|| lock.try_read()));
        assert!(!elsewhere(&|| lock.try_write()));
        let end = soon();
        assert!(!elsewhere(&|| lock.write_until(end)) && end.has_passed());
        // No writer waits any more.
        assert!(elsewhere(&|| lock.read_until(Deadline::after(HOUR))));
    });
    assert!(lock.write_until(Deadline::after(HOUR)));
}

/// Longer than any test.
pub const HOUR: Duration = Duration::from_secs(3600);

/// A writer that waits for a reader keeps the next reader out until it gives up.
pub fn readers_that_wait_for_a_writer_enter_when_it_gives_up<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    for _ in 0..5 {
        let writer = ThreadId::default();
        thread::scope(|scope| {
            lock.read(|_| {
                let given_up = scope.spawn(|| {
                    writer.set();
                    lock.write_until(Deadline::after(Duration::from_millis(5)))
                });
                while !writer.is_in_futex() && !given_up.is_finished() {
                    thread::yield_now();
                }
                let entered = scope.spawn(|| lock.read(check));
                entered.join().unwrap();
                assert!(!given_up.join().unwrap());
            });
        });
    }
}

/// At least one of two readers is always inside, and a writer gets in.
pub fn a_writer_gets_in_between_readers_that_overlap<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let (turn, done) = (AtomicU32::new(0), AtomicBool::new(false));
    let is_done = || done.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for me in 0..2 {
            let turn = &turn;
            scope.spawn(move || {
                while !is_done() {
                    lock.read(|_| {
                        turn.store(me, Ordering::Relaxed);
                        let until = Deadline::after(Duration::from_millis(20));
                        // Until the other one is inside, too, or cannot get in.
                        while turn.load(Ordering::Relaxed) == me
                            && !is_done()
                            && !until.has_passed()
                        {
                            thread::yield_now();
                        }
                    });
                }
            });
        }
        for _ in 0..3 {
            lock.write(add_one);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Three writers follow each other, and a reader gets in.
pub fn a_reader_gets_in_between_writers<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    lock.write(|halves| {
                        add_one(halves);
                        thread::sleep(Duration::from_micros(100));
                    });
                }
            });
        }
        for _ in 0..5 {
            lock.read(check);
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Makes a module for each lock, with a test for each body that it names.
#[macro_export]
macro_rules! rwlock_conformance {
    ($(mod $name:ident = $lock:ty { $($body:ident)* })*) => {$(
        mod $name {
            use super::*;
            $(
                #[test]
                fn $body() {
                    let _watchdog = $crate::Watchdog::start(concat!(stringify!($name), " ", stringify!($body)).into());
                    $crate::bodies::rwlock::$body::<$lock>();
                }
            )*
        }
    )*};
}
