//! Regions whose files the target `images` changes: with objects of all kinds, at rest, in use, or left by a dead task.

use latchwork::event::{EventSet, Events};
use latchwork::mutex::{InRegion, Mutex, Robust, Throughput};
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{Discipline, Queue, QueueOptions, Wait};
use latchwork::region::{Box, HashMap, List, Region, RegionOptions, String, Undo, Vec};
use latchwork::rwlock::RegionRwLock;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline as Order, SimpleBinarySemaphore,
};
use latchwork::sharing::Shared;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;

/// The options of all these regions: tables and heap as small as they can be, and the addresses of one run those of the
/// next.
fn options(number: usize, any: bool) -> RegionOptions {
    RegionOptions::new()
        .address(0x3170_0000_0000 + number * (64 << 20))
        .max_bytes(1 << 20)
        .max_tasks(TASKS)
        .max_names(NAMES)
        .any_pid_namespace(any)
}

/// The most tasks that each region is for.
pub const TASKS: u16 = 4;
/// The most names in each region.
pub const NAMES: u32 = 16;

/// Where the heap's first span begins.
pub const HEAP: usize = 64 << 10;

/// The bytes of a region's file, and what a mutation needs to know of them.
pub struct Scene {
    /// The file.
    pub bytes: std::vec::Vec<u8>,
    /// The address of the region.
    pub base: u64,
    /// Where its named objects lie in the file, with their sizes.
    pub objects: std::vec::Vec<(usize, usize)>,
    /// The other places where a pointer in the heap leads.
    pub blocks: std::vec::Vec<usize>,
}

/// What the scenes hold, for a checked attach.
pub fn declared() -> RegionOptions {
    RegionOptions::new()
        .holds::<u64>()
        .holds::<[u64; 64]>()
        .holds::<Mutex<u64, Robust>>()
        .holds::<Mutex<u64, InRegion>>()
        .holds::<Mutex<u64, InRegion<Throughput<Shared>>>>()
        .holds::<RegionRwLock<u64>>()
        .holds::<Mutex<Vec<u64>, InRegion>>()
        .holds::<Mutex<HashMap<String, u64>, InRegion>>()
        .holds::<Mutex<List<u32>, InRegion>>()
        .holds::<Mutex<Undo<[u64; 4], 4>, InRegion>>()
        .holds::<Mutex<Undo<Vec<AtomicU64>, 4>, InRegion>>()
        .holds::<Queue>()
        .holds::<Spsc>()
        .holds::<CountingSemaphore>()
}

/// Those that there are.
pub const COUNT: usize = 6;

/// All scenes.
pub fn all() -> [Scene; COUNT] {
    [
        rested(options(0, false).label("fuzz-locks"), locks),
        rested(options(1, false).label("fuzz-containers"), containers),
        rested(options(2, true).label("fuzz-messages"), messages),
        rested(options(3, true).label("fuzz-semaphores"), semaphores),
        in_use(&options(4, false).label("fuzz-used")),
        after_a_death(&options(5, false).label("fuzz-death")),
    ]
}

