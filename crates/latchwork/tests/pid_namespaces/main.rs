//! Regions that tasks of several PID namespaces share, whose threads and processes have the same IDs.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::event::EventSet;
use latchwork::mutex::in_region::{LockError, NotATask, RegionGuard};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{AttachError, Region, RegionOptions};
use latchwork_testkit::fastrand::Rng;
use latchwork_testkit::{Child, Exit, Leftover, Namespace, Page, Trial, step};

mod descent;
mod refused;
mod users;
mod world;

use world::{Messages, OPERATIONS, Objects};

const A: EventSet = EventSet::event(3);

/// The places in the task table.
const TASKS: usize = 64;

/// Whether this machine lets the test make namespaces.
fn skips(test: &str) -> bool {
    let refused = Namespace::may_be_made();
    if let Err(error) = &refused {
        println!("skipped: {test}: PID namespaces with a /proc cannot be made here: {error}");
    }
    refused.is_err()
}

fn options() -> RegionOptions {
    RegionOptions::new()
        .max_bytes(32 << 20)
        .max_tasks(TASKS as u16)
        .label("pid_namespaces")
}

fn region() -> Region {
    options()
        .any_pid_namespace(true)
        .create_anonymous()
        .unwrap()
}

fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u32 }
}

type Lock = Mutex<u64, InRegion>;

fn repaired<'a>(taken: Result<RegionGuard<'a, u64>, LockError<'a, u64>>) -> RegionGuard<'a, u64> {
    match taken {
        Ok(guard) => guard,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("{error}"),
    }
}

/// The first threads of three namespaces all have the ID 1.
#[test]
fn tasks_with_equal_ids_are_told_apart() {
    let name = "tasks_with_equal_ids_are_told_apart";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    for has_own_proc in [false, true] {
        let region = region();
        let lock = region
            .object("lock", || Lock::in_region(0))
            .unwrap()
            .get_ref();
        let holds = Page::<AtomicBool>::new();
        let waits = Page::<[AtomicU32; 2]>::new();
        let mut holder = Namespace::start(has_own_proc, || {
            assert_eq!(thread_id(), 1);
            let guard = lock.lock().unwrap();
            holds.store(true, SeqCst);
            core::mem::forget(guard);
            loop {
                std::thread::park();
            }
        });
        trial.wait_until(|| holds.load(SeqCst));
        let waiters = [0, 1].map(|index| {
            let state = &waits[index];
            Namespace::start(has_own_proc, move || {
                assert_eq!(thread_id(), 1);
                assert!(matches!(lock.try_lock(), Err(LockError::WouldBlock)));
                state.store(1, SeqCst);
                // Whichever comes first gets the report.
                let died = match lock.lock() {
                    Err(LockError::OwnerDied(died)) => {
                        *died.make_consistent() += 1;
                        true
                    }
                    Ok(mut guard) => {
                        *guard += 1;
                        false
                    }
                    Err(error) => panic!("{error}"),
                };
                state.store(2 + u32::from(died), SeqCst);
            })
        });
        trial.wait_until(|| waits.iter().all(|state| state.load(SeqCst) != 0));
        std::thread::sleep(core::time::Duration::from_millis(20));
        assert!(
            waits.iter().all(|state| state.load(SeqCst) == 1),
            "a living owner was taken for dead"
        );
        holder.end();
        waiters.into_iter().for_each(Namespace::succeed);
        let states: u32 = waits.iter().map(|state| state.load(SeqCst)).sum();
        assert_eq!(states, 5, "the death was not reported once");
        assert_eq!(*lock.lock().unwrap(), 2);
    }
}

/// A message that a task of another namespace, with the same ID, has in flight is not this task's to finish.
#[test]
fn a_message_in_flight_belongs_to_one_of_two_tasks_with_equal_ids() {
    let name = "a_message_in_flight_belongs_to_one_of_two_tasks_with_equal_ids";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let region = region();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, 64)).unwrap();
    queue.send(b"one").unwrap();
    let holds = Page::<AtomicBool>::new();
    let mut holder = Namespace::start(false, || {
        let message = queue.receive_held().unwrap();
        assert_eq!(&*message, b"one");
        holds.store(true, SeqCst);
        core::mem::forget(message);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| holds.load(SeqCst));
    let receives_now = Page::<AtomicBool>::new();
    let receives = || {
        assert_eq!(thread_id(), 1);
        receives_now.store(true, SeqCst);
        let message = queue.receive_held().unwrap();
        assert_eq!((&*message, message.deliveries()), (&b"one"[..], 2));
        message.done();
    };
    let receiver = Namespace::start(false, receives);
    trial.wait_until(|| receives_now.load(SeqCst));
    std::thread::sleep(core::time::Duration::from_millis(20));
    assert_eq!((queue.len(), queue.in_flight().unwrap()), (0, 1));
    holder.end();
    receiver.succeed();
    assert!(queue.is_drained().unwrap());
}

