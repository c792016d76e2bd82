//! A region's file with changes in it, and what a process does with such a file.

use crate::Tally;
use crate::contents;
use crate::scene::{self, NAMES, Scene, TASKS};
use arbitrary::Arbitrary;
use latchwork::event::{EventSet, Events};
use latchwork::queue::inspect::QueueReports as _;
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{Discipline, Queue, Wait};
use latchwork::region::inspect::inspect_path;
use latchwork::region::leftovers::{Outcome, remove_unused};
use latchwork::region::{AttachError, Region, RegionOptions};
use latchwork::semaphore::inspect::SemaphoreReports as _;
use latchwork::semaphore::{BinarySemaphore, CountingSemaphore, SimpleBinarySemaphore};
use std::alloc::Layout;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// One input: a scene, what becomes of its bytes, and what is done with them.
#[derive(Arbitrary, Debug)]
pub struct Input {
    scene: u8,
    /// Another process seems to have the file.
    in_use: bool,
    /// The file ends early, after this share of its bytes.
    cut: Option<u8>,
    changes: Vec<Change>,
    uses: u8,
}

#[derive(Arbitrary, Debug)]
struct Change {
    place: Place,
    word: Word,
    /// As many bytes of the word are written.
    bytes: Width,
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Width {
    One,
    Two,
    Four,
    Eight,
}

/// Where the file is changed.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Place {
    /// The part of the header that never changes.
    Identity(u8),
    /// The words behind it, locks among them.
    Header(u8),
    /// A word of a slot of the task table.
    Slot(u8, u16),
    /// A life-word.
    Life(u8),
    /// A slot's note of what its task is about to do with the heap.
    Intent(u8, u8),
    /// A word of an entry of the directory of names.
    Entry(u8, u8),
    /// The heap's own header, states and descriptors.
    Heap(u16),
    /// A word of a named object.
    Object(u8, u16),
    /// A word of a block that such a word leads to.
    Block(u8, u16),
    Anywhere(u32),
}

/// What is written there.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Word {
    Zero,
    Ones,
    Small(u8),
    Bit(u8),
    Any(u64),
    /// What is there, and a little more or less.
    Add(i8),
    /// The address of another place.
    Pointer(Place),
    /// The word of another place.
    Copy(Place),
    /// The ID of a thread that lives, as a life-word holds it.
    Living,
    /// The life-word of a dead task.
    Dead,
    /// A task as spans name it: slot and generation.
    Owner(u8, i8),
    /// A task as region locks name it.
    Identity(u8, i8),
}

/// Where the parts of a file lie; see `header.rs` of `latchwork-region`.
mod at {
    pub const HEADER: usize = 128;
    pub const SLOTS: usize = 4096;
    pub const SLOT_BYTES: usize = 1792;
    pub const GENERATION: usize = 40;
    pub const INTENT: usize = 512;
    pub const ENTRY_BYTES: usize = 104;
    /// Beyond the slots that tasks are for.
    pub const RESERVE: usize = 8;
}

/// The length of all tables, which end where the heap's first span begins.
const TABLES: usize = 64 << 10;

fn names() -> usize {
    let slots = usize::from(TASKS) + at::RESERVE;
    (at::SLOTS + slots * at::SLOT_BYTES).next_multiple_of(4096)
}

fn heap_tables() -> usize {
    (names() + NAMES as usize * at::ENTRY_BYTES).next_multiple_of(4096)
}

impl Place {
    fn offset(self, scene: &Scene) -> usize {
        let of = |parts: &[usize], which: u8| {
            parts
                .get(usize::from(which) % parts.len().max(1))
                .copied()
                .unwrap_or(TABLES)
        };
        let slot = |number: u8| {
            let slots = usize::from(TASKS) + at::RESERVE;
            at::SLOTS + usize::from(number) % slots * at::SLOT_BYTES
        };
        let offset = match self {
            Self::Identity(byte) => usize::from(byte) % at::HEADER,
            Self::Header(word) => at::HEADER + usize::from(word) % 32 * 4,
            Self::Slot(number, word) => slot(number) + usize::from(word) % (at::SLOT_BYTES / 4) * 4,
            Self::Life(number) => slot(number),
            Self::Intent(number, word) => slot(number) + at::INTENT + usize::from(word) % 8 * 8,
            Self::Entry(number, word) => {
                let entry = usize::from(number) % NAMES as usize;
                names() + entry * at::ENTRY_BYTES + usize::from(word) % at::ENTRY_BYTES / 4 * 4
            }
            Self::Heap(word) => heap_tables() + usize::from(word) * 4 % (TABLES - heap_tables()),
            Self::Object(which, word) => {
                let starts: Vec<_> = scene.objects.iter().map(|(start, _)| *start).collect();
                let index = usize::from(which) % starts.len().max(1);
                let size = scene
                    .objects
                    .get(index)
                    .map_or(8, |(_, size)| (*size).max(8));
                of(&starts, which) + usize::from(word) * 4 % size
            }
            Self::Block(which, word) => of(&scene.blocks, which) + usize::from(word) % 512 * 4,
            Self::Anywhere(byte) => byte as usize,
        };
        offset % (scene.bytes.len() - 8)
    }
}

