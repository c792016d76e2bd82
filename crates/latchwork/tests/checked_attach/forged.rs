//! Files in which one part says what another does not: blocks that belong to nobody's structure, names that move, memory of
//! ended objects, and arrays and maps that would take too long to look at.

use crate::mutations::{ADDRESS, Image, file_of};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::queue::{Discipline, Queue, QueueOptions};
use latchwork::region::inspect::inspect_path;
use latchwork::region::{
    AttachError, HashMap, Region, RegionOptions, Shareable, Unsound, Validate, Validator,
    Vec as RegionVec,
};
use latchwork::semaphore::{CountingSemaphore, Discipline as Order};
use latchwork_testkit::{Child, Exit, Leftover, Trial, die};
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

type Log = Mutex<RegionVec<u64>, InRegion>;

const LOG: [u64; 40] = [7; 40];

fn put(bytes: &mut [u8], place: usize, word: u64) {
    bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
}

/// Where a named object is, in bytes from the region's base.
fn place_of(region: &Region, name: &str) -> usize {
    // Only a file with a name can be inspected.
    let (_, copy) = Leftover::region("forged");
    let file = format!("/proc/self/fd/{}", region.file().as_raw_fd());
    std::fs::copy(file, copy.path()).unwrap();
    let report = inspect_path(copy.path()).unwrap();
    let mut objects = report.contents.unwrap().objects.into_iter();
    let object = objects.find(|object| object.name == name).unwrap();
    object.address as usize - ADDRESS
}

/// A task that gets the span of a block would take it for one of its own, and the block would be freed with the task.
#[test]
fn a_block_that_an_object_leads_to_outlives_the_next_task_in_its_span() {
    let trial = Trial::begin("a_block_that_an_object_leads_to_outlives_the_next_task_in_its_span");
    let image = Image::of(|region| {
        let log = region.object::<Log>("log", || Mutex::in_region(RegionVec::new_in(region)));
        let mut log = log.unwrap().lock().unwrap();
        log.edit().extend_from_slice(&LOG).unwrap();
    });
    let blocks = |bytes: &[u8]| {
        let region = RegionOptions::new().attach_file(file_of(bytes)).ok()?;
        let stats = region.heap_stats();
        region.detach().unwrap();
        Some((stats.private_blocks, stats.shared_blocks))
    };
    let (private, shared) = blocks(&image.bytes).unwrap();
    // Which bits say that a block is shared, the heap itself shows.
    let mut forged = Vec::new();
    for place in (4096..image.bytes.len()).step_by(8) {
        let word = image.word(place);
        for bit in (0..64).map(|bit| 1 << bit).filter(|bit| word & bit != 0) {
            let mut bytes = image.bytes.clone();
            put(&mut bytes, place, word & !bit);
            if blocks(&bytes) == Some((private + 1, shared - 1)) {
                forged.push(bytes);
            }
        }
        trial.progress();
    }
    assert_eq!(forged.len(), shared, "the object, and the array's buffer");
    for bytes in forged {
        let options = RegionOptions::new().holds::<Log>();
        let region = options.attach_file(file_of(&bytes)).unwrap();
        let sizes = [64, 128, 256, 320, 384, 448, 512, 1024];
        let fill = || {
            for bytes in sizes {
                let layout = std::alloc::Layout::from_size_align(bytes, 8).unwrap();
                let block = region.allocate(layout).unwrap();
                // SAFETY: a block of this size, which nobody else knows.
                #[allow(unsafe_code)]
                unsafe {
                    block.write_bytes(0x5a, bytes);
                }
            }
        };
        let mut next = Child::fork(|| {
            fill();
            die();
        });
        assert_eq!(next.wait(), Exit::Signal(libc::SIGKILL));
        assert_eq!(region.sweep().unwrap().dead.len(), 1);
        let stats = region.heap_stats();
        assert_eq!((stats.private_blocks, stats.shared_blocks), (0, shared));
        // Its memory is no other's.
        fill();
        let log = region.find::<Log>("log").unwrap();
        assert_eq!(log.lock().unwrap()[..], LOG);
        region.detach().unwrap();
    }
}

/// The words of the directory's entry of a name; see `names.rs` of `latchwork-region`.
struct Entry(usize);

impl Entry {
    const FINGERPRINT: usize = 8;
    const OBJECT: usize = 16;
    const BYTES: usize = 24;
    const LIST: usize = 32;
    const NAME: usize = 40;
    const MOVING: u32 = 4;

    fn of(image: &Image, name: &str) -> Self {
        let mut text = [0; 64];
        text[..name.len()].copy_from_slice(name.as_bytes());
        let is_there = |place: &usize| image.bytes[*place..*place + 64] == text;
        let found = (4096..64 << 10).step_by(4).find(is_there).unwrap();
        Self(found - Self::NAME)
    }
}

