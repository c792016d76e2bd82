//! The files of regions: passed as descriptors, shared with forks, and named.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{isolated, region, until};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{Attributes, Outcome, descriptors};
use latchwork::mutex::{Mutex, Robust};
use latchwork::region::inspect::{TaskState, inspect_path};
use latchwork::region::leftovers::{self, remove_unused};
use latchwork::region::{AttachError, Region, RegionOptions, StorageError};
use latchwork_testkit::{Child, Leftover, Page};

fn options() -> RegionOptions {
    RegionOptions::new().max_bytes(1 << 20)
}

/// A named region whose name goes with its last user.
fn unlinked_at_last(name: &str) -> Region {
    let options = options().unlink_at_last_detach(true);
    options.create_named(name).unwrap()
}

fn reached(step: &AtomicU32, number: u32) {
    until(|| step.load(Ordering::Acquire) == number);
}

/// Attaches by the name at step 1, which makes it step 2, and leaves in good order at step 3.
fn visitor(name: &str, step: &AtomicU32) -> Child {
    Child::fork(|| {
        reached(step, 1);
        let region = options().attach(name).unwrap();
        step.store(2, Ordering::Release);
        reached(step, 3);
        drop(region);
    })
}

/// Each of the two gives up its file lock before it looks for the other's, so the later one removes the name.
#[test]
fn the_last_of_two_that_leave_at_once_removes_the_name() {
    const ROUNDS: u32 = 500;
    isolated(|| {
        let (name, _file) = Leftover::region("at-once");
        let step = Page::<AtomicU32>::new();
        // Without a sleep: both leave at the same time.
        let reached = |number| {
            while step.load(Ordering::Acquire) < number {
                std::thread::yield_now();
            }
        };
        let peer = Child::fork(|| {
            for round in (0..ROUNDS).map(|round| round * 3) {
                reached(round + 1);
                let region = options().attach(&name).unwrap();
                region.join("peer").unwrap();
                step.store(round + 2, Ordering::Release);
                region.detach().unwrap();
                step.store(round + 3, Ordering::Release);
            }
        });
        for round in (0..ROUNDS).map(|round| round * 3) {
            let region = unlinked_at_last(&name);
            region.join("first").unwrap();
            let path = region.path().unwrap().to_owned();
            step.store(round + 1, Ordering::Release);
            reached(round + 2);
            region.detach().unwrap();
            reached(round + 3);
            assert!(!path.exists(), "in round {}", round / 3);
        }
        peer.succeed();
    });
}

/// It makes its thread a task again, and the region is in use again.
#[test]
fn a_container_outside_uses_a_region_whose_last_handle_was_dropped_beside_a_peer() {
    isolated(|| {
        let (name, _file) = Leftover::region("outside");
        let region = unlinked_at_last(&name);
        let step = Page::<AtomicU32>::new();
        let peer = Child::fork(|| {
            let region = options().attach(&name).unwrap();
            region.join("peer").unwrap();
            step.store(1, Ordering::Release);
            reached(&step, 2);
        });
        reached(&step, 1);
        let mut text = Box::pin(latchwork::region::String::new_in(&region));
        text.as_mut().edit().push_str("here").unwrap();
        assert_eq!(&**text, "here");
        region.detach().unwrap();
        // Needs another block.
        text.as_mut()
            .edit()
            .push_str(&" again".repeat(100))
            .unwrap();
        step.store(2, Ordering::Release);
        // It ends without a detach.
        peer.succeed();
        assert_eq!(collect(&name), leftovers::Outcome::InUse);
        assert!(text.starts_with("here again"));
        drop(text);
    });
}

/// Containers outside a region whose file lock this process gave up with its last use, since a peer had the region. The peer
/// has ended. And the file.
fn left_outside<const N: usize>(name: &str) -> ([Outside; N], std::path::PathBuf) {
    let region = unlinked_at_last(name);
    let path = region.path().unwrap().to_owned();
    let step = Page::<AtomicU32>::new();
    let peer = Child::fork(|| {
        let region = options().attach(name).unwrap();
        region.join("peer").unwrap();
        step.store(1, Ordering::Release);
        reached(&step, 2);
    });
    reached(&step, 1);
    let texts = [(); N].map(|()| {
        let mut text = Box::pin(latchwork::region::String::new_in(&region));
        text.as_mut().edit().push_str("here").unwrap();
        // A reference into it keeps the mapping.
        assert_eq!(&**text, "here");
        text
    });
    region.detach().unwrap();
    step.store(2, Ordering::Release);
    peer.succeed();
    (texts, path)
}