fn word_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_ne_bytes(bytes[offset..offset + 8].try_into().unwrap())
}

impl Word {
    fn value(self, before: u64, bytes: &[u8], scene: &Scene) -> u64 {
        match self {
            Self::Zero => 0,
            Self::Ones => u64::MAX,
            Self::Small(number) => number.into(),
            Self::Bit(number) => 1 << (number % 64),
            Self::Any(word) => word,
            Self::Add(more) => before.wrapping_add_signed(more.into()),
            Self::Pointer(place) => scene.base + place.offset(scene) as u64,
            Self::Copy(place) => word_at(bytes, place.offset(scene)),
            Self::Living => u64::from(living_thread()) | 0x8000_0000,
            Self::Dead => 0xc000_0000,
            Self::Owner(slot, more) | Self::Identity(slot, more) => {
                let slot = usize::from(slot) % (usize::from(TASKS) + at::RESERVE);
                let generation = at::SLOTS + slot * at::SLOT_BYTES + at::GENERATION;
                let generation = word_at(bytes, generation) as u32;
                let generation = generation.wrapping_add_signed(more.into());
                match self {
                    Self::Identity(..) => u64::from(generation) | (slot as u64 + 1) << 48,
                    _ => u64::from(generation) << 32 | (slot as u64) << 16,
                }
            }
        }
    }
}

/// A thread of this process that never ends, and is no task.
fn living_thread() -> u32 {
    static THREAD: OnceLock<u32> = OnceLock::new();
    *THREAD.get_or_init(|| {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // SAFETY: plain call.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            loop {
                std::thread::park();
            }
        });
        told.recv().unwrap()
    })
}

static TALLY: Tally<13> = Tally::new([
    "inspected",
    "observed",
    "attached",
    "attached in use",
    "damaged",
    "other error",
    "used",
    "address taken",
    "checked and attached",
    "unsound",
    "in use",
    "removed",
    "not removed",
]);

/// The named file of the process: each run rewrites it.
struct Named {
    name: String,
    path: std::path::PathBuf,
}

impl Named {
    fn of_process() -> &'static Self {
        static NAMED: OnceLock<Named> = OnceLock::new();
        NAMED.get_or_init(|| {
            let name = format!("fuzz-{}", std::process::id());
            let path = format!("/dev/shm/latchwork-{name}").into();
            Self { name, path }
        })
    }

    /// A new file of these bytes.
    fn write(&self, bytes: &[u8]) -> File {
        let _ = std::fs::remove_file(&self.path);
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&self.path)
            .unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        // Most pages are zero, as they are without a write.
        for (index, page) in bytes.chunks(4096).enumerate() {
            if page.iter().fold(0, |bits, byte| bits | byte) != 0 {
                file.write_all_at(page, index as u64 * 4096).unwrap();
            }
        }
        file
    }
}

/// Stores the bytes of a region's file, changed.
fn change(bytes: &mut Vec<u8>, scene: &Scene, input: &Input) {
    bytes.clear();
    bytes.extend_from_slice(&scene.bytes);
    for change in input.changes.iter().take(24) {
        let offset = change.place.offset(scene);
        let word = change.word.value(word_at(bytes, offset), bytes, scene);
        let count = match change.bytes {
            Width::One => 1,
            Width::Two => 2,
            Width::Four => 4,
            Width::Eight => 8,
        };
        bytes[offset..offset + count].copy_from_slice(&word.to_ne_bytes()[..count]);
    }
    if let Some(share) = input.cut {
        bytes.truncate(bytes.len() * usize::from(share) / 255);
    }
}

/// Writes the file of one input, and removes it again.
fn with_file(input: &Input, body: impl FnOnce(&Named, &File)) {
    static SCENES: OnceLock<[Scene; scene::COUNT]> = OnceLock::new();
    let scenes = SCENES.get_or_init(scene::all);
    let scene = &scenes[usize::from(input.scene) % scenes.len()];
    // Memory that is kept: new memory would have new pages.
    static BYTES: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    let mut bytes = BYTES.lock().unwrap();
    change(&mut bytes, scene, input);
    let named = Named::of_process();
    let file = named.write(&bytes);
    drop(bytes);
    body(named, &file);
    let _ = std::fs::remove_file(&named.path);
}