/// The locks of the header, among them that of the directory, as a task leaves them that died with them.
fn tear_locks(bytes: &mut [u8]) {
    for lock in [144, 152, 160] {
        put(bytes, lock, 1 << 33);
    }
}

#[test]
fn a_name_that_is_half_moved_is_accepted_only_if_it_goes_where_it_belongs() {
    let _trial =
        Trial::begin("a_name_that_is_half_moved_is_accepted_only_if_it_goes_where_it_belongs");
    let (mut ended, mut alive) = (0, 0);
    let image = Image::of(|region| {
        let make = |name| CountingSemaphore::create(region, name, 1, Order::Fifo).unwrap();
        make("living");
        alive = place_of(region, "living");
        let other = make("ended");
        ended = place_of(region, "ended");
        other.delete().unwrap();
        let options = QueueOptions::new(2, 16).discipline(Discipline::Racing);
        Queue::create(region, "queue", &options).unwrap();
    });
    let attach = |tears: bool, change: &dyn Fn(&mut [u8])| {
        let mut bytes = image.bytes.clone();
        if tears {
            tear_locks(&mut bytes);
        }
        change(&mut bytes);
        let options = RegionOptions::new().holds::<CountingSemaphore>();
        let region = options.holds::<Queue>().attach_file(file_of(&bytes))?;
        let names = ["living", "next"];
        let made = names.map(|name| {
            CountingSemaphore::create(&region, name, 1, Order::Fifo).unwrap();
            place_of(&region, name)
        });
        region.detach().unwrap();
        Ok::<_, AttachError>(made)
    };
    let move_it = |bytes: &mut [u8], name: &str, object: usize| {
        let Entry(entry) = Entry::of(&image, name);
        bytes[entry..entry + 4].copy_from_slice(&Entry::MOVING.to_ne_bytes());
        put(bytes, entry + Entry::OBJECT, (ADDRESS + object) as u64);
        entry
    };
    // Without a change the name stays, and the next semaphore gets the memory of the ended one.
    assert_eq!(attach(false, &|_| ()).unwrap(), [alive, ended]);
    // Nobody died as they moved it.
    let refused = attach(false, &|bytes| _ = move_it(bytes, "living", alive));
    assert!(
        matches!(refused, Err(AttachError::Damaged(_))),
        "{refused:?}"
    );
    // The attach finishes the move. The semaphore has not ended (no task moves such a semaphore), so its memory is not used
    // again.
    let made = attach(true, &|bytes| _ = move_it(bytes, "living", alive)).unwrap();
    assert!(
        made.contains(&ended) && !made.contains(&alive) && made[0] != made[1],
        "{made:?}"
    );
    // It has arrived, and its name is still there.
    let made = attach(true, &|bytes| _ = move_it(bytes, "living", ended)).unwrap();
    assert!(made.contains(&ended) && made[0] != made[1], "{made:?}");
    let unsound = |refused: Result<_, AttachError>, what: &str| match refused {
        Err(AttachError::Unsound(error)) => assert!(error.what.contains(what), "{error}"),
        other => panic!("{other:?}"),
    };
    // A queue, to memory of a semaphore; and to a list that is not of its type.
    let living = Entry::of(&image, "living").0;
    let move_queue = |bytes: &mut [u8]| {
        let entry = move_it(bytes, "queue", ended);
        put(
            bytes,
            entry + Entry::BYTES,
            image.word(living + Entry::BYTES),
        );
        entry
    };
    unsound(attach(true, &|bytes| _ = move_queue(bytes)), "one block");
    let into_other_list = |bytes: &mut [u8]| {
        let entry = move_queue(bytes);
        put(bytes, entry + Entry::LIST, image.word(living + Entry::LIST));
    };
    unsound(attach(true, &into_other_list), "not its type's");
    let of_no_type = |bytes: &mut [u8]| {
        let entry = move_it(bytes, "living", ended);
        put(bytes, entry + Entry::FINGERPRINT, 1);
    };
    let refused = attach(true, &of_no_type);
    let is_unknown =
        matches!(&refused, Err(AttachError::UnknownType { object }) if object == "living");
    assert!(is_unknown, "{refused:?}");
}

