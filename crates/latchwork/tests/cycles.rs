//! Objects that are made and deleted again and again: memory and names are what they were.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use latchwork::classic::{self, Classic, ClassicOptions, Status};
use latchwork::event::{EventSet, Events};
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{Discipline, Queue, QueueError, QueueOptions, SendError, Wait};
use latchwork::region::{HeapStats, ObjectError, Region, RegionOptions, Vec as SharedVec};
use latchwork::semaphore::{
    self, BinaryOptions, BinarySemaphore, CountingSemaphore, MrspSemaphore, Priority,
    SimpleBinarySemaphore,
};
use latchwork_testkit::step::{self, Point};
use latchwork_testkit::{Child, Exit, Trial};
use std::thread;

/// So few that a name, or a queue's memory, that does not come back is missed soon.
const NAMES: u32 = 8;
const CYCLES: u32 = 1200;

fn region() -> Region {
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .max_names(NAMES)
        .label("cycles")
        .create_anonymous()
        .unwrap();
    region.join("test").unwrap();
    region
}

/// What is allocated: bytes and blocks.
fn used(region: &Region) -> (usize, usize) {
    let HeapStats {
        allocated_bytes,
        private_blocks,
        shared_blocks,
        ..
    } = region.heap_stats();
    region.check_heap().unwrap();
    (allocated_bytes, private_blocks + shared_blocks)
}

/// Runs a cycle with each number; after the first, memory is what it was.
fn turn(trial: &Trial, region: &Region, mut cycle: impl FnMut(u32)) {
    cycle(0);
    let before = used(region);
    for number in 1..CYCLES {
        cycle(number);
        if number % 100 == 0 {
            trial.progress();
            assert_eq!(used(region), before, "after {number} cycles");
        }
    }
    assert_eq!(used(region), before);
}

/// Another shape with each number.
fn options(number: u32) -> QueueOptions {
    let discipline = [Discipline::Racing, Discipline::Fifo, Discipline::Priority];
    QueueOptions::new(1 + number % 61, 1 + number * 37 % 9001)
        .discipline(discipline[number as usize % 3])
}

#[test]
fn classic_queues_of_any_shape_give_all_memory_back() {
    let trial = Trial::begin("classic_queues_of_any_shape_give_all_memory_back");
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new().message_queues(4)).unwrap();
    let before = used(&region);
    let mut old = 0;
    for number in 0..CYCLES {
        let (count, size) = (1 + number % 61, 1 + number as usize * 37 % 9001);
        let attributes = if number % 2 == 0 {
            0
        } else {
            classic::PRIORITY
        };
        let (mut id, mut reached) = (0, 7);
        let name = classic::build_name(*b"MAIL");
        let made = rtems.message_queue_create(name, count, size, attributes, Some(&mut id));
        assert_eq!(made, Status::Successful, "cycle {number}");
        assert_eq!(rtems.message_queue_send(old, Some(b"x")), Status::InvalidId);
        let message = vec![1; size];
        for _ in 0..count {
            let sent = rtems.message_queue_send(id, Some(&message));
            assert_eq!(sent, Status::Successful);
        }
        let shouted = rtems.message_queue_broadcast(id, Some(&message), Some(&mut reached));
        assert_eq!((shouted, reached), (Status::Successful, 0));
        assert_eq!(rtems.message_queue_delete(id), Status::Successful);
        assert_eq!(rtems.message_queue_delete(id), Status::InvalidId);
        old = id;
        if number % 100 == 0 {
            trial.progress();
            assert_eq!(used(&region), before, "after {number} cycles");
        }
    }
    assert_eq!(used(&region), before);
}