type Outside = core::pin::Pin<Box<latchwork::region::String>>;

/// Needs another block.
fn edit(text: &mut Outside) -> Result<(), StorageError> {
    text.as_mut().edit().push_str(&" again".repeat(100))
}

/// Locks a file as a process does that validates it.
fn validate(path: &std::path::Path) -> std::fs::File {
    let file = std::fs::File::open(path).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}

/// Another process may be validating the file; and an attach in this process, which has the file lock then, waits for the lock
/// under which this process keeps its list of regions.
#[test]
fn containers_outside_wait_for_the_file_lock_with_no_slot_and_no_lock_of_their_own() {
    isolated(|| {
        let (name, _file) = Leftover::region("validated");
        let (texts, path) = left_outside::<2>(&name);
        let file = validate(&path);
        let ids = [0, 1].map(|_| AtomicU32::new(0));
        let edits = &AtomicU32::new(0);
        std::thread::scope(|scope| {
            for (id, mut text) in ids.iter().zip(texts) {
                scope.spawn(move || {
                    // SAFETY: no preconditions.
                    id.store(unsafe { libc::gettid() } as u32, Ordering::Release);
                    // On a slow machine it may have waited for too long.
                    until(|| !matches!(edit(&mut text), Err(StorageError::Attach(_))));
                    edits.fetch_add(1, Ordering::Release);
                    // This reference keeps the mapping for the container's drop.
                    assert!(text.starts_with("here again"));
                });
            }
            let waits = [libc::SYS_flock, libc::SYS_clock_nanosleep].map(|call| format!("{call} "));
            let is_waiting = |id: &AtomicU32| {
                let id = id.load(Ordering::Acquire);
                let call = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
                call.is_ok_and(|call| waits.iter().any(|wait| call.starts_with(wait)))
            };
            let has_edited = || edits.load(Ordering::Acquire) > 0;
            until(|| ids.iter().all(is_waiting) || has_edited());
            drop(options().create_anonymous().unwrap());
            let all_wait = !has_edited() && living_tasks(&path) == 0;
            drop(file);
            assert!(all_wait);
        });
    });
}

/// It takes no slot of a file that another process validates, which would reset the slot: not after any time.
#[test]
fn a_container_outside_is_refused_if_the_file_is_locked_for_long() {
    isolated(|| {
        let (name, _file) = Leftover::region("locked");
        let ([mut text], path) = left_outside(&name);
        let file = validate(&path);
        let refused = edit(&mut text);
        let was = StorageError::Attach(AttachError::Validating).to_string();
        assert_eq!(refused.unwrap_err().to_string(), was);
        assert_eq!(living_tasks(&path), 0);
        assert_eq!(&**text, "here");
        drop(file);
        edit(&mut text).unwrap();
        assert_eq!(living_tasks(&path), 1);
        assert!(text.starts_with("here again"));
    });
}

fn living_tasks(path: &std::path::Path) -> usize {
    let contents = inspect_path(path).unwrap().contents.unwrap();
    contents
        .tasks
        .iter()
        .filter(|task| task.state != TaskState::Unswept)
        .count()
}

fn collect(name: &str) -> leftovers::Outcome {
    let mut found = remove_unused(&[name.to_owned()], false).unwrap();
    found.remove(0).outcome
}

/// Bytes of memory behind a file.
fn memory_of(region: &Region) -> u64 {
    let status = rustix::fs::fstat(region.file()).unwrap();
    status.st_blocks as u64 * 512
}

