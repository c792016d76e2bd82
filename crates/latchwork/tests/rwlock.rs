//! What a reader/writer lock must do: ours of each kind, between threads and processes, and std's, which
//! shows that the bodies are right. (`loom_rwlock.rs` looks at every interleaving of a few tasks,
//! `robust_rwlock.rs` at what only the robust one does.)
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::pin::Pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::{
    Preference, ReadersFirst, RegionRwLock, RobustReadGuard, RobustRwLock, RobustWriteGuard,
    RwLock, WriteGuard, WritersFirst,
};
use latchwork::sharing::{Private, Shared, Sharing};
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Page, Trial, Watchdog};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use latchwork_testkit::bodies::rwlock::{
    Contestant, HOUR, Halves, a_writer_is_alone, add_one, check,
};
use latchwork_testkit::{Mapped, ThreadId};

/// A reader/writer lock of the library, or another's, as a contestant.
#[derive(latchwork::region::Shareable)]
#[repr(C)]
struct Of<L>(L);

impl<S: Sharing + Send + Sync, P: Preference + Send + Sync> Contestant
    for Of<RwLock<Halves, S, P>>
{
    fn make() -> Self {
        Self(RwLock::default())
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        body(&self.get_ref().0.read())
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.get_ref().0.write())
    }
    fn try_read(self: Pin<&Self>) -> bool {
        self.get_ref().0.try_read().is_some()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        self.get_ref().0.try_write().is_some()
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        self.get_ref().0.read_until(deadline).is_some()
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        self.get_ref().0.write_until(deadline).is_some()
    }
}

impl<const READERS: usize> Of<RobustRwLock<Halves, READERS>> {
    fn pinned(self: Pin<&Self>) -> Pin<&RobustRwLock<Halves, READERS>> {
        // SAFETY: the field is pinned with the whole: nothing moves it.
        unsafe { self.map_unchecked(|whole| &whole.0) }
    }
}

impl<const READERS: usize> Contestant for Of<RobustRwLock<Halves, READERS>> {
    fn make() -> Self {
        Self(RobustRwLock::new(Halves::default()))
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        let guard: RobustReadGuard<'_, _, READERS> = RobustRwLock::read(self.pinned()).unwrap();
        body(&guard)
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        let mut guard: RobustWriteGuard<'_, _, READERS> =
            RobustRwLock::write(self.pinned()).unwrap();
        body(&mut guard)
    }
    fn try_read(self: Pin<&Self>) -> bool {
        RobustRwLock::try_read(self.pinned()).is_ok()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        RobustRwLock::try_write(self.pinned()).is_ok()
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        RobustRwLock::read_until(self.pinned(), deadline).is_ok()
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        RobustRwLock::write_until(self.pinned(), deadline).is_ok()
    }
}

/// A lock of region locks, in a region of its own that lasts as long as the process.
struct InARegion<const READERS: usize>(&'static RegionRwLock<Halves, READERS>);

impl<const READERS: usize> Contestant for InARegion<READERS> {
    fn make() -> Self {
        let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous();
        let region: &'static Region = Box::leak(Box::new(region.unwrap()));
        let make = || RegionRwLock::in_region(Halves::default());
        Self(region.object("lock", make).unwrap().get_ref())
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        body(&self.0.read().unwrap())
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.0.write().unwrap())
    }
    fn try_read(self: Pin<&Self>) -> bool {
        self.0.try_read().is_ok()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        self.0.try_write().is_ok()
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        self.0.read_until(deadline).is_ok()
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        self.0.write_until(deadline).is_ok()
    }
}

impl Contestant for Of<std::sync::RwLock<Halves>> {
    fn make() -> Self {
        Self(std::sync::RwLock::default())
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        body(&self.get_ref().0.read().unwrap())
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        body(&mut self.get_ref().0.write().unwrap())
    }
    fn try_read(self: Pin<&Self>) -> bool {
        self.get_ref().0.try_read().is_ok()
    }
    fn try_write(self: Pin<&Self>) -> bool {
        self.get_ref().0.try_write().is_ok()
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

latchwork_testkit::rwlock_conformance! {
    mod writers_first = Of<RwLock<Halves>> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod readers_first = Of<RwLock<Halves, Private, ReadersFirst>> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod shared_writers_first = Of<RwLock<Halves, Shared>> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
    }
    mod shared_readers_first = Of<RwLock<Halves, Shared, ReadersFirst>> {
        a_writer_is_alone a_writer_gets_in_between_readers_that_overlap
    }
    mod robust = Of<RobustRwLock<Halves>> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
    mod robust_with_two_seats = Of<RobustRwLock<Halves, 2>> { a_writer_is_alone }
    mod of_region_locks = InARegion<16> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
    mod of_region_locks_with_two_seats = InARegion<2> { a_writer_is_alone }
    mod standard = Of<std::sync::RwLock<Halves>> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
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
        writer.wait_until_in_futex();
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
fn locks_whose_waiters_all_starve_lose_no_waiter() {
    let _watchdog = Watchdog::start("all starve".into());
    a_writer_is_alone::<Of<RwLock<Halves, Private, Impatient>>>();
}

#[test]
fn a_downgrade_admits_readers_and_no_writer() {
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
                        lock.write(add_one);
                    } else {
                        lock.read(check);
                        looked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    children.into_iter().for_each(Child::succeed);
    trial.progress();
    let written = lock.read(|halves| halves[0]);
    assert_eq!(written + looked.load(Ordering::Relaxed), 4 * SECTIONS);
}

#[test]
fn processes_share_a_lock_in_their_own_mapping_and_in_a_region() {
    let trial = Trial::begin("processes_share_a_lock_in_their_own_mapping_and_in_a_region");
    processes_share(
        Mapped::new(Of(RwLock::<_, Shared>::shared(Halves::default()))).pin(),
        &trial,
    );
    processes_share(
        Mapped::new(Of::<RobustRwLock<Halves>>::make()).pin(),
        &trial,
    );
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_anonymous()
        .unwrap();
    let plain = region
        .object("plain", Of::<RwLock<Halves, Shared, ReadersFirst>>::make)
        .unwrap();
    processes_share(plain, &trial);
    let robust = region
        .object("robust", Of::<RobustRwLock<Halves, 3>>::make)
        .unwrap();
    processes_share(robust, &trial);
    processes_share(Pin::new(&InARegion::<3>::make()), &trial);
}