fn image(region: &Region) -> std::vec::Vec<u8> {
    let file = std::fs::File::from(region.file().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn scene(region: &Region, bytes: std::vec::Vec<u8>) -> Scene {
    let base = region.base().addr();
    let survey = latchwork::region::inspect::survey();
    let of_region = |report: &&latchwork::region::inspect::RegionReport| {
        report
            .contents
            .as_ref()
            .is_ok_and(|contents| contents.base == base as u64)
    };
    let report = survey
        .regions
        .iter()
        .find(of_region)
        .expect("the region, which this process has");
    let contents = report.contents.as_ref().unwrap();
    let object = |object: &latchwork::region::inspect::ObjectReport| {
        (
            (object.address - contents.base) as usize,
            object.bytes as usize,
        )
    };
    let objects: std::vec::Vec<_> = contents.objects.iter().map(object).collect();
    // Of objects, and of blocks that they lead to.
    let mut blocks = std::vec::Vec::new();
    for word in bytes[HEAP..].chunks_exact(8) {
        let word = u64::from_ne_bytes(word.try_into().unwrap()) as usize;
        if (base + HEAP..base + bytes.len()).contains(&word) && !blocks.contains(&(word - base)) {
            blocks.push(word - base);
        }
    }
    Scene {
        bytes,
        base: base as u64,
        objects,
        blocks,
    }
}

/// Nobody uses the region any more: its bytes are read when its only task has left.
fn rested(options: RegionOptions, fill: fn(&Region)) -> Scene {
    let region = options.create_anonymous().unwrap();
    // A thread of its own: it is a task until it ends.
    std::thread::scope(|scope| scope.spawn(|| fill(&region)).join().unwrap());
    let bytes = image(&region);
    scene(&region, bytes)
}

fn locks(region: &Region) {
    region.object("answer", || [42u64; 64]).unwrap();
    region.object("robust", || Mutex::robust(7u64)).unwrap();
    region.object("lock", || Mutex::in_region(7u64)).unwrap();
    region
        .object("handing", || Mutex::in_region_throughput(7u64))
        .unwrap();
    region
        .object("rwlock", || RegionRwLock::<u64>::in_region(7))
        .unwrap();
    *region
        .find::<Mutex<u64, InRegion>>("lock")
        .unwrap()
        .lock()
        .unwrap() += 1;
    *region
        .find::<Mutex<u64, Robust>>("robust")
        .unwrap()
        .lock()
        .unwrap() += 1;
}

fn containers(region: &Region) {
    let vec = region
        .object("vec", || Mutex::in_region(Vec::<u64>::new_in(region)))
        .unwrap();
    let map = region
        .object("map", || {
            Mutex::in_region(HashMap::<String, u64>::new_in(region))
        })
        .unwrap();
    let list = region
        .object("list", || Mutex::in_region(List::<u32>::new_in(region)))
        .unwrap();
    region
        .object("undo", || {
            Mutex::in_region(Undo::<[u64; 4], 4>::new([1; 4]))
        })
        .unwrap();
    let cells = region
        .object("cells", || {
            Mutex::in_region(Undo::<Vec<AtomicU64>, 4>::new(Vec::new_in(region)))
        })
        .unwrap();
    for number in 0..40 {
        let mut cells = cells.lock().unwrap();
        let mut cells = cells.edit();
        let cells = cells.get_pin_mut();
        cells.edit().push(AtomicU64::new(number)).unwrap();
        vec.lock().unwrap().edit().push(number).unwrap();
        map.lock()
            .unwrap()
            .edit()
            .insert_str(&format!("key {number}"), number)
            .unwrap();
        list.lock()
            .unwrap()
            .edit()
            .push_back(number as u32)
            .unwrap();
    }
}

/// The options of the queues in `messages`.
pub fn queue_options(discipline: Discipline) -> QueueOptions {
    QueueOptions::new(4, 100).discipline(discipline)
}

fn messages(region: &Region) {
    for (name, discipline) in [
        ("queue", Discipline::Racing),
        ("in order", Discipline::Fifo),
    ] {
        let queue = Queue::create(region, name, &queue_options(discipline)).unwrap();
        queue.send(&[8; 50]).unwrap();
        queue.urgent().send(&[9; 20]).unwrap();
        let block = Box::copied_in(&[7; 300], region).unwrap();
        queue.send_block(block, Wait::Not).unwrap();
    }
    let ring = Spsc::create(region, "ring", &QueueOptions::new(4, 40)).unwrap();
    let mut sender = ring.sender().unwrap();
    sender.send(b"one").unwrap();
    sender.send(b"two").unwrap();
}

fn semaphores(region: &Region) {
    CountingSemaphore::create(region, "count", 3, Order::Fifo).unwrap();
    SimpleBinarySemaphore::create(region, "simple", 1, Order::Priority).unwrap();
    let inherit = BinaryOptions::new().by_priority().inherit();
    let bus = BinarySemaphore::create(region, "bus", &inherit).unwrap();
    drop(bus.obtain().unwrap());
    BinarySemaphore::create(region, "plain", &BinaryOptions::new()).unwrap();
    let deleted = CountingSemaphore::create(region, "gone", 3, Order::Fifo).unwrap();
    deleted.delete().unwrap();
    let own = region.task_id().unwrap();
    Events::new(region).send(own, EventSet::event(3)).unwrap();
}

/// With the life-word of a living task, locks in its hands, and messages on their way.
fn in_use(options: &RegionOptions) -> Scene {
    let region = options.create_anonymous().unwrap();
    std::thread::scope(|scope| scope.spawn(|| used(&region)).join().unwrap())
}

fn used(region: &Region) -> Scene {
    locks(region);
    let queue = Queue::create(region, "queue", &queue_options(Discipline::Racing)).unwrap();
    queue.send(b"in hand").unwrap();
    queue.send(b"ready").unwrap();
    let message = queue.try_receive_held().unwrap();
    let reservation = queue.reserve(Wait::Not).unwrap();
    let bus = BinarySemaphore::create(region, "bus", &BinaryOptions::new()).unwrap();
    let held = bus.obtain().unwrap();
    let lock = region.find::<Mutex<u64, InRegion>>("lock").unwrap();
    let guard = lock.lock().unwrap();
    let bytes = image(region);
    let scene = scene(region, bytes);
    drop((guard, held, reservation, message));
    scene
}

/// What a task that was killed has left, unswept.
fn after_a_death(options: &RegionOptions) -> Scene {
    let region = options.create_anonymous().unwrap();
    // SAFETY: the child is a copy of the only thread, and ends by a signal.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        containers(&region);
        messages(&region);
        let lock = region.object("lock", || Mutex::in_region(7u64)).unwrap();
        let guard = lock.lock().unwrap();
        let queue = Queue::open(&region, "queue").unwrap();
        let message = queue.try_receive_held().unwrap();
        region
            .allocate(std::alloc::Layout::new::<[u64; 9]>())
            .unwrap();
        std::mem::forget((guard, message));
        // SAFETY: plain calls.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        std::process::abort();
    }
    let mut status = 0;
    // SAFETY: plain call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFSIGNALED(status));
    let bytes = image(&region);
    scene(&region, bytes)
}
