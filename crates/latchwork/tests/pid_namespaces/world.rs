//! All kinds of objects in one region, as one task uses them.

use super::{A, TASKS, repaired};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork::condvar::Condvar;
use latchwork::event::{EventSet, Events};
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, Throughput};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{self, Region, Shareable, TaskId};
use latchwork::rwlock::{self, RegionRwLock};
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
use latchwork::sharing::Shared;
use latchwork_testkit::Page;
use latchwork_testkit::fastrand::Rng;

#[derive(Shareable)]
#[repr(C)]
pub struct World {
    left: AtomicU64,
    right: AtomicU64,
    inside: AtomicU32,
    inside_semaphore: AtomicU32,
    inside_fast: AtomicU32,
    pub lock: Mutex<u64, InRegion>,
    fast: Mutex<u64, InRegion<Throughput<Shared>>>,
    table: RegionRwLock<[u64; 2], 4>,
    tokens: Mutex<u64, InRegion>,
    some: Condvar<Shared>,
    /// The last task that was seen in each place of the task table, as a number.
    tasks: [AtomicU64; TASKS],
    next_message: AtomicU64,
    pub operations: AtomicU64,
}

/// The names of the operations.
pub const OPERATIONS: [&str; 12] = [
    "region lock",
    "condition variable",
    "queue",
    "counting semaphore",
    "binary semaphore",
    "events",
    "throughput lock",
    "reader",
    "writer",
    "named object",
    "events to another",
    "heap",
];

/// For each message: 1 if its send has returned, 2 if it was received.
pub type Messages = Page<[AtomicU8; 1 << 24]>;

impl World {
    fn new() -> Self {
        Self {
            left: AtomicU64::new(0),
            right: AtomicU64::new(0),
            inside: AtomicU32::new(0),
            inside_semaphore: AtomicU32::new(0),
            inside_fast: AtomicU32::new(0),
            lock: Mutex::in_region(0),
            fast: Mutex::in_region_throughput(0),
            table: RegionRwLock::in_region([0; 2]),
            tokens: Mutex::in_region(0),
            some: Condvar::shared(),
            tasks: [const { AtomicU64::new(0) }; TASKS],
            next_message: AtomicU64::new(0),
            operations: AtomicU64::new(0),
        }
    }
}

/// The events that tasks send each other; `A` is not among them.
const OF_TASKS: EventSet = EventSet::from_bits_retain(0xFFFF << 8);

/// The event that is sent to a task, and not to its predecessor or its successor in the same place.
fn event_of(task: TaskId) -> EventSet {
    EventSet::event(8 + task.generation() % 16)
}

/// All kinds of objects, as one task uses them.
pub struct Objects<'r> {
    pub region: &'r Region,
    pub world: &'r World,
    pub queue: Queue<'r>,
    pub count: CountingSemaphore<'r>,
    pub binary: BinarySemaphore<'r>,
    events: Events<'r>,
    pub messages: &'r Messages,
}

impl<'r> Objects<'r> {
    pub fn new(region: &'r Region, messages: &'r Messages) -> Self {
        let binary = BinaryOptions::new().inherit();
        Self {
            region,
            world: region.object("world", World::new).unwrap().get_ref(),
            queue: Queue::create(region, "queue", &QueueOptions::new(64, 64)).unwrap(),
            count: CountingSemaphore::create(region, "count", 0, Discipline::Fifo).unwrap(),
            binary: BinarySemaphore::create(region, "binary", &binary).unwrap(),
            events: Events::new(region),
            messages,
        }
    }

    /// One operation.
    pub fn step(&self, rng: &mut Rng) {
        self.operate(rng.usize(..OPERATIONS.len()), rng);
    }