/// Does with the file of one input what processes do with such files. All that may go wrong is an error.
pub fn run(input: &Input) {
    with_file(input, |named, file| {
        if input.uses & 16 != 0 {
            inspect(named);
        }
        if input.uses & 32 != 0 {
            observe(named);
        }
        if input.in_use {
            // A shared lock of an opened file of its own: what a process holds that has the region.
            // SAFETY: plain call.
            assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH) }, 0);
        }
        attach(named, input);
        if input.uses & COLLECTED != 0 {
            collect(named, input.in_use);
        }
    });
    TALLY.end_run();
}

/// Shows the file of one input as the command does.
#[cfg(feature = "command")]
pub fn show(input: &Input) {
    static TALLY: Tally<4> = Tally::new(["shown", "without contents", "with tasks", "with locks"]);
    with_file(input, |named, _| {
        let shown = latchwork_cli::shown::show(&named.path, input.uses).unwrap();
        TALLY.count("shown");
        for (what, is_so) in [
            ("without contents", !shown.has_contents),
            ("with tasks", shown.tasks != 0),
            ("with locks", shown.locks != 0),
        ] {
            if is_so {
                TALLY.count(what);
            }
        }
    });
    TALLY.end_run();
}

/// What `latchwork ps`, `locks`, `top` and `gc` read. (What they show of it is another target.)
fn inspect(named: &Named) {
    let report = inspect_path(&named.path).unwrap();
    if let Ok(contents) = &report.contents {
        TALLY.count("inspected");
        for queue in contents.queues() {
            let _ = queue.sleep_words();
        }
        let _ = contents.semaphores();
        for task in &contents.tasks {
            let _ = contents.task(task.slot, task.generation);
        }
        for object in &contents.objects {
            let _ = contents.place(object.address.wrapping_sub(contents.base));
        }
        assert!(contents.heap.committed_bytes <= report.memory_bytes);
        // What is shown is text.
        let _ = format!("{contents:?}");
    }
    let found = remove_unused(&[named.name.clone()], true).unwrap();
    assert_eq!(found.len(), 1);
}

fn observe(named: &Named) {
    let Ok(observer) = RegionOptions::new().observe(&named.name) else {
        return;
    };
    TALLY.count("observed");
    let _ = observer.contents().map(|contents| contents.objects.len());
    if let Ok(answer) = observer.find::<[u64; 64]>("answer") {
        std::hint::black_box(answer.iter().fold(0, |sum, word| sum ^ word));
    }
}

/// The bit of `uses` for a `latchwork gc` at the end.
const COLLECTED: u8 = 64;

/// What `latchwork gc` does: it removes a region that nobody has, and nothing else.
fn collect(named: &Named, in_use: bool) {
    let end = Instant::now() + Duration::from_secs(60);
    let outcome = loop {
        let found = remove_unused(&[named.name.clone()], false).unwrap();
        let outcome = found.into_iter().next().unwrap().outcome;
        // The thread that used the region leaves it as it ends, which may be after it was joined.
        if in_use || outcome != Outcome::InUse || Instant::now() > end {
            break outcome;
        }
        std::thread::yield_now();
    };
    let is_there = named.path.exists();
    match outcome {
        Outcome::Removed => assert!(!in_use && !is_there),
        Outcome::InUse => assert!(in_use && is_there),
        Outcome::Foreign => assert!(is_there),
        // The last detach removes a region that was made so.
        Outcome::Missing => assert!(!in_use && !is_there),
        other => panic!("{other:?}"),
    }
    TALLY.count(match outcome {
        Outcome::Removed => "removed",
        _ => "not removed",
    });
}

/// The bit of `uses` for an attach that validates what the objects hold.
const CHECKED: u8 = 16;

fn attach(named: &Named, input: &Input) {
    let is_checked = input.uses & CHECKED != 0;
    let options = match is_checked {
        true => scene::declared(),
        false => RegionOptions::new(),
    };
    match options.attach(&named.name) {
        Ok(region) if input.in_use => {
            TALLY.count("attached in use");
            assert!(!is_checked, "nobody can check what others change");
            // The peers of a region in use are trusted with its contents: nothing is used here.
            let _ = (region.label(), region.max_bytes(), region.heap_stats());
            region.detach().unwrap();
        }
        Ok(region) => {
            TALLY.count(if is_checked {
                "checked and attached"
            } else {
                "attached"
            });
            use_region(&region, input.uses);
            // Ends of rings, or semaphores, may be the thread's.
            drop(region);
        }
        Err(AttachError::Damaged(_)) => TALLY.count("damaged"),
        Err(AttachError::Unsound(_)) => TALLY.count("unsound"),
        Err(AttachError::InUse) if is_checked && input.in_use => TALLY.count("in use"),
        Err(AttachError::AddressTaken { .. }) => TALLY.count("address taken"),
        Err(_) => TALLY.count("other error"),
    }
}

