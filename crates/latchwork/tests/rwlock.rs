//! What a reader/writer lock must do: ours of each kind, between threads and processes, and std's, which
//! shows that the bodies are right. (`loom_rwlock.rs` looks at every interleaving of a few tasks,
//! `robust_rwlock.rs` at what only the robust one does.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use latchwork::region::RegionOptions;
use latchwork::rwlock::{
    Preference, ReadersFirst, RobustReadGuard, RobustRwLock, RobustWriteGuard, RwLock, WriteGuard,
    WritersFirst,
};
use latchwork::sharing::{Private, Shared, Sharing};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Page, Trial, Watchdog, fastrand};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

mod lock_support;
use lock_support::{Mapped, ThreadId};

/// Two halves that are equal whenever no writer is inside.
#[derive(Debug, Default, latchwork::region::Shareable)]
#[repr(C)]
struct Halves {
    left: u64,
    right: u64,
}

impl Halves {
    fn add_one(&mut self) {
        self.check();
        // Not one store: the compiler may not join the two.
        // SAFETY: a valid place.
        unsafe { core::ptr::write_volatile(&raw mut self.left, self.left + 1) };
        self.right += 1;
    }

    fn check(&self) {
        // SAFETY: valid places.
        let halves = unsafe {
            let left = core::ptr::read_volatile(&raw const self.left);
            (left, core::ptr::read_volatile(&raw const self.right))
        };
        assert_eq!(halves.0, halves.1, "a writer was inside with another task");
    }
}

/// A lock, as the bodies see it.
trait Contestant: Sync + 'static {
    fn make() -> Self;
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R;
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R;
    fn try_read(self: Pin<&Self>) -> bool;
    fn try_write(self: Pin<&Self>) -> bool;
    /// Whether it was got; released at once.
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool;
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool;
}

impl<S: Sharing + Send + Sync, P: Preference + Send + Sync> Contestant for RwLock<Halves, S, P> {
    fn make() -> Self {
        Self::default()
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        body(&self.get_ref().read())
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.get_ref().write())
    }
    fn try_read(self: Pin<&Self>) -> bool {
        self.get_ref().try_read().is_some()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        self.get_ref().try_write().is_some()
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        self.get_ref().read_until(deadline).is_some()
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        self.get_ref().write_until(deadline).is_some()
    }
}

impl<const READERS: usize> Contestant for RobustRwLock<Halves, READERS> {
    fn make() -> Self {
        Self::new(Halves::default())
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        let guard: RobustReadGuard<'_, _, READERS> = RobustRwLock::read(self).unwrap();
        body(&guard)
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        let mut guard: RobustWriteGuard<'_, _, READERS> = RobustRwLock::write(self).unwrap();
        body(&mut guard)
    }
    fn try_read(self: Pin<&Self>) -> bool {
        RobustRwLock::try_read(self).is_ok()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        RobustRwLock::try_write(self).is_ok()
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        RobustRwLock::read_until(self, deadline).is_ok()
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        RobustRwLock::write_until(self, deadline).is_ok()
    }
}

impl Contestant for std::sync::RwLock<Halves> {
    fn make() -> Self {
        Self::default()
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        body(&self.get_ref().read().unwrap())
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.get_ref().write().unwrap())
    }
    fn try_read(self: Pin<&Self>) -> bool {
        self.get_ref().try_read().is_ok()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        self.get_ref().try_write().is_ok()
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        wait_for(deadline, || self.try_read())
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        wait_for(deadline, || self.try_write())
    }
}

fn wait_for(deadline: Deadline, mut got: impl FnMut() -> bool) -> bool {
    while !got() {
        if deadline.has_passed() {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn soon() -> Deadline {
    Deadline::after(Duration::from_millis(2))
}

fn a_writer_is_alone<L: Contestant>() {
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

fn readers_are_inside_together<L: Contestant>() {
    let lock = Mapped::new(L::make());
    let lock = lock.pin();
    let met = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| lock.read(|_| met.wait().is_leader()));
        }
    });
}