    /// The operation of this number; none waits for another task to begin anything.
    pub fn operate(&self, operation: usize, rng: &mut Rng) {
        let world = self.world;
        match operation {
            0 => {
                let guard = match world.lock.lock() {
                    Ok(guard) => {
                        assert_eq!(world.inside.load(SeqCst), 0, "inside beside a task");
                        assert_eq!(
                            world.left.load(SeqCst),
                            world.right.load(SeqCst),
                            "torn without a report"
                        );
                        guard
                    }
                    Err(LockError::OwnerDied(died)) => {
                        world.inside.store(0, SeqCst);
                        world.right.store(world.left.load(SeqCst), SeqCst);
                        died.make_consistent()
                    }
                    Err(error) => panic!("{error}"),
                };
                world.inside.store(1, SeqCst);
                world.left.fetch_add(1, SeqCst);
                if rng.u32(..16) == 0 {
                    std::thread::yield_now();
                }
                world.right.fetch_add(1, SeqCst);
                world.inside.store(0, SeqCst);
                drop(guard);
            }
            1 => {
                *repaired(world.tokens.lock()) += 1;
                world.some.notify_one();
                let mut tokens = repaired(world.tokens.lock());
                while *tokens == 0 {
                    tokens = repaired(world.some.wait_in_region(tokens));
                }
                *tokens -= 1;
            }
            2 => {
                if self.queue.len() < 32 {
                    let number = world.next_message.fetch_add(1, SeqCst);
                    self.queue.send(&number.to_ne_bytes()).unwrap();
                    if let Some(message) = self.messages.get(number as usize) {
                        message.fetch_or(1, SeqCst);
                    }
                }
                self.receive(&self.queue.receive_held().unwrap());
            }
            3 => {
                self.count.release().unwrap();
                self.count.obtain().unwrap();
            }
            4 => {
                let held = self.binary.obtain().unwrap();
                if held.owner_died() {
                    world.inside_semaphore.store(0, SeqCst);
                }
                assert_eq!(
                    world.inside_semaphore.swap(1, SeqCst),
                    0,
                    "two owners of a semaphore"
                );
                if rng.u32(..16) == 0 {
                    std::thread::yield_now();
                }
                world.inside_semaphore.store(0, SeqCst);
                drop(held);
            }
            5 => {
                let me = self.region.task_id().unwrap();
                self.events.send(me, A).unwrap();
                assert_eq!(self.events.receive_any(A).unwrap(), A);
            }
            6 => {
                let fast = match world.fast.lock() {
                    Ok(fast) => fast,
                    Err(LockError::OwnerDied(died)) => {
                        world.inside_fast.store(0, SeqCst);
                        died.make_consistent()
                    }
                    Err(error) => panic!("{error}"),
                };
                assert_eq!(
                    world.inside_fast.swap(1, SeqCst),
                    0,
                    "two owners of a throughput lock"
                );
                world.inside_fast.store(0, SeqCst);
                drop(fast);
            }
            7 => match world.table.read() {
                Ok(pair) => assert_eq!(pair[0], pair[1], "torn without a report"),
                Err(rwlock::LockError::OwnerDied(died)) => drop(died.replace([0; 2])),
                Err(error) => panic!("{error}"),
            },
            8 => {
                let mut pair = match world.table.write() {
                    Ok(pair) => pair,
                    Err(rwlock::LockError::OwnerDied(died)) => died.replace([0; 2]),
                    Err(error) => panic!("{error}"),
                };
                pair[0] += 1;
                core::sync::atomic::compiler_fence(SeqCst);
                pair[1] += 1;
            }
            9 => {
                // What a task has left that was killed here before, or nothing.
                let name = self.own_name();
                let own = self.region.object(&name, || AtomicU64::new(7)).unwrap();
                assert_eq!(own.load(SeqCst), 7);
                // SAFETY: only the task in this place uses that name.
                unsafe { self.region.remove::<AtomicU64>(&name) }.unwrap();
                assert!(core::ptr::eq(
                    self.region.find::<World>("world").unwrap().get_ref(),
                    world
                ));
            }
            10 => {
                let me = self.region.task_id().unwrap();
                world.tasks[usize::from(me.slot())].store(me.to_raw(), SeqCst);
                let other = world.tasks[rng.usize(..TASKS)].load(SeqCst);
                if let Some(other) = TaskId::from_raw(other) {
                    // It may be gone, and its place another's.
                    let _ = self.events.send(other, event_of(other));
                }
                if let Ok(came) = self.events.try_receive_any(OF_TASKS) {
                    assert_eq!(came, event_of(me), "an event of another task");
                }
            }
            _ => {
                let bytes = rng.usize(1..6000);
                let block = region::Box::zeroed_in(bytes, self.region).unwrap();
                let other = region::Box::new_in([7_u64; 9], self.region).unwrap();
                assert!(block.iter().all(|byte| *byte == 0) && *other == [7; 9]);
            }
        }
        world.operations.fetch_add(1, SeqCst);
    }

    /// The name of an object that only the calling task uses, and whoever had its place in the task table before.
    fn own_name(&self) -> String {
        format!("of place {}", self.region.task_id().unwrap().slot())
    }

    /// Removes the objects that killed tasks have left.
    pub fn remove_own_objects(&self) {
        for place in 0..TASKS {
            // SAFETY: all tasks that used such a name have ended.
            let _ = unsafe {
                self.region
                    .remove::<AtomicU64>(&format!("of place {place}"))
            };
        }
    }

    pub fn receive(&self, message: &[u8]) {
        let number = u64::from_ne_bytes(message.try_into().unwrap());
        if let Some(message) = self.messages.get(number as usize) {
            message.fetch_or(2, SeqCst);
        }
    }
}