#[test]
fn a_region_for_one_namespace_refuses_tasks_of_others() {
    let name = "a_region_for_one_namespace_refuses_tasks_of_others";
    if skips(name) {
        return;
    }
    let _trial = Trial::begin(name);
    let (title, _file) = Leftover::region("one-namespace");
    let region = options().create_named(&title).unwrap();
    let lock = region
        .object("lock", || Lock::in_region(0))
        .unwrap()
        .get_ref();
    // The mapping is inherited; the region is attached again by its name.
    Namespace::start(false, || {
        let refused = lock.lock();
        assert!(
            matches!(refused, Err(LockError::Unavailable(NotATask::OtherPidNamespace { region, here })) if region != here),
            "{refused:?}"
        );
    })
    .succeed();
    region.detach().unwrap();
    Namespace::start(true, || {
        let refused = options().attach(&title);
        assert!(
            matches!(refused, Err(AttachError::OtherPidNamespace { .. })),
            "{refused:?}"
        );
    })
    .succeed();
}

/// A named region, which a namespace attaches by its name when no other process has it.
#[test]
fn namespaces_share_a_region_by_its_name_one_after_the_other() {
    let name = "namespaces_share_a_region_by_its_name_one_after_the_other";
    if skips(name) {
        return;
    }
    let _trial = Trial::begin(name);
    let (title, _file) = Leftover::region("namespaces");
    for round in 0..3 {
        Namespace::start(round != 1, || {
            let region = options()
                .any_pid_namespace(true)
                .attach_or_create(&title)
                .unwrap();
            let lock = region.object("lock", || Lock::in_region(0)).unwrap();
            let mut guard = repaired(lock.lock());
            assert_eq!(*guard, round);
            *guard += 1;
            // The process ends with the lock.
            core::mem::forget(guard);
        })
        .succeed();
    }
}

const NAMESPACES: usize = 3;
const SEATS: usize = 3;

/// What the processes of the test know of each other.
struct Control {
    stop: Page<AtomicBool>,
    kills: Page<AtomicU64>,
    steps: Page<[[AtomicU64; SEATS]; NAMESPACES]>,
    messages: Messages,
}

impl Control {
    /// The first process of a namespace: it keeps the seats filled, and kills whoever sits there if it is to.
    fn keep_seats(&self, region: &Region, space: usize, kills: bool, mut rng: Rng) {
        let mut seats: Vec<(Child, u64)> = (0..SEATS)
            .map(|seat| (self.seat(region, space, seat, rng.fork()), 0))
            .collect();
        while !self.stop.load(SeqCst) {
            for (seat, (child, before)) in seats.iter_mut().enumerate() {
                let steps = self.steps[space][seat].load(SeqCst);
                // Somebody new has done something.
                if kills && steps > *before && rng.u32(..4) == 0 {
                    child.signal(libc::SIGKILL);
                }
                if let Some(exit) = child.try_wait() {
                    assert_eq!(exit, Exit::Signal(libc::SIGKILL), "ended by itself");
                    self.kills.fetch_add(1, SeqCst);
                    *before = self.steps[space][seat].load(SeqCst);
                    *child = self.seat(region, space, seat, rng.fork());
                }
            }
            match rng.u32(..3) {
                0 => std::thread::yield_now(),
                _ => std::thread::sleep(core::time::Duration::from_micros(rng.u64(..300))),
            }
        }
    }

    fn seat(&self, region: &Region, space: usize, seat: usize, mut rng: Rng) -> Child {
        Child::fork(|| {
            let objects = Objects::new(region, &self.messages);
            loop {
                objects.step(&mut rng);
                self.steps[space][seat].fetch_add(1, SeqCst);
            }
        })
    }
}

