//! Models of the robust reader/writer locks: `src/rwlock/robust.rs` under the model checker, with robust mutexes of either
//! kind as its parts. Each kind has a program of its own.
//!
//! In each model a victim dies before its n-th step, for every n, in every interleaving within the
//! bound. Properties: every survivor gets in (a lost wake-up, or a lock that stays with the dead, ends
//! as loom's deadlock), a writer is never inside with anybody else (loom watches the data), torn
//! data comes with a report, and a death that tore nothing is not reported. Each has a negative twin.
//!
//! The gate is the one that programs get: a throughput lock, which is handed off to a waiter never, or whenever there is one.
//! Where `Kind::NAPS_END`, a sleep at the gate may end by itself in models with deaths; so these do not show that a task at
//! the gate is woken, and those without deaths do.
//!
//! Left out: what the models of the robust mutexes leave out; polling; more than two tasks that are not
//! the model's own, and more than two seats.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use latchwork::model::{
    HandsOff, RobustReadWrite, SOON, Scene, Taken, as_task, somebody_died, step,
};
use latchwork::rwlock::SeatLock;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};
use std::cell::Cell;

/// The kinds of robust mutexes that the locks are made of.
pub trait Kind: SeatLock {
    /// Whether naps must end in models with deaths: a dead first waiter at the gate keeps it until the next one looks.
    const NAPS_END: bool;

    fn lock<const READERS: usize>() -> RobustReadWrite<READERS, Self>;
}

/// One seat makes readers wait for each other, too.
const ONE: usize = 1;
const TWO: usize = 2;

pub struct Shared<const READERS: usize, K: Kind> {
    lock: RobustReadWrite<READERS, K>,
    torn: UnsafeCell<bool>,
    /// Whether a writer has begun; what nobody else sees, as loom runs one thread at a time.
    begun: Cell<bool>,
}

// SAFETY: the data is touched under the lock only; that is what the model checks. The mark is not
// shared, as far as the system knows.
unsafe impl<const READERS: usize, K: Kind> Sync for Shared<READERS, K> {}
// SAFETY: as above.
unsafe impl<const READERS: usize, K: Kind> Send for Shared<READERS, K> {}

/// What one task does with the lock.
type Body<const READERS: usize, K> = fn(&Shared<READERS, K>);

