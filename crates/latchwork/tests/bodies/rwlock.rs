//! What a reader/writer lock must do: bodies over any that is a [`Contestant`], for the tests of this crate, and for
//! those of the interface to C and C++.
#![allow(unsafe_code)]

use super::lock_support::{Mapped, ThreadId};
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use latchwork::time::Deadline;
use latchwork_testkit::fastrand;
use std::sync::Barrier;
use std::thread;

/// Two halves that are equal whenever no writer is inside.
#[derive(Debug, Default, latchwork::region::Shareable)]
#[repr(C)]
pub struct Halves {
    pub left: u64,
    pub right: u64,
}

impl Halves {
    pub fn add_one(&mut self) {
        self.check();
        // Not one store: the compiler may not join the two.
        // SAFETY: a valid place.
        unsafe { core::ptr::write_volatile(&raw mut self.left, self.left + 1) };
        self.right += 1;
    }

    pub fn check(&self) {
        // SAFETY: valid places.
        let halves = unsafe {
            let left = core::ptr::read_volatile(&raw const self.left);
            (left, core::ptr::read_volatile(&raw const self.right))
        };
        assert_eq!(halves.0, halves.1, "a writer was inside with another task");
    }
}

/// A lock, as the bodies see it.
pub trait Contestant: Sync + 'static {
    fn make() -> Self;
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R;
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R;
    fn try_read(self: Pin<&Self>) -> bool;
    fn try_write(self: Pin<&Self>) -> bool;
    /// Whether it was got; released at once.
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool;
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool;
}

pub fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(2))
}

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
                    halves.add_one();
                    writes.fetch_add(1, Ordering::Relaxed);
                };
                for _ in 0..ROUNDS {
                    match rng.u32(..32) {
                        0 => lock.write(|halves| {
                            add(halves);
                            thread::yield_now();
                        }),
                        1 => lock.read(|halves| {
                            halves.check();
                            thread::sleep(Duration::from_micros(20));
                        }),
                        2 => drop(lock.try_read()),
                        3 => drop(lock.try_write()),
                        4 => drop(lock.read_until(Deadline::after(Duration::from_micros(10)))),
                        5 => drop(lock.write_until(Deadline::after(Duration::from_micros(10)))),
                        6..16 => lock.write(add),
                        _ => lock.read(Halves::check),
                    }
                }
            });
        }
    });
    lock.write(|halves| assert_eq!(halves.left, writes.load(Ordering::Relaxed)));
    assert!(lock.try_read() && lock.try_write());
}

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

pub fn who_holds_it_keeps_others_out<L: Contestant>() {
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
        // Nobody waits any more.
        assert!(elsewhere(&|| lock.read_until(Deadline::after(HOUR))));
    });
    assert!(lock.write_until(Deadline::after(HOUR)));
}

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
                let entered = scope.spawn(|| lock.read(Halves::check));
                entered.join().unwrap();
                assert!(!given_up.join().unwrap());
            });
        });
    }
}

/// Two tasks are always inside, one at least.
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
            lock.write(Halves::add_one);
        }
        done.store(true, Ordering::Relaxed);
    });
}

pub fn a_reader_gets_in_between_writers<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    lock.write(|halves| {
                        halves.add_one();
                        thread::sleep(Duration::from_micros(100));
                    });
                }
            });
        }
        for _ in 0..5 {
            lock.read(Halves::check);
        }
        done.store(true, Ordering::Relaxed);
    });
}

macro_rules! every_lock {
    ($(mod $name:ident = $lock:ty { $($body:ident)* })*) => {$(
        mod $name {
            use super::*;
            $(
                #[test]
                fn $body() {
                    let _watchdog = Watchdog::start(concat!(stringify!($name), " ", stringify!($body)).into());
                    super::$body::<$lock>();
                }
            )*
        }
    )*};
}
