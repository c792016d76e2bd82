//! Files whose identity is sound and whose tables are not.

use super::*;
use latchwork::region::inspect::inspect_path;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};

/// No process has the file, so that every owner that its tables name must be dead.
#[test]
fn a_living_owner_in_an_unused_file_is_damage() {
    let bytes = region_bytes();
    for word in [0x8000_0001_u32, 0x3fff_ffff] {
        for first in [at::END, 4096] {
            let mut bytes = bytes.clone();
            for place in (first..first + 512).step_by(4) {
                bytes[place..place + 4].copy_from_slice(&word.to_ne_bytes());
            }
            let said = attach(&Named::file("owned", &bytes));
            assert!(
                said.starts_with("Damaged") || said.starts_with("Truncated"),
                "{word:#x} at {first}: {said}"
            );
        }
    }
}

/// Where the first slot lies: its life-word is its first word.
const FIRST_SLOT: usize = 4096;
const SLOT_BYTES: usize = 1792;
const DEAD: u32 = 0x4000_0000;
/// In a slot: the generation, and the record of the heap, which ends with the intent.
const GENERATION: usize = 40;
const HEAP_RECORD: usize = 192;
const INTENT: usize = 512;
/// The count of slots that were ever used.
const SLOTS_USED: usize = at::END + 8;
/// For 8 tasks and 8 names: the directory, the heap's tables (states, descriptors), and the heap.
const NAMES: usize = 32768;
const ENTRY_BYTES: usize = 104;
const STATES: usize = 36864 + 128;
const DESCRIPTORS: usize = STATES + 512 * 8;
const HEAP: usize = 65536;
const SPAN: usize = 65536;

/// Where the state of a span lies.
fn state_of(span: usize) -> usize {
    STATES + (span ^ (span & 7) << 6) * 8
}

/// The directory's only entry with an object: its name says where.
fn entry_in(bytes: &[u8]) -> usize {
    const READY: u32 = 2;
    let mut entries = (NAMES..NAMES + 8 * ENTRY_BYTES).step_by(ENTRY_BYTES);
    let is_ready = |at: &usize| word_at(bytes, *at) as u32 == READY;
    entries.find(is_ready).expect("an object")
}

#[test]
fn the_changed_offsets_are_those_of_the_tables() {
    let bytes = region_bytes();
    let base = word_at(&bytes, at::BASE);
    assert_eq!(word_at(&bytes, SLOTS_USED) as u32, 1);
    let entry = entry_in(&bytes);
    assert_eq!(word_at(&bytes, entry + 24), 512, "the object's size");
    let object = word_at(&bytes, entry + 16) - base;
    assert!((HEAP..HEAP + SPAN).contains(&(object as usize)));
    assert_eq!(
        word_at(&bytes, state_of(0)) & 15,
        2,
        "a span of small blocks"
    );
    assert_eq!(word_at(&bytes, DESCRIPTORS) >> 32, 1, "with one block");
    assert_eq!(word_at(&bytes, HEAP + object as usize - HEAP), 42);
    assert_ne!(word_at(&bytes, FIRST_SLOT + GENERATION) as u32, 0);
}

#[test]
fn more_used_slots_than_there_are_is_damage() {
    let said = attach(&Named::file("slots", &with(SLOTS_USED, &[0xff; 4])));
    assert!(said.starts_with("Damaged"), "{said}");
}

/// A span that has no memory behind it, but says that it has blocks.
#[test]
fn a_dead_tasks_record_that_leads_to_no_memory_is_damage() {
    let mut bytes = region_bytes();
    let base = word_at(&bytes, at::BASE);
    let far = base + (HEAP + 100 * SPAN + 1536) as u64;
    let generation = word_at(&bytes, FIRST_SLOT + GENERATION) << 32;
    bytes[FIRST_SLOT..FIRST_SLOT + 4].copy_from_slice(&DEAD.to_ne_bytes());
    let location = base + (NAMES + 96 * 7) as u64;
    for blocks in [[0, far], [far, 0]] {
        // Flags, location, before, after, linked, unlinked.
        let intent = [3, location, 1, 0, blocks[0], blocks[1]];
        put(&mut bytes, FIRST_SLOT + INTENT, &intent);
        put(&mut bytes, state_of(100), &[2 | generation]);
        let said = attach_as("look", &Named::file("intent", &bytes));
        assert!(said.starts_with("Damaged"), "{said}");
    }
}

