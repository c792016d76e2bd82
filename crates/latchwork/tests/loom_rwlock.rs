//! Models of the reader/writer lock: `src/rwlock/raw.rs` under the model checker.
//!
//! Properties: a writer is never inside with anybody else (loom watches the data), everybody gets in (a
//! lost wake-up ends as loom's deadlock), and a lock that nobody uses is free, with all counts at 0.
//! Each has a negative twin, which must fail.
//!
//! Left out: polling, more than three tasks, the kernel's order by priority, and how long anybody waits.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{SOON, Scene, WakeOrder};
use latchwork::rwlock::{Preference, ReadersFirst, RwLock, WriteGuard, WritersFirst};
use latchwork::sharing::Private;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Data(UnsafeCell<u32>);

// SAFETY: touched under the lock only; that is what the model checks.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

type Lock<P> = RwLock<Data, Private, P>;

fn look(data: &Data) {
    // SAFETY: called with the lock held; loom reports a writer beside a reader.
    data.0.with(|data| unsafe { core::hint::black_box(*data) });
}

fn change(data: &Data) {
    // SAFETY: called with the lock held to write; loom reports anybody else.
    data.0.with_mut(|data| unsafe { *data += 1 });
}

/// What one task does with the lock.
type Task<P> = fn(&Lock<P>);

fn reads<P: Preference>(lock: &Lock<P>) {
    look(&lock.read());
}

fn writes<P: Preference>(lock: &Lock<P>) {
    change(&lock.write());
}

fn reads_soon<P: Preference>(lock: &Lock<P>) {
    if let Some(data) = lock.read_until(SOON) {
        look(&data);
    }
}

fn writes_soon<P: Preference>(lock: &Lock<P>) {
    if let Some(data) = lock.write_until(SOON) {
        change(&data);
    }
}

fn writes_and_reads<P: Preference>(lock: &Lock<P>) {
    let data = lock.write();
    change(&data);
    look(&WriteGuard::downgrade(data));
}

fn tries<P: Preference>(lock: &Lock<P>) {
    if let Some(data) = lock.try_write() {
        change(&data);
    }
    if let Some(data) = lock.try_read() {
        look(&data);
    }
}

/// All of them at once, the first one in the model's own thread.
fn at_once<P: Preference + Send + Sync>(tasks: &[Task<P>]) {
    let lock: Arc<Lock<P>> = Arc::new(RwLock::new_in(Data(UnsafeCell::new(0))));
    let threads: Vec<_> = tasks[1..]
        .iter()
        .map(|task| {
            let (lock, task) = (Arc::clone(&lock), *task);
            thread::spawn(move || task(&lock))
        })
        .collect();
    tasks[0](&lock);
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(lock.is_unused(), "something is left in the word");
}

fn in_each_scene<P: Preference + Send + Sync>(
    preemptions: usize,
    starving: bool,
    tasks: &'static [Task<P>],
) {
    for wake_order in [WakeOrder::Oldest, WakeOrder::Newest] {
        let scene = Scene {
            wake_order,
            starving,
            ..Scene::default()
        };
        scene.explore(Some(preemptions), move || at_once(tasks));
    }
}

#[test]
fn a_reader_and_a_writer_get_in() {
    for spurious in [0, 1] {
        let scene = Scene {
            spurious,
            ..Scene::default()
        };
        scene.explore(None, || at_once::<WritersFirst>(&[reads, writes]));
        scene.explore(None, || at_once::<ReadersFirst>(&[reads, writes]));
    }
}

#[test]
fn a_reader_and_two_writers_get_in() {
    in_each_scene::<WritersFirst>(3, false, &[reads, writes, writes]);
    in_each_scene::<ReadersFirst>(3, false, &[reads, writes, writes]);
}

#[test]
fn two_readers_and_a_writer_get_in() {
    in_each_scene::<WritersFirst>(3, false, &[reads, reads, writes]);
    in_each_scene::<ReadersFirst>(3, false, &[reads, reads, writes]);
}

#[test]
fn three_writers_get_in() {
    in_each_scene::<WritersFirst>(3, false, &[writes, writes, writes]);
}

#[test]
fn starving_tasks_get_in() {
    in_each_scene::<WritersFirst>(2, true, &[reads, writes, writes]);
    in_each_scene::<WritersFirst>(2, true, &[reads, reads, writes]);
    in_each_scene::<ReadersFirst>(2, true, &[reads, reads, writes]);
}

#[test]
fn a_waiter_that_gives_up_leaves_no_task_asleep() {
    in_each_scene::<WritersFirst>(2, false, &[reads, reads, writes_soon]);
    in_each_scene::<WritersFirst>(2, false, &[writes, writes, writes_soon]);
    in_each_scene::<ReadersFirst>(2, false, &[writes, writes, reads_soon]);
    in_each_scene::<WritersFirst>(2, true, &[reads, writes, writes_soon]);
    in_each_scene::<ReadersFirst>(2, true, &[reads, writes, reads_soon]);
}

/// A reader that stays inside until another one has been there, while a writer comes and goes.
fn a_writer_gives_up_between_readers() {
    let lock: Arc<Lock<WritersFirst>> = Arc::new(RwLock::new_in(Data(UnsafeCell::new(0))));
    let inside = lock.read();
    let [writer, reader] = [writes_soon, reads].map(|task: Task<WritersFirst>| {
        let lock = Arc::clone(&lock);
        thread::spawn(move || task(&lock))
    });
    reader.join().unwrap();
    drop(inside);
    writer.join().unwrap();
    assert!(lock.is_unused(), "something is left in the word");
}

