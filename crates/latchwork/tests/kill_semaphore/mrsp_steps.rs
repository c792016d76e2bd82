//! MrsP semaphores whose users are killed at each instruction of an obtain, a wait and a release: tasks that the kernel does
//! not know, which sleep while they wait (in several PID namespaces), and tasks that are bound to processors and spin (in one).
//! (`mrsp.rs` has what tasks lend each other, `endings.rs` deletions.)

use super::bound::{
    bind, bound_task, processors_of, real_time_of, thread_id, try_real_time_of, two_processors,
};
use super::priority;
use super::steps::lasting_region;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::region::{Region, TaskId};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{MrspSemaphore, ObtainError};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Page, Trial};
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

const OWN: u8 = 60;
const CEILING: u8 = 50;
/// Of a waiter that spins, as the kernel has it.
const SPINS: i32 = 49;

/// What the tasks of a test are.
#[derive(Clone, Copy)]
enum Tasks {
    /// Unknown to the kernel.
    Plain,
    /// Each bound to one of these processors, at a real-time priority.
    Bound([usize; 2]),
}

use Tasks::{Bound, Plain};

/// Processors of [`Bound`].
const HERE: usize = 0;
const THERE: usize = 1;

#[derive(Clone, Copy)]
struct Scene {
    region: &'static Region,
    semaphore: MrspSemaphore<'static>,
    tasks: Tasks,
}

impl Scene {
    fn new(trial: &Trial, tasks: Tasks) -> Self {
        let region = lasting_region(trial);
        Self {
            region,
            semaphore: MrspSemaphore::create(region, "s", priority(CEILING)).unwrap(),
            tasks,
        }
    }

    /// The calling thread becomes a task.
    fn become_task(self, place: usize) -> TaskId {
        match self.tasks {
            Plain => {
                let me = self.region.task_id().unwrap();
                me.set_priority(self.region, priority(OWN)).unwrap();
                me
            }
            Bound(processors) => bound_task(self.region, processors[place], OWN),
        }
    }

    /// The calling task has neither a ceiling nor a borrowed processor.
    fn check_at_home(self, place: usize, point: Point) {
        let me = self.region.task_id().unwrap();
        let current = me.current_priority(self.region).unwrap();
        assert_eq!(current, priority(OWN), "killed at {point:?}");
        if let Bound(processors) = self.tasks {
            assert_eq!(processors_of(0), [processors[place]], "killed at {point:?}");
            let now = real_time_of(0);
            assert_eq!(now, 100 - i32::from(OWN), "killed at {point:?}");
        }
    }

    /// Nobody lives that has it or waits for it; the calling task obtains it, and has it twice, the second time without a
    /// report. Returns whether a death was reported to it.
    fn check_free(self, point: Point) -> bool {
        let obtain = || {
            let held = self.semaphore.try_obtain();
            held.unwrap_or_else(|error| panic!("killed at {point:?}: {error}"))
        };
        let me = self.region.task_id().unwrap();
        let held = obtain();
        let ceiling = me.current_priority(self.region).unwrap();
        assert_eq!(ceiling, priority(CEILING), "killed at {point:?}");
        let died = held.owner_died();
        drop(held);
        assert!(!(died && point == Point::Finished), "no owner died");
        assert!(!obtain().owner_died(), "killed at {point:?}");
        let now = (self.semaphore.owner(), self.semaphore.waiting());
        assert_eq!(now, (None, 0), "killed at {point:?}");
        died
    }

    /// A task that settles what dead ones left.
    fn recover(self, span: step::Span) {
        span.run(|| {
            self.region.join("recoverer").unwrap();
            self.region.sweep().unwrap();
            match self.semaphore.try_obtain() {
                Ok(held) => drop(held),
                Err(ObtainError::WouldBlock) => {}
                Err(error) => panic!("{error}"),
            }
        });
    }
}

fn free_semaphore(trial: &Trial, kind: &str, tasks: Tasks) {
    let scene = Scene::new(trial, tasks);
    scene.become_task(HERE);
    step::each_instruction_and_recovery(
        trial,
        &format!("obtain and release, MrsP, {kind}"),
        || {
            // All deaths are counted, and settled here. So the check finds an owner whose death is not.
            scene.region.sweep().unwrap();
            scene.check_free(Point::Finished);
        },
        |(), span| {
            scene.become_task(THERE);
            span.run(|| drop(scene.semaphore.obtain().unwrap()));
        },
        |()| false,
        |(), span| scene.recover(span),
        |(), point| {
            let died = scene.check_free(point);
            scene.check_at_home(HERE, point);
            step::reported(died.into())
        },
    );
}

