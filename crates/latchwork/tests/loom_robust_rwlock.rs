//! Models of the robust reader/writer lock: `src/rwlock/robust.rs` under the model checker, with a
//! kernel that buries the dead as Linux does.
//!
//! In each model a victim dies before its n-th step, for every n, in every interleaving within the
//! bound. Properties: every survivor gets in (a lost wake-up, or a lock that stays with the dead, ends
//! as loom's deadlock), a writer is never inside with anybody else (loom watches the data), whoever
//! finds the data torn was told, and nobody is told of a death that tore nothing. Each has a negative
//! twin.
//!
//! Left out: what the models of the robust mutex leave out; polling; more than two tasks that are not
//! the model's own, and more than two seats.
#![cfg(loom)]
#![allow(unsafe_code)]

use latchwork::model::{RobustReadWrite, SOON, Scene, Taken, as_task, somebody_died, step};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};
use std::cell::Cell;

/// One seat makes readers wait for each other, too.
const ONE: usize = 1;
const TWO: usize = 2;

struct Shared<const READERS: usize> {
    lock: RobustReadWrite<READERS>,
    torn: UnsafeCell<bool>,
    /// Whether a writer has begun; what nobody else sees, as loom runs one thread at a time.
    begun: Cell<bool>,
}

// SAFETY: the data is touched under the lock only; that is what the model checks. The mark is not
// shared, as far as the system knows.
unsafe impl<const READERS: usize> Sync for Shared<READERS> {}
// SAFETY: as above.
unsafe impl<const READERS: usize> Send for Shared<READERS> {}

/// What one task does with the lock.
type Body<const READERS: usize> = fn(&Shared<READERS>);

impl<const READERS: usize> Shared<READERS> {
    fn new() -> Self {
        Self {
            lock: RobustReadWrite::default(),
            torn: UnsafeCell::new(false),
            begun: Cell::new(false),
        }
    }

    fn set_torn(&self, torn: bool) {
        // SAFETY: called with the lock held to write; loom reports anybody else.
        self.torn.with_mut(|data| unsafe { *data = torn });
    }

    fn look(&self) {
        // SAFETY: called with the lock held; loom reports a writer beside a reader.
        let torn = self.torn.with(|data| unsafe { *data });
        assert!(!torn, "torn data, and nobody said so");
    }

    fn repair(&self) {
        assert!(self.begun.get(), "told of a death that changed nothing");
        self.set_torn(false);
        self.lock.mark_consistent();
    }

    /// Works as a writer, up to the release.
    fn change(&self) {
        self.begun.set(true);
        self.set_torn(true);
        step();
        self.set_torn(false);
    }

    fn read(&self) {
        self.read_until(false);
    }

    fn read_soon(&self) {
        self.read_until(true);
    }

    fn read_until(&self, soon: bool) {
        match self.lock.read(soon.then_some(SOON)) {
            Ok(seat) => {
                self.look();
                // SAFETY: the seat is held.
                unsafe { self.lock.unlock_read(seat) };
            }
            Err(Taken::OwnerDied) => {
                self.repair();
                self.change();
                // SAFETY: the lock is held to write.
                unsafe { self.lock.unlock_write() };
            }
            Err(Taken::TimedOut) if soon => {}
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Gets in as a writer.
    fn enter(&self) {
        match self.lock.write(None) {
            Taken::Clean => self.look(),
            Taken::OwnerDied => self.repair(),
            other => panic!("{other:?}"),
        }
        self.change();
    }

    fn write(&self) {
        self.enter();
        // SAFETY: the lock is held to write.
        unsafe { self.lock.unlock_write() };
    }

    fn write_soon(&self) {
        match self.lock.write(Some(SOON)) {
            Taken::TimedOut => return,
            Taken::Clean => self.look(),
            other => panic!("{other:?}"),
        }
        self.change();
        // SAFETY: the lock is held to write.
        unsafe { self.lock.unlock_write() };
    }

    /// A mistake of its own, which it is told.
    fn write_while_reading(&self) {
        let seat = self.lock.read(None).unwrap();
        assert_eq!(self.lock.write(None), Taken::Deadlock);
        self.look();
        // SAFETY: the seat is held.
        unsafe { self.lock.unlock_read(seat) };
    }

    fn write_and_read(&self) {
        self.enter();
        // SAFETY: the lock is held to write, then to read.
        unsafe {
            let seat = self.lock.downgrade();
            self.look();
            self.lock.unlock_read(seat);
        }
    }
}

fn spawn<const READERS: usize>(
    shared: &Arc<Shared<READERS>>,
    number: usize,
    life: Option<usize>,
    body: Body<READERS>,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        as_task(number, life, || body(&shared));
    })
}

/// A victim and others, of whom one is the model's own thread; then everything can be entered.
fn somebody_dies<const READERS: usize>(
    life: Option<usize>,
    victim: Body<READERS>,
    others: &[Body<READERS>],
) {
    let shared = Arc::new(Shared::<READERS>::new());
    let mut threads = vec![spawn(&shared, 1, life, victim)];
    for (index, other) in others[1..].iter().enumerate() {
        threads.push(spawn(&shared, 2 + index, None, *other));
    }
    as_task(0, None, || others[0](&shared));
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    as_task(0, None, || {
        shared.read();
        shared.write();
    });
}

/// The model for each step at which the victim can die, until it has none left.
fn at_every_step<const READERS: usize>(
    scene: Scene,
    preemptions: usize,
    victim: Body<READERS>,
    others: &'static [Body<READERS>],
) {
    for life in 0.. {
        somebody_died();
        scene.explore(Some(preemptions), move || {
            somebody_dies(Some(life), victim, others);
        });
        if !somebody_died() {
            assert!(life > 5, "the victim has more steps than that");
            return;
        }
    }
}