#[test]
fn classic_semaphores_of_all_kinds_give_all_memory_back() {
    let trial = Trial::begin("classic_semaphores_of_all_kinds_give_all_memory_back");
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new().semaphores(2)).unwrap();
    let binary = classic::BINARY_SEMAPHORE | classic::PRIORITY;
    let kinds = [
        0,
        classic::SIMPLE_BINARY_SEMAPHORE,
        classic::BINARY_SEMAPHORE,
        binary | classic::INHERIT_PRIORITY,
        binary | classic::PRIORITY_CEILING,
    ];
    turn(&trial, &region, |number| {
        let attributes = kinds[number as usize % kinds.len()];
        let mut id = 0;
        let made = rtems.semaphore_create(number + 1, 1, attributes, 9, Some(&mut id));
        assert_eq!(made, Status::Successful);
        assert_eq!(rtems.semaphore_delete(id), Status::Successful);
    });
}

#[test]
fn tasks_that_use_classic_objects_give_all_memory_back() {
    let trial = Trial::begin("tasks_that_use_classic_objects_give_all_memory_back");
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new()).unwrap();
    turn(&trial, &region, |_| {
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_ne!(rtems.task_self(), 0);
                assert_eq!(rtems.event_send(classic::SELF, 1), Status::Successful);
                let events = Events::new(&region);
                assert_eq!(events.receive_any(EventSet::all()).unwrap().bits(), 1);
            });
        });
    });
}

#[test]
fn queues_of_any_name_and_shape_give_names_and_memory_back() {
    let trial = Trial::begin("queues_of_any_name_and_shape_give_names_and_memory_back");
    let region = region();
    turn(&trial, &region, |number| {
        let name = format!("queue {number}");
        let queue = Queue::create(&region, &name, &options(number)).unwrap();
        assert_eq!(queue.options(), options(number));
        queue.send(&vec![3; queue.max_message() as usize]).unwrap();
        queue.delete().unwrap();
        assert!(matches!(
            Queue::open(&region, &name),
            Err(QueueError::Object(ObjectError::NotFound))
        ));
        assert!(matches!(queue.try_send(b""), Err(SendError::Deleted)));
    });
}

#[test]
fn a_name_may_have_another_queue_after_the_first() {
    let trial = Trial::begin("a_name_may_have_another_queue_after_the_first");
    let region = region();
    turn(&trial, &region, |number| {
        let queue = Queue::create(&region, "queue", &options(number)).unwrap();
        assert!(queue.is_empty());
        queue.send(b"1").unwrap();
        let other = Queue::open(&region, "queue").unwrap();
        assert_eq!((other.options(), other.len()), (options(number), 1));
        queue.delete().unwrap();
    });
}

#[test]
fn rings_of_any_name_and_shape_give_names_and_memory_back() {
    let trial = Trial::begin("rings_of_any_name_and_shape_give_names_and_memory_back");
    let region = region();
    turn(&trial, &region, |number| {
        let name = format!("ring {number}");
        let ring = Spsc::create(&region, &name, &options(number)).unwrap();
        let mut sender = ring.sender().unwrap();
        sender.send(b"1").unwrap();
        if number % 2 == 0 {
            drop(sender);
            ring.delete().unwrap();
        } else {
            // The end outlives the ring.
            ring.delete().unwrap();
            assert!(sender.send(b"2").is_err());
        }
    });
}

#[test]
fn semaphores_of_any_name_and_kind_give_names_and_memory_back() {
    let trial = Trial::begin("semaphores_of_any_name_and_kind_give_names_and_memory_back");
    let region = region();
    let fifo = semaphore::Discipline::Fifo;
    let binary = BinaryOptions::new();
    let all = |number: u32| {
        let name = |kind| format!("{kind} {number}");
        let counting = CountingSemaphore::create(&region, &name("counting"), 3, fifo).unwrap();
        let simple = SimpleBinarySemaphore::create(&region, &name("simple"), 1, fifo).unwrap();
        let owned = BinarySemaphore::create(&region, &name("owned"), &binary).unwrap();
        let shared =
            MrspSemaphore::create(&region, &name("shared"), Priority::new(9).unwrap()).unwrap();
        counting.delete().unwrap();
        simple.delete().unwrap();
        owned.delete().unwrap();
        shared.delete().unwrap();
        assert!(counting.try_obtain().is_err());
        assert!(CountingSemaphore::open(&region, &name("counting")).is_err());
    };
    turn(&trial, &region, all);
}