/// What was let in must be usable, as far as its contents are checked.
fn use_region(region: &Region, uses: u8) {
    // In a thread of its own: at its end it leaves the region, which then is unmapped.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            heap_and_names(region);
            if uses & 1 != 0 {
                queues(region);
            }
            if uses & 2 != 0 {
                semaphores(region);
            }
            if uses & 4 != 0 {
                events(region);
            }
            if uses & 8 != 0 {
                ring(region);
            }
            if uses & CHECKED != 0 {
                contents::use_all(region);
            }
            region.check_heap().unwrap();
            TALLY.count("used");
        });
    });
}

fn heap_and_names(region: &Region) {
    region.check_heap().unwrap();
    let _ = region.object("probe", || 7u64);
    let _ = region.find::<[u64; 64]>("answer").map(|answer| answer[63]);
    for bytes in [1, 100, 3000, 70_000] {
        let layout = Layout::from_size_align(bytes, 16).unwrap();
        if let Ok(block) = region.allocate(layout) {
            // SAFETY: a block of this size, which nobody else knows.
            unsafe {
                block.write_bytes(0x5a, bytes);
                region.deallocate(block).unwrap();
            }
        }
    }
    region.sweep().unwrap();
    let _ = region.trim();
    region.check_heap().unwrap();
}

fn queues(region: &Region) {
    for (name, discipline) in [
        ("queue", Discipline::Racing),
        ("in order", Discipline::Fifo),
    ] {
        let options = scene::queue_options(discipline);
        let Ok(queue) =
            Queue::open(region, name).or_else(|_| Queue::create(region, name, &options))
        else {
            continue;
        };
        let _ = (queue.len(), queue.in_flight(), queue.is_consistent());
        if let Ok(block) = queue.receive_block(Wait::Not) {
            assert!(block.iter().map(|byte| usize::from(*byte)).sum::<usize>() < 1 << 20);
        }
        for _ in 0..40 {
            let Ok(message) = queue.try_receive_held() else {
                break;
            };
            assert!(message.iter().map(|byte| usize::from(*byte)).sum::<usize>() < 1 << 20);
        }
        let _ = queue.try_send(&[3; 60]);
        let _ = queue.urgent().try_send(&[9; 60]);
        let _ = queue.broadcast(b"to nobody");
        let _ = queue.try_receive(&mut [0; 100]);
        let _ = queue.flush();
        let _ = queue.delete();
        if let Ok(queue) = Queue::create(region, name, &options) {
            let _ = queue.try_send(b"after");
        }
    }
}

fn semaphores(region: &Region) {
    let soon = Duration::from_micros(100);
    if let Ok(count) = CountingSemaphore::open(region, "count") {
        let _ = (
            count.try_obtain(),
            count.obtain_for(soon),
            count.release(),
            count.flush(),
            count.delete(),
        );
    }
    if let Ok(simple) = SimpleBinarySemaphore::open(region, "simple") {
        let _ = (simple.obtain_for(soon), simple.release(), simple.delete());
    }
    for name in ["bus", "plain"] {
        if let Ok(binary) = BinarySemaphore::open(region, name) {
            let _ = (binary.owner(), binary.waiting(), binary.ceiling());
            drop(binary.obtain_for(soon));
            let _ = (binary.release(), binary.flush(), binary.delete());
        }
    }
}

fn events(region: &Region) {
    let own = region.task_id().unwrap();
    for events in [Events::new(region), Events::system(region)] {
        events.send(own, EventSet::event(5)).unwrap();
        assert!(events.pending().unwrap().contains(EventSet::event(5)));
        assert_eq!(
            events.try_receive_all(EventSet::event(5)).unwrap(),
            EventSet::event(5)
        );
    }
}

fn ring(region: &Region) {
    let Ok(ring) = Spsc::open(region, "ring") else {
        return;
    };
    let _ = (ring.len(), ring.capacity(), ring.max_message());
    if let Ok(mut receiver) = ring.receiver() {
        let _ = receiver.try_receive(&mut [0; 40]);
        receiver.flush();
    }
    if let Ok(mut sender) = ring.sender() {
        let _ = sender.try_send(b"more");
    }
    let _ = ring.delete();
}