type Two = Shared<TWO>;
type One = Shared<ONE>;

#[test]
fn readers_and_writers_get_in_and_a_writer_is_alone() {
    for spurious in [0, 1] {
        let scene = Scene {
            spurious,
            ..Scene::default()
        };
        scene.explore(Some(3), || {
            somebody_dies::<TWO>(None, Two::read, &[Two::write]);
        });
        scene.explore(Some(3), || {
            somebody_dies::<TWO>(None, Two::write, &[Two::write_and_read]);
        });
    }
    Scene::default().explore(Some(2), || {
        somebody_dies::<TWO>(None, Two::read, &[Two::write, Two::read]);
    });
}

#[test]
fn one_more_reader_than_there_are_seats_waits_for_one() {
    Scene::default().explore(Some(3), || {
        somebody_dies::<ONE>(None, One::read, &[One::read]);
    });
    Scene::default().explore(Some(2), || {
        somebody_dies::<ONE>(None, One::read, &[One::read, One::write]);
    });
}

#[test]
fn a_waiter_that_gives_up_leaves_no_task_asleep() {
    Scene::default().explore(Some(2), || {
        somebody_dies::<TWO>(None, Two::write_soon, &[Two::read, Two::write]);
    });
    Scene::default().explore(Some(2), || {
        somebody_dies::<ONE>(None, One::read_soon, &[One::read, One::write]);
    });
}

#[test]
fn a_writer_gets_in_whenever_a_reader_dies() {
    at_every_step(Scene::default(), 3, Two::read, &[Two::write]);
    at_every_step(Scene::default(), 3, One::read, &[One::write]);
}

#[test]
fn a_reader_gets_in_whenever_a_reader_dies_in_the_last_seat() {
    at_every_step(Scene::default(), 3, One::read, &[One::read]);
    at_every_step(Scene::default(), 1, One::read, &[One::read, One::write]);
}

#[test]
fn a_reader_gets_in_whenever_a_writer_dies() {
    at_every_step(Scene::default(), 3, Two::write, &[Two::read]);
    at_every_step(Scene::default(), 3, Two::write_and_read, &[Two::read]);
}

#[test]
fn a_writer_gets_in_whenever_a_writer_dies() {
    at_every_step(Scene::default(), 3, Two::write, &[Two::write]);
    at_every_step(Scene::default(), 3, Two::write_and_read, &[Two::write]);
}

#[test]
fn two_survivors_get_in_whenever_a_task_dies() {
    at_every_step(Scene::default(), 1, Two::write, &[Two::read, Two::write]);
    at_every_step(Scene::default(), 1, Two::read, &[Two::write, Two::write]);
}

/// A mistake, what the model says of it, and the model: without a death, or with one at each step.
macro_rules! twin {
    ($name:ident, $fault:ident, $expected:expr, $explore:expr) => {
        #[test]
        fn $name() {
            let scene = Scene {
                fault: Some(latchwork::model::Fault::$fault),
                ..Scene::default()
            };
            scene.must_fail(stringify!($name), $expected, $explore);
        }
    };
}

/// Another one that has the gate, and waits for the seat; and another one that reads, too.
fn one_writes_while_it_reads(scene: Scene) {
    scene.explore(Some(3), || {
        somebody_dies::<TWO>(None, Two::write_while_reading, &[Two::write]);
    });
    scene.explore(Some(3), || {
        somebody_dies::<TWO>(None, Two::write_while_reading, &[Two::write_while_reading]);
    });
}

#[test]
fn writing_while_reading_never_waits() {
    one_writes_while_it_reads(Scene::default());
}

twin!(
    twin_reader_that_waits_as_a_writer_is_detected,
    RobustRwLockForgetsOwnSeat,
    "deadlock",
    one_writes_while_it_reads
);

fn a_reader_and_a_writer(scene: Scene) {
    scene.explore(Some(3), || {
        somebody_dies::<TWO>(None, Two::read, &[Two::write]);
    });
}

twin!(
    twin_reader_that_checks_once_is_detected,
    RobustRwLockChecksOnce,
    "Causality violation",
    a_reader_and_a_writer
);
twin!(
    twin_reader_whose_check_overtakes_its_seat_is_detected,
    RobustRwLockReaderUnordered,
    "Causality violation",
    a_reader_and_a_writer
);
twin!(
    twin_writer_whose_check_overtakes_its_gate_is_detected,
    RobustRwLockWriterUnordered,
    "Causality violation",
    a_reader_and_a_writer
);
twin!(
    twin_writer_that_does_not_record_that_it_is_inside_is_detected,
    RobustRwLockForgetsWriting,
    "nobody said so",
    |scene| at_every_step(scene, 2, Two::write, &[Two::read])
);
twin!(
    twin_death_that_is_hidden_is_detected,
    RobustRwLockHidesDeath,
    "nobody said so",
    |scene| at_every_step(scene, 2, Two::write, &[Two::write])
);
twin!(
    twin_death_that_tore_nothing_and_is_reported_is_detected,
    RobustRwLockReportsAllDeaths,
    "told of a death that changed nothing",
    |scene| at_every_step(scene, 2, Two::write, &[Two::read])
);
twin!(
    twin_seat_without_announcement_is_detected,
    RobustNotAnnounced,
    "deadlock",
    |scene| at_every_step(scene, 2, Two::read, &[Two::write])
);