/// Where the word of the directory's lock lies in the header: it is the one that changes while the directory is held.
fn directory_lock() -> usize {
    let named = Named::new("held");
    let region = make_region(&named);
    let header = || std::fs::read(named.path()).unwrap()[at::END..FIRST_SLOT].to_vec();
    let mut held = Vec::new();
    region
        .object("another", || {
            held = header();
            0u64
        })
        .unwrap();
    let changed = held
        .iter()
        .zip(header())
        .position(|(held, free)| *held != free);
    at::END + changed.unwrap() / 8 * 8
}

/// The first task that attaches the file must not find that it has the directory already.
#[test]
fn a_lock_of_a_task_that_is_still_to_come_is_a_dead_owners() {
    let mut bytes = region_bytes();
    // Slot 0; no task has had this generation yet.
    let owner = word_at(&bytes, FIRST_SLOT + GENERATION) as u32;
    put(&mut bytes, directory_lock(), &[owner.into()]);
    assert_eq!(attach(&Named::file("future", &bytes)), "attached");
}

/// The next task in a slot believes what it finds in spans that are its own.
#[test]
fn a_span_of_a_task_that_is_still_to_come_is_damage() {
    let mut bytes = region_bytes();
    let generation = word_at(&bytes, FIRST_SLOT + GENERATION) << 32;
    // The largest of the small classes: two blocks, of which the first is taken, and freed.
    let state = 2 | 39 << 4;
    let descriptor = DESCRIPTORS + 5 * 128;
    // Cursor and count, place and next, previous.
    put(&mut bytes, descriptor, &[1 << 32, 2, 0x7fff_fff0]);
    put(&mut bytes, descriptor + 24, &[!3 | 1]);
    for owner in [generation, 0] {
        put(&mut bytes, state_of(5), &[state | owner]);
        let said = attach_as("look", &Named::file("owner", &bytes));
        assert!(said.starts_with("Damaged"), "{said}");
    }
}

/// A later task in a slot trusts this word of a descriptor, and does not look at the table of states.
#[test]
fn a_span_in_the_cache_of_a_task_that_is_still_to_come_is_damage() {
    const CACHED: usize = 48;
    let bytes = region_bytes();
    let generation = word_at(&bytes, FIRST_SLOT + GENERATION) << 32;
    let committed = word_at(&bytes, STATES - 128) as u32 as usize;
    let is_free = |span: &usize| word_at(&bytes, state_of(*span)) == 0;
    assert!((0..committed).any(|span| !is_free(&span)));
    assert!(
        (0..committed).any(|span| is_free(&span)),
        "{committed} spans"
    );
    for span in 0..committed {
        let mut bytes = bytes.clone();
        put(
            &mut bytes,
            DESCRIPTORS + span * 128 + CACHED,
            &[generation | 40],
        );
        let said = attach_as("look", &Named::file("cached", &bytes));
        assert!(said.starts_with("Damaged"), "span {span}: {said}");
    }
}

/// Whoever waits while another process validates the file, which then refuses it, validates it, too.
#[test]
fn damage_is_found_after_a_wait_for_another_attach() {
    use rustix::fs::{FlockOperation, flock};
    let bytes = region_bytes();
    let entry = entry_in(&bytes);
    let nowhere = (word_at(&bytes, at::BASE) + bytes.len() as u64 - 8).to_ne_bytes();
    let named = Named::file("waits", &with(entry + 16, &nowhere));
    let file = std::fs::File::open(named.path()).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let blocked = format!(":{} ", MetadataExt::ino(&file.metadata().unwrap()));
    std::thread::scope(|scope| {
        let attached = [(); 3].map(|()| scope.spawn(|| attach(&named)));
        // One of them waits for the file lock, and the others for that one.
        let waits = |line: &str| line.contains("-> FLOCK") && line.contains(&blocked);
        let is_waited_for = || {
            std::fs::read_to_string("/proc/locks")
                .unwrap()
                .lines()
                .any(waits)
        };
        while !is_waited_for() && !attached.iter().any(|one| one.is_finished()) {
            std::thread::sleep(core::time::Duration::from_millis(2));
        }
        drop(file);
        for attached in attached {
            let said = attached.join().unwrap();
            assert!(said.starts_with("Damaged"), "{said}");
        }
    });
}