#[test]
fn objects_of_any_name_give_names_and_memory_back() {
    let trial = Trial::begin("objects_of_any_name_give_names_and_memory_back");
    let region = region();
    turn(&trial, &region, |number| {
        let name = format!("object {number}");
        region
            .object(&name, || {
                let mut numbers = SharedVec::new_in(&region);
                for number in 0..number % 300 {
                    numbers.push(number).unwrap();
                }
                numbers
            })
            .unwrap();
        // SAFETY: nobody has a reference.
        unsafe { region.remove::<SharedVec<u32>>(&name).unwrap() };
    });
}

/// All names to one kind of objects, then to another.
#[test]
fn names_go_from_kind_to_kind() {
    let trial = Trial::begin("names_go_from_kind_to_kind");
    let region = region();
    let fifo = semaphore::Discipline::Fifo;
    turn(&trial, &region, |number| {
        let name = |index| format!("{number}.{index}");
        let queues: Vec<_> = (0..NAMES)
            .map(|index| Queue::create(&region, &name(index), &options(7)).unwrap())
            .collect();
        assert!(matches!(
            Queue::create(&region, "one more", &options(7)),
            Err(QueueError::Object(ObjectError::DirectoryFull { .. }))
        ));
        queues.iter().for_each(|queue| queue.delete().unwrap());
        let semaphores: Vec<_> = (0..NAMES)
            .map(|index| CountingSemaphore::create(&region, &name(index), 0, fifo).unwrap())
            .collect();
        semaphores.iter().for_each(|one| one.delete().unwrap());
        for index in 0..NAMES {
            region.object(&name(index), || index).unwrap();
        }
        for index in 0..NAMES {
            // SAFETY: nobody has a reference.
            unsafe { region.remove::<u32>(&name(index)).unwrap() };
        }
    });
}

/// A deleted queue's memory stays while a message of it is in flight, and no longer.
#[test]
fn what_is_in_flight_keeps_a_deleted_queue_and_no_longer() {
    let trial = Trial::begin("what_is_in_flight_keeps_a_deleted_queue_and_no_longer");
    let region = region();
    turn(&trial, &region, |number| {
        let create = || Queue::create(&region, "queue", &options(number)).unwrap();
        let old = create();
        old.send(b"a").unwrap();
        let message = old.receive_held().unwrap();
        let room = (old.capacity() > 1).then(|| old.reserve(Wait::Not).unwrap());
        old.delete().unwrap();
        // A new one meanwhile.
        let new = create();
        new.send(b"b").unwrap();
        assert_eq!(&*message, b"a");
        if number % 2 == 0 {
            message.give_back();
        } else {
            drop(message);
        }
        if let Some(room) = room {
            assert!(matches!(room.commit(1), Err(SendError::Deleted)));
        }
        assert_eq!(new.len(), 1);
        new.delete().unwrap();
    });
}

/// The same if it is in flight with a task that is killed: then it goes when another queue is made.
#[test]
fn a_killed_receiver_does_not_keep_a_deleted_queue() {
    let trial = Trial::begin("a_killed_receiver_does_not_keep_a_deleted_queue");
    let region = region();
    let mut before = None;
    for number in 0..40 {
        let queue = Queue::create(&region, "queue", &options(number)).unwrap();
        queue.send(b"a").unwrap();
        let mut child = Child::fork(|| {
            let _held = queue.receive_held().unwrap();
            thread::park();
        });
        trial.wait_until(|| queue.is_empty() && child.is_in_futex());
        queue.delete().unwrap();
        assert_eq!(child.kill(), Exit::Signal(libc::SIGKILL));
        region.sweep().unwrap();
        let other = Queue::create(&region, "other", &options(number)).unwrap();
        other.delete().unwrap();
        let now = used(&region);
        assert_eq!(*before.get_or_insert(now), now, "round {number}");
    }
}