/// Three namespaces: in the first two, the first process kills the others; in the third, a process outside does. Now and
/// then one of the namespaces ends as a whole.
#[test]
fn all_objects_hold_while_tasks_and_namespaces_are_killed() {
    let name = "all_objects_hold_while_tasks_and_namespaces_are_killed";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let region = region();
    let control = Control {
        stop: Page::new(),
        kills: Page::new(),
        steps: Page::new(),
        messages: Page::new(),
    };
    let objects = Objects::new(&region, &control.messages);
    let mut rng = trial.seed().rng(0);
    let start = |space: usize, rng: Rng| {
        Namespace::start(space != 1, || {
            control.keep_seats(&region, space, space != 2, rng);
        })
    };
    let mut namespaces: Vec<Namespace> = (0..NAMESPACES)
        .map(|space| start(space, rng.fork()))
        .collect();
    let most = trial.times(600);
    let (mut seen, mut ended) = (0, 0);
    while control.kills.load(SeqCst) < most || ended < most / 60 {
        for (space, namespace) in namespaces.iter_mut().enumerate() {
            assert!(
                !namespace.has_ended(),
                "the first process of namespace {space} ended"
            );
        }
        // From outside.
        let children = namespaces[2].children();
        if !children.is_empty() {
            let victim = children[rng.usize(..children.len())];
            // SAFETY: sends a signal. The process is a child of the namespace's first one, which reaps it; its ID is not
            // given to another process at once.
            unsafe { libc::kill(victim, libc::SIGKILL) };
        }
        if rng.u32(..40) == 0 {
            let space = rng.usize(..NAMESPACES);
            namespaces[space].end();
            namespaces[space] = start(space, rng.fork());
            ended += 1;
        }
        std::thread::sleep(core::time::Duration::from_micros(rng.u64(..4000)));
        let operations = objects.world.operations.load(SeqCst);
        if operations != seen {
            trial.progress();
        }
        seen = operations;
    }
    // All who are left go on.
    for space in 0..NAMESPACES {
        let before: Vec<u64> = control.steps[space]
            .iter()
            .map(|steps| steps.load(SeqCst))
            .collect();
        trial.wait_until(|| {
            let mut pairs = control.steps[space].iter().zip(&before);
            pairs.all(|(steps, before)| steps.load(SeqCst) > *before)
        });
    }
    control.stop.store(true, SeqCst);
    namespaces.into_iter().for_each(Namespace::succeed);
    println!(
        "{} operations, {} kills of tasks, {ended} namespaces ended",
        objects.world.operations.load(SeqCst),
        control.kills.load(SeqCst)
    );
    region.sweep().unwrap();
    check_all(&region, &objects);
}

/// Nothing is lost.
fn check_all(region: &Region, objects: &Objects<'_>) {
    for _ in 0..64 {
        objects.step(&mut Rng::with_seed(7));
    }
    while let Ok(message) = objects.queue.try_receive_held() {
        objects.receive(&message);
    }
    let lost = objects
        .messages
        .iter()
        .filter(|message| message.load(SeqCst) == 1);
    assert_eq!(lost.count(), 0, "messages were lost");
    assert!(objects.queue.is_drained().unwrap() && objects.queue.is_consistent().unwrap());
    objects.remove_own_objects();
    region.check_heap().unwrap();
    assert_eq!(
        region.heap_stats().private_blocks,
        0,
        "blocks of dead tasks were lost"
    );
    // Every place in the task table can be taken, but for a few: only a task of the same namespace knows that a task was
    // killed while it joined or left.
    let (all_tried, refused) = (std::sync::Barrier::new(63), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..63 {
            scope.spawn(|| {
                if region.join("one of all").is_err() {
                    refused.fetch_add(1, SeqCst);
                }
                all_tried.wait();
            });
        }
    });
    let refused = refused.into_inner();
    assert!(refused <= 8, "{refused} of 63 places were lost");
}

/// A task of one namespace is killed at each instruction of an operation; a task of another one does the same then.
#[test]
fn an_operation_is_recoverable_from_another_namespace_at_every_instruction() {
    let name = "an_operation_is_recoverable_from_another_namespace_at_every_instruction";
    if skips(name) {
        return;
    }
    let trial = Trial::begin(name);
    let all = OPERATIONS.into_iter().enumerate();
    let all = all.map(|operation| (operation, true));
    let first = (0, "region lock, as no task yet");
    for ((operation, what), is_task) in all.chain([(first, false)]) {
        let operate = |objects: &Objects<'_>| objects.operate(operation, &mut Rng::with_seed(7));
        let region = region();
        let messages = Messages::new();
        // 0: the victim's turn; 1: the other's.
        let turn = Page::<AtomicU32>::new();
        let mut other = Namespace::start(true, || {
            let objects = Objects::new(&region, &messages);
            loop {
                if turn.load(SeqCst) == 1 {
                    operate(&objects);
                    // What those have sent who were killed before they received.
                    while objects.queue.try_receive_held().is_ok() {}
                    turn.store(0, SeqCst);
                }
                std::thread::yield_now();
            }
        });
        let mut victims = Namespace::start(true, || {
            let objects = Objects::new(&region, &messages);
            let finished = Cell::new(objects.world.operations.load(SeqCst));
            step::each_instruction_and_recovery(
                &trial,
                what,
                || (),
                |(), span| {
                    if is_task {
                        operate(&objects);
                    }
                    span.run(|| operate(&objects));
                },
                |()| false,
                |(), span| span.run(|| operate(&objects)),
                |(), _| {
                    let done = objects.world.operations.load(SeqCst);
                    // The victim does one operation before the one at which it is killed.
                    let is_done = done - finished.get() > u64::from(is_task);
                    turn.store(1, SeqCst);
                    trial.wait_until(|| turn.load(SeqCst) == 0);
                    finished.set(objects.world.operations.load(SeqCst));
                    step::done(is_done)
                },
            );
        });
        trial.wait_until(|| {
            assert!(!other.has_ended(), "{what}: the other task failed");
            trial.progress();
            victims.has_ended()
        });
        victims.succeed();
        other.end();
        region.sweep().unwrap();
        region.check_heap().unwrap();
        assert_eq!(region.heap_stats().private_blocks, 0, "{what}");
    }
}