#[test]
fn a_free_mrsp_semaphore_is_obtained_or_not_at_every_instruction() {
    let trial = Trial::begin("a_free_mrsp_semaphore_is_obtained_or_not_at_every_instruction")
        .across_namespaces();
    free_semaphore(&trial, "unknown to the kernel", Plain);
}

#[test]
fn a_bound_task_obtains_a_free_mrsp_semaphore_or_not_at_every_instruction() {
    const NAME: &str = "a_bound_task_obtains_a_free_mrsp_semaphore_or_not_at_every_instruction";
    if let Some(processors) = two_processors(NAME) {
        free_semaphore(&Trial::begin(NAME), "bound", Bound(processors));
    }
}

#[test]
fn a_sleeping_wait_for_an_mrsp_semaphore_ends_once_at_every_instruction() {
    let trial =
        Trial::begin("a_sleeping_wait_for_an_mrsp_semaphore_ends_once_at_every_instruction")
            .across_namespaces();
    let scene = Scene::new(&trial, Plain);
    scene.become_task(HERE);
    let own = || {
        scene.region.sweep().unwrap();
        let held = scene.semaphore.obtain().unwrap();
        assert!(!held.owner_died());
        held.keep();
    };
    step::each_instruction_and_recovery(
        &trial,
        "obtain and release what is owned, MrsP, asleep",
        own,
        |(), span| {
            scene.become_task(THERE);
            span.run(|| drop(scene.semaphore.obtain().unwrap()));
        },
        |()| scene.semaphore.release().is_ok(),
        |(), span| scene.recover(span),
        |(), point| {
            let _ = scene.semaphore.release();
            scene.check_at_home(HERE, point);
            let died = scene.check_free(point);
            scene.check_at_home(HERE, point);
            step::reported(died.into())
        },
    );
    step::each_instruction_and_recovery(
        &trial,
        "obtain in vain, MrsP, asleep",
        own,
        |(), span| {
            scene.become_task(THERE);
            span.run(|| {
                let obtained = scene.semaphore.obtain_for(Duration::from_millis(1));
                assert!(matches!(obtained, Err(ObtainError::TimedOut)));
            });
        },
        |()| {
            thread::sleep(Duration::from_millis(1));
            true
        },
        |(), span| scene.recover(span),
        |(), point| {
            scene.semaphore.release().unwrap();
            scene.check_at_home(HERE, point);
            let died = scene.check_free(point);
            assert!(!died, "no owner died, killed at {point:?}");
            scene.check_at_home(HERE, point);
            step::reported(0)
        },
    );
}

#[test]
fn a_spinning_wait_for_an_mrsp_semaphore_ends_once_at_every_instruction() {
    const NAME: &str = "a_spinning_wait_for_an_mrsp_semaphore_ends_once_at_every_instruction";
    let Some(processors) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let scene = Scene::new(&trial, Bound(processors));
    // Ahead of ordinary tasks, as its owner is: the waiter spins beside it.
    scene.become_task(HERE);
    // A thread of the test outlives any borrow.
    let waiter: &Page<AtomicU32> = Box::leak(Box::new(Page::new()));
    let spins = || match waiter.load(SeqCst) {
        0 => false,
        thread => try_real_time_of(thread) == Some(SPINS),
    };
    step::each_instruction_and_recovery(
        &trial,
        "obtain and release what is owned, MrsP, spinning",
        || {
            scene.region.sweep().unwrap();
            waiter.store(0, SeqCst);
            let (told, owns) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let owner = thread::spawn(move || {
                scene.become_task(HERE);
                let held = scene.semaphore.obtain().unwrap();
                assert!(!held.owner_died());
                held.keep();
                told.send(()).unwrap();
                while !spins() && ended.try_recv() == Err(TryRecvError::Empty) {
                    thread::sleep(Duration::from_micros(50));
                }
                let processors = processors_of(0).len();
                scene.semaphore.release().unwrap();
                scene.check_at_home(HERE, Point::Finished);
                processors
            });
            owns.recv().unwrap();
            (owner, end)
        },
        |_, span| {
            scene.become_task(THERE);
            waiter.store(thread_id(), SeqCst);
            span.run(|| drop(scene.semaphore.obtain().unwrap()));
        },
        // It waits for a lock that the owner has for a moment.
        |_| true,
        |_, span| scene.recover(span),
        |(owner, end), point| {
            drop(end);
            let processors = owner.join().unwrap();
            let died = scene.check_free(point);
            scene.check_at_home(HERE, point);
            match (processors, died) {
                (1, true) => {
                    "the dead waiter had not lent its processor, and the death of an owner was reported"
                }
                (1, false) => "the dead waiter had not lent its processor",
                (_, true) => "the processor was lent, and the death of an owner was reported",
                (_, false) => "the processor was lent",
            }
        },
    );
}