/// Without its turn it cannot know whether a process that has the file's lock uses the region, or waits as well, and then
/// refuses the file.
#[test]
fn an_attach_that_waits_too_long_for_another_is_refused() {
    use rustix::fs::{FlockOperation, fcntl_lock, flock};
    let bytes = region_bytes();
    let entry = entry_in(&bytes);
    let nowhere = (word_at(&bytes, at::BASE) + bytes.len() as u64 - 8).to_ne_bytes();
    let named = Named::file("turn", &with(entry + 16, &nowhere));
    let open = || {
        let options = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(named.path());
        options.unwrap()
    };
    let (turn, waits) = (open(), open());
    fcntl_lock(&turn, FlockOperation::NonBlockingLockExclusive).unwrap();
    flock(&waits, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(attach(&named), "Validating");
    drop((turn, waits));
    let said = attach(&named);
    assert!(said.starts_with("Damaged"), "{said}");
}

/// A thread ended with a leaked guard, while no keeper could be had, and its process since.
#[test]
fn a_slot_without_a_thread_is_that_of_a_dead_task() {
    const STRANDED: u32 = 0xBFFF_FFFF;
    let named = Named::file("stranded", &with(FIRST_SLOT, &STRANDED.to_ne_bytes()));
    let said = attach(&named);
    assert!(!said.starts_with("Damaged"), "{said}");
}

#[test]
fn a_name_that_leads_to_no_object_is_damage() {
    let bytes = region_bytes();
    let base = word_at(&bytes, at::BASE);
    let end = base + bytes.len() as u64 - 8;
    let entry = entry_in(&bytes);
    let said = attach(&Named::file("name", &with(entry + 16, &end.to_ne_bytes())));
    assert!(said.starts_with("Damaged"), "{said}");

    // Others have it, so that it is not looked at closely.
    let named = Named::new("shared");
    let region = make_region(&named);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(named.path())
        .unwrap();
    let base = region.base().addr() as u64;
    let end = base + file.metadata().unwrap().len() - 8;
    file.write_all_at(&end.to_ne_bytes(), entry as u64 + 16)
        .unwrap();
    assert_eq!(attach_as("find", &named), "Err(Damaged)");
}

/// The heap record of a dead task is followed by the task that sweeps it.
#[test]
fn a_dead_tasks_record_that_leads_out_of_the_region_is_damage() {
    let mut bytes = region_bytes();
    bytes[FIRST_SLOT..FIRST_SLOT + 4].copy_from_slice(&DEAD.to_ne_bytes());
    // Whatever word of the slot is the record's address or its kind: all of them are hostile.
    for place in (FIRST_SLOT + 128..FIRST_SLOT + SLOT_BYTES).step_by(8) {
        bytes[place..place + 8].copy_from_slice(&0x11u64.to_ne_bytes());
    }
    let said = attach_as("look", &Named::file("record", &bytes));
    assert!(said.starts_with("Damaged"), "{said}");
}

/// Random words in the tables of a region with a dead task: attached or refused, never a crash.
#[test]
fn mutated_tables_are_refused_or_attached() {
    let sound = region_bytes();
    let mut random = Seed::announced().rng(0);
    for _ in 0..40 {
        let mut bytes = sound.clone();
        bytes[FIRST_SLOT..FIRST_SLOT + 4].copy_from_slice(&DEAD.to_ne_bytes());
        for _ in 0..6 {
            let place = random.usize(at::END..bytes.len() - 8);
            let word = match random.u32(..4) {
                0 => random.u64(..),
                1 => u64::MAX,
                2 => random.u64(..64),
                _ => 1 << random.u32(..64),
            };
            bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
        }
        attach_as("look", &Named::file("mutated", &bytes));
    }
}

/// What a slot says of its task's heap is a cache, which its next task would trust: also if the slot is dead, and the file
/// says that it was never used.
#[test]
fn no_slot_keeps_a_cache_of_the_heap() {
    for (life, used) in [(0, 0_u32), (DEAD, 1), (DEAD, 0)] {
        let mut bytes = region_bytes();
        bytes[FIRST_SLOT..FIRST_SLOT + 4].copy_from_slice(&u32::to_ne_bytes(life));
        bytes[SLOTS_USED..SLOTS_USED + 4].copy_from_slice(&used.to_ne_bytes());
        for place in (HEAP_RECORD..INTENT).step_by(4) {
            let at = FIRST_SLOT + place;
            bytes[at..at + 4].copy_from_slice(&0x0fff_ffff_u32.to_ne_bytes());
        }
        let said = attach(&Named::file("cache", &bytes));
        let is_fine = said == "attached" || said.starts_with("Damaged");
        assert!(is_fine, "life {life:#x}, {used} used: {said}");
    }
}

/// The death of a slot's next task would finish the intent that the file names: here, free the block of a named object.
#[test]
fn no_slot_keeps_an_intent_of_the_heap() {
    let mut bytes = region_bytes();
    let base = word_at(&bytes, at::BASE);
    let object = word_at(&bytes, entry_in(&bytes) + 16);
    let location = base + (NAMES + 96 * 7) as u64;
    let value = word_at(&bytes, NAMES + 96 * 7);
    // Flags, location, before, after, linked, unlinked.
    let intent = [1, location, value, value, 0, object];
    for slot in 0..8 {
        put(&mut bytes, FIRST_SLOT + slot * SLOT_BYTES + INTENT, &intent);
    }
    let said = attach_as("outlive", &Named::file("intent", &bytes));
    assert_eq!(said, "(1, 0)", "blocks after the death, and freed ones");
}

/// An attach knows no types: it cannot tell the words of a container from numbers. (A process that then used the container
/// would follow the address.)
#[test]
fn what_a_container_holds_is_not_validated() {
    let named = Named::new("container");
    let region = make_region(&named);
    let vec = region
        .object("vec", || {
            let mut vec = latchwork::region::Vec::new_in(&region);
            vec.push(1u64).unwrap();
            Mutex::in_region(vec)
        })
        .unwrap();
    let bytes = std::fs::read(named.path()).unwrap();
    let start = core::ptr::from_ref(&*vec).addr() - region.base().addr();
    let base = region.base().addr() as u64;
    let heap = base..base + bytes.len() as u64;
    let places: Vec<_> = (start..start + size_of_val(&*vec))
        .step_by(8)
        .filter(|place| heap.contains(&word_at(&bytes, *place)))
        .collect();
    region.detach().unwrap();
    // The address of its region, and that of its buffer.
    assert!(!places.is_empty());
    for place in places {
        let mut bytes = std::fs::read(named.path()).unwrap();
        put(&mut bytes, place, &[0x1234_5678]);
        assert_eq!(
            attach_as("look", &Named::file("elsewhere", &bytes)),
            "attached"
        );
    }
}

/// The bytes of a region with one semaphore, and where its word is.
fn with_semaphore(name: &str, create: impl FnOnce(&Region)) -> (Vec<u8>, usize) {
    let named = Named::new("flags");
    let region = make_region(&named);
    create(&region);
    let base = region.base().addr();
    let objects = inspect_path(named.path())
        .unwrap()
        .contents
        .unwrap()
        .objects;
    let object = objects.iter().find(|object| object.name == name).unwrap();
    let word = object.address as usize - base;
    region.detach().unwrap();
    (std::fs::read(named.path()).unwrap(), word)
}

#[test]
fn a_binary_semaphore_with_a_wrong_count_of_its_owner_is_obtained_and_released() {
    const NESTED: u8 = 8;
    let (bytes, word) = with_semaphore("binary", |region| {
        BinarySemaphore::create(region, "binary", &BinaryOptions::new()).unwrap();
    });
    for (flags, count) in [(NESTED, 0), (NESTED, u32::MAX), (0, u32::MAX)] {
        let mut bytes = bytes.clone();
        bytes[word] |= flags;
        bytes[word + 8..word + 12].copy_from_slice(&count.to_ne_bytes());
        let said = attach_as("nest", &Named::file("flags", &bytes));
        assert_eq!(said, "None", "{flags} {count}");
    }
}

/// Flags that the word of a counting semaphore never has: an obtain retried for ever, since the exchange expects none.
#[test]
fn a_counting_semaphore_with_flags_of_another_kind_is_obtained() {
    let (bytes, word) = with_semaphore("count", |region| {
        CountingSemaphore::create(region, "count", 3, Discipline::Fifo).unwrap();
    });
    assert_eq!(word_at(&bytes, word) >> 32, 3, "the units");
    for flags in [4, 8, 12] {
        let mut bytes = bytes.clone();
        bytes[word] |= flags;
        assert_eq!(
            attach_as("obtain", &Named::file("flags", &bytes)),
            "3",
            "{flags}"
        );
    }
}