#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    for starving in [false, true] {
        let scene = Scene {
            starving,
            ..Scene::default()
        };
        scene.explore(Some(3), a_writer_gives_up_between_readers);
    }
}

#[test]
fn twin_quitter_that_forgets_the_readers_is_detected() {
    let scene = Scene {
        fault: Some(latchwork::model::Fault::RwLockQuitterForgetsReaders),
        ..Scene::default()
    };
    let name = "twin_quitter_that_forgets_the_readers_is_detected";
    scene.must_fail(name, "deadlock", |scene| {
        scene.explore(Some(3), a_writer_gives_up_between_readers);
    });
}

#[test]
fn a_downgrade_admits_readers() {
    in_each_scene::<WritersFirst>(2, false, &[reads, writes_and_reads, writes]);
    in_each_scene::<WritersFirst>(2, true, &[reads, writes_and_reads, writes]);
    in_each_scene::<ReadersFirst>(2, false, &[reads, writes_and_reads, writes]);
}

/// A writer that becomes a reader, and stays inside until another one has been there.
fn a_writer_waits_for_a_reader<P: Preference + Send + Sync>() {
    let lock: Arc<Lock<P>> = Arc::new(RwLock::new_in(Data(UnsafeCell::new(0))));
    let inside = lock.write();
    let reader = {
        let lock = Arc::clone(&lock);
        thread::spawn(move || reads(&lock))
    };
    let inside = WriteGuard::downgrade(inside);
    reader.join().unwrap();
    drop(inside);
    assert!(lock.is_unused(), "something is left in the word");
}

#[test]
fn a_downgrade_meets_other_tasks() {
    for (starving, spurious) in [(false, 0), (true, 0), (true, 1)] {
        let scene = Scene {
            starving,
            spurious,
            ..Scene::default()
        };
        scene.explore(None, a_writer_waits_for_a_reader::<WritersFirst>);
        scene.explore(None, a_writer_waits_for_a_reader::<ReadersFirst>);
    }
}

#[test]
fn try_calls_never_wait_and_enter_alone() {
    in_each_scene::<WritersFirst>(3, false, &[tries, tries, writes]);
}

/// A writer that becomes a reader, and stays inside until two others have been there.
fn a_writer_waits_for_two_readers() {
    let lock: Arc<Lock<WritersFirst>> = Arc::new(RwLock::new_in(Data(UnsafeCell::new(0))));
    let inside = lock.write();
    let readers = [(); 2].map(|()| {
        let lock = Arc::clone(&lock);
        thread::spawn(move || reads(&lock))
    });
    let inside = WriteGuard::downgrade(inside);
    readers
        .into_iter()
        .for_each(|reader| reader.join().unwrap());
    drop(inside);
    assert!(lock.is_unused(), "something is left in the word");
}

#[test]
fn a_reader_that_starves_and_misses_its_call_is_called_by_the_next() {
    let scene = Scene {
        starving: true,
        ..Scene::default()
    };
    scene.explore(Some(2), a_writer_waits_for_two_readers);
}

#[test]
fn twin_reader_that_enters_and_forgets_others_is_detected() {
    let scene = Scene {
        starving: true,
        fault: Some(latchwork::model::Fault::RwLockEntrantForgetsReaders),
        ..Scene::default()
    };
    let name = "twin_reader_that_enters_and_forgets_others_is_detected";
    scene.must_fail(name, "deadlock", |scene| {
        scene.explore(Some(2), a_writer_waits_for_two_readers);
    });
}

/// A mistake, what the model says of it, whether waiters starve, and who is at it.
macro_rules! twin {
    ($name:ident, $fault:ident, $expected:expr, $starving:expr, $preference:ty, $tasks:expr) => {
        #[test]
        fn $name() {
            let scene = Scene {
                fault: Some(latchwork::model::Fault::$fault),
                starving: $starving,
                ..Scene::default()
            };
            scene.must_fail(stringify!($name), $expected, |scene| {
                scene.explore(Some(3), || at_once::<$preference>(&$tasks));
            });
        }
    };
}
twin!(
    twin_reader_without_acquire_is_detected,
    RwLockReadRelaxed,
    "Causality violation",
    false,
    WritersFirst,
    [reads, writes]
);
twin!(
    twin_reader_that_leaves_without_release_is_detected,
    RwLockUnreadRelaxed,
    "Causality violation",
    false,
    WritersFirst,
    [reads, writes]
);
twin!(
    twin_writer_that_forgets_the_others_is_detected,
    RwLockWriterForgetsOthers,
    "deadlock",
    false,
    WritersFirst,
    [writes, writes, writes]
);
twin!(
    twin_starving_task_that_checks_once_is_detected,
    RwLockChecksOnce,
    "deadlock",
    true,
    WritersFirst,
    [reads, writes, writes]
);
twin!(
    twin_vacancy_that_is_hidden_is_detected,
    RwLockHidesVacancy,
    "deadlock",
    true,
    WritersFirst,
    [reads, writes, writes]
);
twin!(
    twin_vacancy_that_is_hidden_from_a_writer_is_detected,
    RwLockHidesVacancy,
    "deadlock",
    false,
    ReadersFirst,
    [writes, writes, reads_soon]
);
twin!(
    twin_release_that_wakes_one_kind_is_detected,
    RwLockWakesOneKind,
    "deadlock",
    true,
    WritersFirst,
    [writes, writes]
);
twin!(
    twin_reader_that_takes_an_id_for_readers_is_detected,
    RwLockTakesIdForReaders,
    "Causality violation",
    false,
    WritersFirst,
    [reads, writes, writes]
);