/// Wherever one is killed who makes and deletes: after the next one has done so, nothing is missing.
fn step_through(trial: &Trial, name: &str, region: &Region, cycle: impl Fn()) {
    // Each of the dead leaves a place in the task table, and the first of them more than that.
    let settle = || {
        region.sweep().unwrap();
        let left = used(region);
        cycle();
        (left, used(region))
    };
    cycle();
    let mut before = None;
    step::each_instruction_and_recovery(
        trial,
        name,
        || (),
        |(), span| {
            region.join("stepped").unwrap();
            span.run(&cycle);
        },
        |()| false,
        |(), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                cycle();
            });
        },
        |(), point| {
            let (left, now) = settle();
            let first = *before.get_or_insert(now);
            assert_eq!(now, first, "{name}, {point:?}");
            if point != Point::Finished {
                // All names are there.
                for index in 0..NAMES - 1 {
                    region.object(&index.to_string(), || index).unwrap();
                }
                for index in 0..NAMES - 1 {
                    // SAFETY: nobody has a reference.
                    unsafe { region.remove::<u32>(&index.to_string()).unwrap() };
                }
            }
            match left == first {
                true => "nothing was left after the sweep",
                false => "the next task deleted what was left",
            }
        },
    );
}

#[test]
fn a_kill_at_any_instruction_costs_a_classic_queue_nothing() {
    let trial = Trial::begin("a_kill_at_any_instruction_costs_a_classic_queue_nothing");
    let region = region();
    let rtems = Classic::create(&region, &ClassicOptions::new().message_queues(1)).unwrap();
    step_through(&trial, "classic queue", &region, || {
        let mut id = 0;
        let name = classic::build_name(*b"MAIL");
        // Of one that was killed after it had made it.
        if rtems.message_queue_ident(name, 0, Some(&mut id)) == Status::Successful {
            assert_eq!(rtems.message_queue_delete(id), Status::Successful);
        }
        let made = rtems.message_queue_create(name, 3, 5000, 0, Some(&mut id));
        assert_eq!(made, Status::Successful);
        let sent = rtems.message_queue_send(id, Some(&[1; 5000]));
        assert_eq!(sent, Status::Successful);
        assert_eq!(rtems.message_queue_delete(id), Status::Successful);
    });
}

#[test]
fn a_kill_at_any_instruction_costs_a_named_queue_nothing() {
    let trial = Trial::begin("a_kill_at_any_instruction_costs_a_named_queue_nothing");
    let region = region();
    // A name that stays, so that the table of names is not empty.
    region.object("stays", || 1_u32).unwrap();
    step_through(&trial, "named queue", &region, || {
        let queue = Queue::create(&region, "queue", &QueueOptions::new(3, 5000)).unwrap();
        queue.send(&[1; 5000]).unwrap();
        queue.delete().unwrap();
    });
}

#[test]
fn a_kill_at_any_instruction_costs_a_named_semaphore_nothing() {
    let trial = Trial::begin("a_kill_at_any_instruction_costs_a_named_semaphore_nothing");
    let region = region();
    region.object("stays", || 1_u32).unwrap();
    let fifo = semaphore::Discipline::Fifo;
    step_through(&trial, "named semaphore", &region, || {
        let semaphore = CountingSemaphore::create(&region, "semaphore", 1, fifo).unwrap();
        semaphore.delete().unwrap();
    });
}

#[test]
fn a_kill_at_any_instruction_costs_a_named_ring_nothing() {
    let trial = Trial::begin("a_kill_at_any_instruction_costs_a_named_ring_nothing");
    let region = region();
    region.object("stays", || 1_u32).unwrap();
    step_through(&trial, "named ring", &region, || {
        let ring = Spsc::create(&region, "ring", &QueueOptions::new(3, 500)).unwrap();
        ring.sender().unwrap().send(b"1").unwrap();
        ring.delete().unwrap();
    });
}