#[test]
fn a_trimmed_region_has_its_memory_again_where_it_is_needed() {
    let (name, _file) = Leftover::region("trimmed");
    let make = || {
        let region = RegionOptions::new()
            .max_bytes(64 << 20)
            .create_named(&name)
            .unwrap();
        let small = memory_of(&region);
        let numbers = region
            .object("numbers", || {
                Mutex::robust(latchwork::region::Vec::<u64>::new_in(&region))
            })
            .unwrap();
        let mut numbers = numbers.lock().unwrap();
        let block = latchwork::region::Box::zeroed_in(16 << 20, &region).unwrap();
        numbers.edit().extend_from_slice(&[7; 1000]).unwrap();
        let large = memory_of(&region);
        assert!(large >= small + (16 << 20), "{large} {small}");
        drop(block);
        assert_eq!(memory_of(&region), large);
        let given = region.trim().unwrap() as u64;
        assert!(given >= 16 << 20);
        // A file's own tables of its memory go, too.
        let after = memory_of(&region);
        assert!(after <= large - given, "{after} {large} {given}");
        assert_eq!(*numbers.as_slice(), [7; 1000]);
    };
    Child::fork(make).succeed();
    // Nobody has it: it is looked at closely, and not filled.
    Child::fork(|| {
        let region = RegionOptions::new().attach(&name).unwrap();
        assert!(memory_of(&region) < 8 << 20, "{}", memory_of(&region));
        assert!(region.heap_stats().trimmed_bytes >= 16 << 20);
        let committed = region.heap_stats().committed_bytes;
        let block = latchwork::region::Box::zeroed_in(8 << 20, &region).unwrap();
        assert!(memory_of(&region) >= 8 << 20);
        assert!(region.heap_stats().committed_bytes >= committed + (8 << 20));
        drop(block);
        region.check_heap().unwrap();
    })
    .succeed();
}

/// Replaces `/dev/shm` by a file system with so much room, for the calling process; returns whether that is permitted.
fn with_small_memory(bytes: usize) -> bool {
    let options = std::ffi::CString::new(format!("size={bytes}")).unwrap();
    // SAFETY: plain system calls, with strings that end in NUL or with null pointers.
    unsafe {
        let (root, none) = (c"/".as_ptr(), core::ptr::null());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let (kind, place) = (c"tmpfs".as_ptr(), c"/dev/shm".as_ptr());
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, none, private, none.cast()) == 0
            && libc::mount(kind, place, kind, 0, options.as_ptr().cast()) == 0
    }
}

#[test]
fn memory_that_does_not_suffice_is_given_back() {
    isolated(|| {
        if !with_small_memory(32 << 20) {
            return eprintln!("skipped: needs the right to mount a file system");
        }
        let options = RegionOptions::new().max_bytes(64 << 20);
        let region = options.create_named("small").unwrap();
        let free = || {
            let system = rustix::fs::statvfs("/dev/shm").unwrap();
            system.f_bavail * system.f_frsize
        };
        // Takes all but some memory.
        let leave = |bytes: u64| {
            let file = std::fs::File::create("/dev/shm/other").unwrap();
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, 0, free() - bytes).unwrap();
        };
        let committed = || region.heap_stats().committed_bytes as u64;
        let block = latchwork::region::Box::zeroed_in(16 << 20, &region).unwrap();
        // Less than the next growth would like to have, and more than it needs.
        leave(2 << 20);
        let (before, had) = (committed(), memory_of(&region));
        let mut blocks = Vec::new();
        while committed() == before {
            blocks.push(latchwork::region::Box::zeroed_in(60_000, &region).unwrap());
        }
        assert_eq!(memory_of(&region) - had, committed() - before);
        assert!(committed() - before < 2 << 20);
        // The same in trimmed spans.
        drop(block);
        region.trim().unwrap();
        leave(4 << 20);
        let had = memory_of(&region);
        latchwork::region::Box::zeroed_in(16 << 20, &region).unwrap_err();
        assert_eq!(memory_of(&region), had);
        region.check_heap().unwrap();
    });
}