impl<const READERS: usize, K: Kind> Shared<READERS, K> {
    fn new() -> Self {
        Self {
            lock: K::lock(),
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
        assert!(self.begun.get(), "a report of a death that changed nothing");
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

    pub fn read(&self) {
        self.read_until(false);
    }

    pub fn read_soon(&self) {
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

    pub fn write(&self) {
        self.enter();
        // SAFETY: the lock is held to write.
        unsafe { self.lock.unlock_write() };
    }

    pub fn write_soon(&self) {
        match self.lock.write(Some(SOON)) {
            Taken::TimedOut => return,
            Taken::Clean => self.look(),
            other => panic!("{other:?}"),
        }
        self.change();
        // SAFETY: the lock is held to write.
        unsafe { self.lock.unlock_write() };
    }

    /// A mistake of its own, which is reported to it.
    pub fn write_while_reading(&self) {
        let seat = self.lock.read(None).unwrap();
        assert_eq!(self.lock.write(None), Taken::Deadlock);
        self.look();
        // SAFETY: the seat is held.
        unsafe { self.lock.unlock_read(seat) };
    }

    pub fn write_and_read(&self) {
        self.enter();
        // SAFETY: the lock is held to write, then to read.
        unsafe {
            let seat = self.lock.downgrade();
            self.look();
            self.lock.unlock_read(seat);
        }
    }
}

fn spawn<const READERS: usize, K: Kind>(
    shared: &Arc<Shared<READERS, K>>,
    number: usize,
    life: Option<usize>,
    body: Body<READERS, K>,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        as_task(number, life, || body(&shared));
    })
}

/// A victim and others, of whom one is the model's own thread; then everything can be entered.
pub fn somebody_dies<const READERS: usize, K: Kind>(
    life: Option<usize>,
    victim: Body<READERS, K>,
    others: &[Body<READERS, K>],
) {
    let shared = Arc::new(Shared::<READERS, K>::new());
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
pub fn at_every_step<const READERS: usize, K: Kind>(
    scene: Scene,
    preemptions: usize,
    victim: Body<READERS, K>,
    others: &'static [Body<READERS, K>],
) {
    let scene = Scene {
        naps_end: K::NAPS_END,
        ..scene
    };
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

/// One in which the gate is never handed off, and one in which it is whenever a task waits for it.
pub fn scenes() -> impl Iterator<Item = Scene> {
    [HandsOff::Never, HandsOff::AtOnce]
        .into_iter()
        .map(|hands_off| Scene {
            hands_off,
            ..Scene::default()
        })
}

type Two<K> = Shared<TWO, K>;
type One<K> = Shared<ONE, K>;

pub fn readers_and_writers_get_in_and_a_writer_is_alone<K: Kind>(scene: Scene) {
    for spurious in [0, 1] {
        let scene = Scene { spurious, ..scene };
        scene.explore(Some(3), || {
            somebody_dies::<TWO, K>(None, Two::<K>::read, &[Two::<K>::write]);
        });
        scene.explore(Some(3), || {
            somebody_dies::<TWO, K>(None, Two::<K>::write, &[Two::<K>::write_and_read]);
        });
    }
    scene.explore(Some(2), || {
        somebody_dies::<TWO, K>(None, Two::<K>::read, &[Two::<K>::write, Two::<K>::read]);
    });
}

pub fn one_more_reader_than_there_are_seats_waits_for_one<K: Kind>(scene: Scene) {
    scene.explore(Some(3), || {
        somebody_dies::<ONE, K>(None, One::<K>::read, &[One::<K>::read]);
    });
    scene.explore(Some(2), || {
        somebody_dies::<ONE, K>(None, One::<K>::read, &[One::<K>::read, One::<K>::write]);
    });
}

pub fn a_waiter_that_gives_up_leaves_no_task_asleep<K: Kind>(scene: Scene) {
    scene.explore(Some(2), || {
        somebody_dies::<TWO, K>(
            None,
            Two::<K>::write_soon,
            &[Two::<K>::read, Two::<K>::write],
        );
    });
    scene.explore(Some(2), || {
        somebody_dies::<ONE, K>(
            None,
            One::<K>::read_soon,
            &[One::<K>::read, One::<K>::write],
        );
    });
}

pub fn a_writer_gets_in_whenever_a_reader_dies<K: Kind>(scene: Scene) {
    at_every_step(scene, 3, Two::<K>::read, &[Two::<K>::write]);
    at_every_step(scene, 3, One::<K>::read, &[One::<K>::write]);
}

pub fn a_reader_gets_in_whenever_a_reader_dies_in_the_last_seat<K: Kind>(scene: Scene) {
    at_every_step(scene, 3, One::<K>::read, &[One::<K>::read]);
    at_every_step(scene, 1, One::<K>::read, &[One::<K>::read, One::<K>::write]);
}

pub fn a_reader_gets_in_whenever_a_writer_dies<K: Kind>(scene: Scene) {
    at_every_step(scene, 3, Two::<K>::write, &[Two::<K>::read]);
    at_every_step(scene, 3, Two::<K>::write_and_read, &[Two::<K>::read]);
}

pub fn a_writer_gets_in_whenever_a_writer_dies<K: Kind>(scene: Scene) {
    at_every_step(scene, 3, Two::<K>::write, &[Two::<K>::write]);
    at_every_step(scene, 3, Two::<K>::write_and_read, &[Two::<K>::write]);
}

pub fn two_survivors_get_in_whenever_a_task_dies<K: Kind>(scene: Scene) {
    at_every_step(
        scene,
        1,
        Two::<K>::write,
        &[Two::<K>::read, Two::<K>::write],
    );
    at_every_step(
        scene,
        1,
        Two::<K>::read,
        &[Two::<K>::write, Two::<K>::write],
    );
}

/// Another one that has the gate, and waits for the seat; and another one that reads, too.
pub fn one_writes_while_it_reads<K: Kind>(scene: Scene) {
    scene.explore(Some(3), || {
        somebody_dies::<TWO, K>(None, Two::<K>::write_while_reading, &[Two::<K>::write]);
    });
    scene.explore(Some(3), || {
        somebody_dies::<TWO, K>(
            None,
            Two::<K>::write_while_reading,
            &[Two::<K>::write_while_reading],
        );
    });
}

pub fn writing_while_reading_never_waits<K: Kind>(scene: Scene) {
    one_writes_while_it_reads::<K>(scene);
}

pub fn a_reader_and_a_writer<K: Kind>(scene: Scene) {
    scene.explore(Some(3), || {
        somebody_dies::<TWO, K>(None, Two::<K>::read, &[Two::<K>::write]);
    });
}

pub fn three_writers<K: Kind>(scene: Scene) {
    scene.explore(Some(2), || {
        somebody_dies::<TWO, K>(None, Two::<K>::write, &[Two::<K>::write, Two::<K>::write]);
    });
}

/// Two writers, of whom one dies, perhaps as the one to which the gate is handed off.
pub fn a_writer_dies_at_the_gate<K: Kind>(scene: Scene) {
    let scene = Scene {
        hands_off: HandsOff::AtOnce,
        ..scene
    };
    at_every_step(scene, 2, Two::<K>::write, &[Two::<K>::write]);
}

/// A task dies, and its slot, or its thread ID, has a new one at once.
pub fn a_successor_reads_and_writes<K: Kind>(scene: Scene) {
    for (victim, other) in [
        (
            Two::<K>::read as Body<TWO, K>,
            Two::<K>::write as Body<TWO, K>,
        ),
        (Two::<K>::write, Two::<K>::read),
    ] {
        for life in 1..8 {
            scene.explore(Some(2), move || {
                let shared = Arc::new(Two::<K>::new());
                let in_slot_1 = Arc::clone(&shared);
                let slot_1 = thread::spawn(move || {
                    as_task(1, Some(life), || victim(&in_slot_1));
                    as_task(1, None, || in_slot_1.write());
                });
                let second = spawn(&shared, 2, None, other);
                slot_1.join().unwrap();
                second.join().unwrap();
            });
        }
    }
}

pub fn a_successor_in_its_slot_is_not_taken_for_a_dead_task<K: Kind>(scene: Scene) {
    a_successor_reads_and_writes::<K>(scene);
}

/// The program of one kind: its tests, and its twins (a mistake, what the model says of it, and the model).
#[macro_export]
macro_rules! models_of {
    (
        $kind:ty: $new:ident, naps end: $naps_end:literal; $($test:ident)*;
        $($twin:ident: $fault:ident, $expected:literal, $model:expr;)*
    ) => {
        impl Kind for $kind {
            const NAPS_END: bool = $naps_end;

            fn lock<const READERS: usize>() -> latchwork::model::RobustReadWrite<READERS, Self> {
                latchwork::model::RobustReadWrite::$new()
            }
        }

        $(#[test]
        fn $test() {
            support::scenes().for_each(support::$test::<$kind>);
        })*

        $(#[test]
        fn $twin() {
            let scene = Scene {
                fault: Some(latchwork::model::Fault::$fault),
                ..Scene::default()
            };
            scene.must_fail(stringify!($twin), $expected, $model);
        })*
    };
}