/// What a thread of the test has seen: whether a death was reported to it.
type Waiter = thread::JoinHandle<bool>;

impl Scene {
    /// A thread that obtains the semaphore as soon as another task owns it, releases it, and is at home then.
    fn waiter(self, become_task: impl FnOnce() + Send + 'static) -> Waiter {
        thread::spawn(move || {
            become_task();
            while self.semaphore.owner().is_none() {
                thread::sleep(Duration::from_micros(50));
            }
            let held = self.semaphore.obtain().unwrap();
            let told = held.owner_died();
            drop(held);
            told
        })
    }

    /// Both waiters have got it, and no more deaths were reported than there were: that of the task that released to one of
    /// them, and later that of a task that recovered. Returns the outcome.
    fn check_waiters(self, waiters: [Waiter; 2], point: Point) -> &'static str {
        let told = waiters.map(|waiter| waiter.join().unwrap());
        let late = self.check_free(point);
        assert!(
            !late || matches!(point, Point::Twice(..)),
            "killed at {point:?}: reported late"
        );
        let told = [told[0], told[1], late].map(u64::from).iter().sum();
        assert!(
            told <= point.kills(),
            "killed at {point:?}: {told} were reported"
        );
        step::reported(told)
    }
}

#[test]
fn an_mrsp_semaphore_is_handed_over_or_not_at_every_instruction() {
    let trial = Trial::begin("an_mrsp_semaphore_is_handed_over_or_not_at_every_instruction")
        .across_namespaces();
    let scene = Scene::new(&trial, Plain);
    scene.become_task(HERE);
    step::each_instruction_and_recovery(
        &trial,
        "release to a waiter, MrsP, asleep",
        || {
            scene.region.sweep().unwrap();
            [(); 2].map(|()| {
                scene.waiter(move || {
                    scene.become_task(THERE);
                })
            })
        },
        |_, span| {
            scene.become_task(HERE);
            scene.semaphore.obtain().unwrap().keep();
            while scene.semaphore.waiting() < 2 {
                thread::yield_now();
            }
            span.run(|| scene.semaphore.release().unwrap());
        },
        |_| false,
        |_, span| scene.recover(span),
        |waiters, point| scene.check_waiters(waiters, point),
    );
}

/// Two waiters spin on one processor, at one level, so that only one of them runs. If that is not the heir, whose priority the
/// dead task may not have raised, it lets the heir run.
#[test]
fn one_of_two_spinning_waiters_gets_an_mrsp_semaphore_at_every_instruction() {
    const NAME: &str = "one_of_two_spinning_waiters_gets_an_mrsp_semaphore_at_every_instruction";
    let Some(processors) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let scene = Scene::new(&trial, Bound(processors));
    // The other one is busy.
    bind(&[processors[HERE]]);
    let me = scene.region.task_id().unwrap();
    me.set_priority(scene.region, priority(OWN)).unwrap();
    step::each_instruction_and_recovery(
        &trial,
        "release to one of two waiters on a processor, MrsP",
        || {
            scene.region.sweep().unwrap();
            [(); 2].map(|()| {
                scene.waiter(move || {
                    // It is above a waiter that spins, and has this priority before it comes to that one's processor.
                    bound_task(scene.region, processors[HERE], CEILING);
                    bind(&[processors[THERE]]);
                })
            })
        },
        |_, span| {
            scene.become_task(HERE);
            scene.semaphore.obtain().unwrap().keep();
            while !(scene.semaphore.waiting() == 2 && processors_of(0).len() == 2) {
                thread::sleep(Duration::from_micros(50));
            }
            span.run(|| scene.semaphore.release().unwrap());
        },
        |_| false,
        |_, span| scene.recover(span),
        |waiters, point| scene.check_waiters(waiters, point),
    );
}