#[test]
fn a_descriptor_that_was_passed_is_attached_and_the_senders_lock_stays() {
    fn attach(_: &Region, (): ()) -> i32 {
        let file = descriptors().remove(0);
        let region = RegionOptions::new().attach_file(file).unwrap();
        *region
            .find::<Mutex<i32, Robust>>("value")
            .unwrap()
            .lock()
            .unwrap()
    }
    isolated(|| {
        let (name, _file) = Leftover::region("passed");
        let first = region();
        // Before the other region: in its coprocs that is not mapped.
        let coprocs = coproc_support::start(&first).unwrap();
        let named = options().create_named(&name).unwrap();
        let anonymous = options().create_anonymous().unwrap();
        for region in [&named, &anonymous] {
            region.object("value", || Mutex::robust(7)).unwrap();
            let file = region.file().try_clone_to_owned().unwrap();
            let attributes = Attributes::new().descriptor(file);
            let coproc = coprocs.spawn_value(attach, (), &attributes).unwrap();
            assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
        }
        drop(coprocs);
        assert_eq!(collect(&name), leftovers::Outcome::InUse);
    });
}

#[test]
fn a_descriptor_of_ones_own_is_attached_and_others_can_still_attach() {
    isolated(|| {
        let (name, _file) = Leftover::region("own");
        let ready = Page::<AtomicU32>::new();
        let other = Child::fork(|| {
            reached(&ready, 1);
            options().attach(&name).unwrap();
        });
        let region = options().create_named(&name).unwrap();
        region.join("host").unwrap();
        let file = region.file().try_clone_to_owned().unwrap();
        let again = RegionOptions::new().attach_file(file).unwrap();
        assert_eq!(again.base(), region.base());
        drop(again);
        ready.store(1, Ordering::Release);
        other.succeed();
        assert_eq!(collect(&name), leftovers::Outcome::InUse);
    });
}

#[test]
fn a_descriptor_of_something_else_is_no_region() {
    let (read, _write) = std::io::pipe().unwrap();
    for file in [
        read.into(),
        std::fs::File::open("/dev/null").unwrap().into(),
        std::fs::File::open("/dev/shm").unwrap().into(),
    ] {
        let attached = RegionOptions::new().attach_file(file);
        assert!(matches!(attached, Err(AttachError::NotARegion)));
    }
}

#[test]
fn the_name_stays_while_a_fork_has_the_region() {
    isolated(|| {
        let (name, file) = Leftover::region("fork");
        let step = Page::<AtomicU32>::new();
        let visitor = visitor(&name, &step);
        let region = unlinked_at_last(&name);
        // Has the region mapped, and is no task of it yet.
        let heir = Child::fork(|| {
            reached(&step, 4);
            region.join("heir").unwrap();
            region.object("value", || 7u32).unwrap();
        });
        step.store(1, Ordering::Release);
        reached(&step, 2);
        drop(region);
        assert!(file.path().exists());
        step.store(3, Ordering::Release);
        visitor.succeed();
        assert!(file.path().exists());
        assert_eq!(collect(&name), leftovers::Outcome::InUse);
        step.store(4, Ordering::Release);
        heir.succeed();
        assert_eq!(collect(&name), leftovers::Outcome::Removed);
    });
}

#[test]
fn a_mapping_that_is_used_again_is_in_use() {
    isolated(|| {
        let (name, file) = Leftover::region("again");
        let step = Page::<AtomicU32>::new();
        let visitor = visitor(&name, &step);
        let region = unlinked_at_last(&name);
        // Keeps the mapping.
        let numbers = latchwork::region::Vec::<u64>::new_in(&region);
        step.store(1, Ordering::Release);
        reached(&step, 2);
        region.detach().unwrap();
        assert!(file.path().exists());
        let region = options().attach(&name).unwrap();
        step.store(3, Ordering::Release);
        visitor.succeed();
        assert_eq!(collect(&name), leftovers::Outcome::InUse);
        drop(numbers);
        region.detach().unwrap();
        assert!(!file.path().exists());
    });
}

#[test]
fn a_long_label_is_cut_between_characters() {
    for (label, kept) in [("x".repeat(300), 63), ("ä".repeat(150), 62)] {
        let region = options().label(&label).create_anonymous().unwrap();
        assert_eq!(region.label(), label[..kept]);
    }
}