/// Nobody has looked at it.
#[test]
fn the_memory_of_ended_objects_of_unknown_types_is_not_used_again() {
    let _trial = Trial::begin("the_memory_of_ended_objects_of_unknown_types_is_not_used_again");
    let make = |region: &Region| {
        let made = CountingSemaphore::create(region, "semaphore", 1, Order::Fifo).unwrap();
        (made.try_obtain().unwrap(), place_of(region, "semaphore")).1
    };
    let mut ended = 0;
    let image = Image::of(|region| {
        ended = make(region);
        CountingSemaphore::open(region, "semaphore")
            .unwrap()
            .delete()
            .unwrap();
    });
    for (options, is_used_again) in [
        (RegionOptions::new().holds::<CountingSemaphore>(), true),
        (RegionOptions::new().holds_others(), false),
    ] {
        let region = options.attach_file(file_of(&image.bytes)).unwrap();
        assert_eq!(make(&region) == ended, is_used_again);
        region.detach().unwrap();
    }
    let refused = RegionOptions::new().checked();
    let refused = refused.attach_file(file_of(&image.bytes)).unwrap_err();
    assert!(
        matches!(refused, AttachError::UnknownType { .. }),
        "{refused}"
    );
}

/// A type without a size, which counts how often it is looked at.
#[derive(Shareable)]
#[repr(C)]
struct Nothing([u8; 0]);

static LOOKS: AtomicU32 = AtomicU32::new(0);

// SAFETY: there is nothing that could be wrong.
#[allow(unsafe_code)]
unsafe impl Validate for Nothing {
    unsafe fn validate(_: NonNull<Self>, _: &mut Validator<'_>) -> Result<(), Unsound> {
        LOOKS.fetch_add(1, Relaxed);
        Ok(())
    }
}

#[test]
fn an_array_of_nothing_is_looked_at_once_however_long_it_is() {
    let _trial = Trial::begin("an_array_of_nothing_is_looked_at_once_however_long_it_is");
    type Nothings = Mutex<RegionVec<Nothing>, InRegion>;
    let image = Image::of(|region| {
        let nothings = region.object::<Nothings>("nothings", || {
            let mut nothings = RegionVec::new_in(region);
            assert!((0..3).all(|_| nothings.push(Nothing([])).is_ok()));
            Mutex::in_region(nothings)
        });
        assert_eq!(nothings.unwrap().lock().unwrap().len(), 3);
    });
    // The buffer's words: the capacity, and the length. So few words lead into the heap.
    let heads = (64 << 10..image.bytes.len() - 8).step_by(8);
    let mut heads = heads.filter(|place| image.word(place + 8) == 3 && image.word(*place) >= 3);
    let buffer = heads.next().unwrap();
    assert_eq!(heads.next(), None);
    let mut bytes = image.bytes.clone();
    let longest = image.word(buffer).min(u32::MAX.into());
    assert!(
        longest > 1 << 24,
        "an array of so many may be there: {longest}"
    );
    put(&mut bytes, buffer + 8, longest);
    let options = RegionOptions::new().holds::<Nothings>();
    let region = options.attach_file(file_of(&bytes)).unwrap();
    let nothings = region.find::<Nothings>("nothings").unwrap();
    assert_eq!(nothings.lock().unwrap().len() as u64, longest);
    assert_eq!(LOOKS.load(Relaxed), 1);
    region.detach().unwrap();
}

/// A key whose hashes are what the test wants.
#[derive(Clone, Copy, PartialEq, Eq, Shareable, Validate)]
#[repr(C)]
struct Key {
    number: u32,
    hash: u32,
}

impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        hasher.write_u32(self.hash);
    }
}

/// A search for each of the entries would take a time in proportion to the square of their number.
#[test]
fn a_map_whose_entries_are_far_from_their_places_is_refused() {
    let trial = Trial::begin("a_map_whose_entries_are_far_from_their_places_is_refused");
    type Map = Mutex<HashMap<Key, u64>, InRegion>;
    let attach = |entries: u32, hash: fn(u32) -> u32| {
        let image = Image::of(|region| {
            let map = region.object::<Map>("map", || Mutex::in_region(HashMap::new_in(region)));
            let mut map = map.unwrap().lock().unwrap();
            for number in 0..entries {
                let key = Key {
                    number,
                    hash: hash(number),
                };
                map.edit().insert(key, 1).unwrap();
            }
        });
        trial.progress();
        let options = RegionOptions::new().holds::<Map>();
        let region = options.attach_file(file_of(&image.bytes))?;
        let map = region.find::<Map>("map").unwrap();
        assert_eq!(map.lock().unwrap().len(), entries as usize);
        region.detach().unwrap();
        Ok::<_, AttachError>(())
    };
    attach(3000, |number| number).unwrap();
    attach(400, |_| 1).unwrap();
    match attach(3000, |_| 1) {
        Err(AttachError::Unsound(error)) => {
            assert!(
                error.object == "map" && error.what.contains("too far"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}