fn who_holds_it_keeps_others_out<L: Contestant>() {
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

const HOUR: Duration = Duration::from_secs(3600);

/// A writer that waits for a reader keeps the next reader out until it gives up.
fn readers_that_wait_for_a_writer_enter_when_it_gives_up<L: Contestant>() {
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
fn a_writer_gets_in_between_readers_that_overlap<L: Contestant>() {
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

fn a_reader_gets_in_between_writers<L: Contestant>() {
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
every_lock! {
    mod writers_first = RwLock<Halves> {
        a_writer_is_alone readers_are_inside_together who_holds_it_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod readers_first = RwLock<Halves, Private, ReadersFirst> {
        a_writer_is_alone readers_are_inside_together who_holds_it_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod shared_writers_first = RwLock<Halves, Shared> {
        a_writer_is_alone readers_are_inside_together who_holds_it_keeps_others_out
    }
    mod shared_readers_first = RwLock<Halves, Shared, ReadersFirst> {
        a_writer_is_alone a_writer_gets_in_between_readers_that_overlap
    }
    mod robust = RobustRwLock<Halves> {
        a_writer_is_alone readers_are_inside_together who_holds_it_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
    mod robust_with_two_seats = RobustRwLock<Halves, 2> { a_writer_is_alone }
    mod standard = std::sync::RwLock<Halves> {
        a_writer_is_alone readers_are_inside_together who_holds_it_keeps_others_out
    }
}

/// Whether a reader that comes while a writer waits for another one enters at once.
fn a_reader_passes_a_writer<P: Preference + Send + Sync>() -> bool {
    let lock: RwLock<(), Private, P> = RwLock::new_in(());
    let writer = ThreadId::default();
    thread::scope(|scope| {
        let inside = lock.read();
        scope.spawn(|| {
            writer.set();
            drop(lock.write());
        });
        while !writer.is_in_futex() {
            thread::yield_now();
        }
        let passes = lock.try_read().is_some();
        drop(inside);
        passes
    })
}

/// Nobody starves within a test's time.
struct Patient<const READERS_FIRST: bool>;

impl<const READERS_FIRST: bool> Preference for Patient<READERS_FIRST> {
    const READERS_FIRST: bool = READERS_FIRST;
    const STARVES_AFTER: Duration = HOUR;
}

/// Whoever waits starves.
struct Impatient;

impl Preference for Impatient {
    const READERS_FIRST: bool = true;
    const STARVES_AFTER: Duration = Duration::ZERO;
}

#[test]
fn the_preference_says_whether_readers_pass_a_writer_that_waits() {
    let _watchdog = Watchdog::start("preference".into());
    assert!(!a_reader_passes_a_writer::<WritersFirst>());
    assert!(a_reader_passes_a_writer::<Patient<true>>());
    assert!(!a_reader_passes_a_writer::<Patient<false>>());
}

/// The writer waits a second time, as one that starves, and then no reader passes it.
#[test]
fn no_reader_passes_a_writer_that_starves() {
    let _watchdog = Watchdog::start("starves".into());
    let lock: RwLock<(), Private, Impatient> = RwLock::new_in(());
    thread::scope(|scope| {
        let inside = lock.read();
        scope.spawn(|| drop(lock.write()));
        while lock.try_read().is_some() {
            thread::yield_now();
        }
        drop(inside);
    });
    drop(lock.write());
}

#[test]
fn locks_whose_waiters_all_starve_lose_nobody() {
    let _watchdog = Watchdog::start("all starve".into());
    a_writer_is_alone::<RwLock<Halves, Private, Impatient>>();
}

#[test]
fn a_writer_that_goes_on_as_a_reader_lets_readers_in_and_no_writer_between() {
    let _watchdog = Watchdog::start("downgrade".into());
    let lock = RwLock::<u32>::new(0);
    for round in 1..200 {
        let [reader, writer] = [(); 2].map(|()| ThreadId::default());
        thread::scope(|scope| {
            let mut guard = lock.write();
            *guard = round;
            scope.spawn(|| {
                reader.set();
                // Before the other writer, who waits; or after it.
                assert!([round, 0].contains(&lock.read()));
            });
            scope.spawn(|| {
                writer.set();
                *lock.write() = 0;
            });
            if round % 2 == 0 {
                while !(reader.is_in_futex() && writer.is_in_futex()) {
                    thread::yield_now();
                }
            }
            let guard = WriteGuard::downgrade(guard);
            assert_eq!(*guard, round);
            assert!(lock.try_write().is_none());
        });
    }
    let guard = WriteGuard::downgrade(lock.write());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(guard);
    assert!(lock.try_write().is_some());
}

#[test]
fn a_panic_inside_releases_the_lock() {
    let lock = RwLock::new(0_u32);
    let panics = |body: &dyn Fn()| assert!(catch_unwind(AssertUnwindSafe(body)).is_err());
    panics(&|| {
        let _guard = lock.write();
        panic!("expected");
    });
    panics(&|| {
        let _guard = lock.read();
        panic!("expected");
    });
    assert!(lock.try_write().is_some());
}

#[test]
fn it_is_eight_bytes_of_zero_when_free() {
    type Plain = RwLock<()>;
    let lock = Plain::new(());
    drop((lock.read(), lock.try_read(), lock.try_write()));
    drop(lock.write());
    assert_eq!(size_of::<Plain>(), 8);
    assert_eq!(size_of::<RwLock<u32>>(), 16);
    // SAFETY: eight bytes, an atomic number.
    let bytes: [u8; 8] = unsafe { core::mem::transmute(lock) };
    assert_eq!(bytes, [0; 8]);
    assert_eq!(
        format!("{:?}", RwLock::new(1)),
        "RwLock { raw: RawRwLock { locked: false, by_writer: false }, .. }"
    );
}

fn processes_share<L: Contestant>(lock: Pin<&L>, trial: &Trial) {
    const SECTIONS: u64 = 2_000;
    let looked = Page::<AtomicU64>::new();
    let children: Vec<Child> = (0..4)
        .map(|child| {
            Child::fork(|| {
                for section in 0..SECTIONS {
                    if (section + child) % 3 == 0 {
                        lock.write(Halves::add_one);
                    } else {
                        lock.read(Halves::check);
                        looked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    children.into_iter().for_each(Child::succeed);
    trial.progress();
    let written = lock.read(|halves| halves.left);
    assert_eq!(written + looked.load(Ordering::Relaxed), 4 * SECTIONS);
}

#[test]
fn processes_share_a_lock_in_their_own_mapping_and_in_a_region() {
    let trial = Trial::begin("processes_share_a_lock_in_their_own_mapping_and_in_a_region");
    processes_share(
        Mapped::new(RwLock::<_, Shared>::shared(Halves::default())).pin(),
        &trial,
    );
    processes_share(Mapped::new(RobustRwLock::<Halves>::make()).pin(), &trial);
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap();
    let plain = region
        .object("plain", RwLock::<Halves, Shared, ReadersFirst>::make)
        .unwrap();
    processes_share(plain, &trial);
    let robust = region
        .object("robust", RobustRwLock::<Halves, 3>::make)
        .unwrap();
    processes_share(robust, &trial);
}
