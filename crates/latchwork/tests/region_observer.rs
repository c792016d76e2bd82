//! Regions that are mapped for reading only.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::until;
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::region::{AttachError, ObjectError, Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Leftover, Namespace, Page};
use std::os::fd::AsFd;

fn options() -> RegionOptions {
    RegionOptions::new().max_bytes(1 << 20).mode(0o644)
}

/// Makes a region in a child, which changes it until step 2, and keeps it until step 4.
fn kept_by_child(name: &str, step: &AtomicU32) -> Child {
    let child = Child::fork(|| {
        let region = options().create_named(name).unwrap();
        region.object("version", || [7u32, 8]).unwrap();
        let count = region.object("count", || AtomicU32::new(1)).unwrap();
        step.store(1, Ordering::Release);
        until(|| {
            count.fetch_add(1, Ordering::Relaxed);
            step.load(Ordering::Acquire) == 2
        });
        let large = latchwork::region::Box::zeroed_in(512 << 10, &region).unwrap();
        region.object("late", || 9u32).unwrap();
        step.store(3, Ordering::Release);
        until(|| step.load(Ordering::Acquire) == 4);
        drop(large);
    });
    until(|| step.load(Ordering::Acquire) == 1);
    child
}

#[test]
fn an_observer_reads_what_tasks_write_and_is_none() {
    let (name, _file) = Leftover::region("observed");
    let step = Page::<AtomicU32>::new();
    let child = kept_by_child(&name, &step);
    let observer = options().observe(&name).unwrap();
    assert_eq!(observer.find::<[u32; 2]>("version").unwrap(), &[7, 8]);
    // SAFETY: an atomic, which is loaded only.
    let count = unsafe { observer.find_changing::<AtomicU32>("count") }.unwrap();
    let before = count.load(Ordering::Relaxed);
    until(|| count.load(Ordering::Relaxed) > before);
    let contents = observer.contents().unwrap();
    assert_eq!(contents.tasks.len(), 1);
    assert_eq!(contents.tasks[0].process, child.pid() as u32);
    assert_eq!(contents.objects.len(), 2);
    assert_eq!(observer.max_bytes(), 1 << 20);
    assert_eq!(observer.base() as u64, contents.base);
    let wrong = observer.find::<u64>("version").unwrap_err();
    assert!(matches!(wrong, ObjectError::OtherType), "{wrong}");
    let none = observer.find::<u64>("versions").unwrap_err();
    assert!(matches!(none, ObjectError::NotFound), "{none}");
    assert!(matches!(
        observer.find::<u64>(""),
        Err(ObjectError::Name(_))
    ));
    // Its addresses are in use.
    let again = options().observe(&name).unwrap_err();
    assert!(matches!(again, AttachError::AddressTaken { .. }), "{again}");
    let attached = options().attach(&name).unwrap_err();
    assert!(
        matches!(attached, AttachError::AddressTaken { .. }),
        "{attached}"
    );
    step.store(2, Ordering::Release);
    until(|| step.load(Ordering::Acquire) == 3);
    // The region has grown.
    assert_eq!(*observer.find::<u32>("late").unwrap(), 9);
    let grown = observer.contents().unwrap();
    assert!(grown.heap.allocated_bytes >= contents.heap.allocated_bytes + (512 << 10));
    step.store(4, Ordering::Release);
    child.succeed();
    // What it reads stays, and is not in use by it: the region can be attached and repaired by others.
    RegionOptions::unlink(&name).unwrap();
    assert_eq!(observer.find::<[u32; 2]>("version").unwrap(), &[7, 8]);
    let gone = options().observe(&name).unwrap_err();
    assert!(matches!(gone, AttachError::NotFound), "{gone}");
}

#[test]
fn a_write_to_an_observed_region_ends_the_process() {
    let (name, _file) = Leftover::region("not-written");
    Child::fork(|| drop(options().create_named(&name).unwrap())).succeed();
    let mut writer = Child::fork(|| {
        let observer = options().observe(&name).unwrap();
        // SAFETY: none. The kernel refuses it.
        unsafe { observer.base().cast_mut().write_volatile(1) };
    });
    assert_eq!(writer.wait(), Exit::Signal(libc::SIGSEGV));
}

#[test]
fn an_observer_may_be_a_user_who_cannot_write() {
    // SAFETY: no other thread reads the user of this process meanwhile.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: this user cannot become another");
        return;
    }
    let (name, _file) = Leftover::region("other-user");
    Child::fork(|| {
        let region = options().create_named(&name).unwrap();
        region.object("version", || 7u32).unwrap();
    })
    .succeed();
    Child::fork(|| {
        // SAFETY: this process has one thread.
        assert_eq!(unsafe { libc::setuid(65_534) }, 0);
        let attached = options().attach(&name).unwrap_err();
        assert!(matches!(attached, AttachError::Permission), "{attached}");
        let distrusted = options().observe(&name).unwrap_err();
        assert!(
            matches!(distrusted, AttachError::Permission),
            "{distrusted}"
        );
        // SAFETY: this test has made the region.
        let trusting = unsafe { options().trust_any_owner(true) };
        let observer = trusting.observe(&name).unwrap();
        assert_eq!(*observer.find::<u32>("version").unwrap(), 7);
    })
    .succeed();
}

#[test]
fn a_region_without_a_name_is_observed_by_its_file() {
    let region: Region = options().create_anonymous().unwrap();
    region.object("version", || 7u32).unwrap();
    let file = region.file().as_fd().try_clone_to_owned().unwrap();
    region.detach().unwrap();
    let observer = options().observe_file(&file).unwrap();
    assert_eq!(*observer.find::<u32>("version").unwrap(), 7);
    let zero = std::fs::File::open("/dev/zero").unwrap().into();
    assert!(matches!(
        options().observe_file(&zero),
        Err(AttachError::NotARegion)
    ));
}

/// An object whose entry leads out of the region's memory.
#[test]
fn a_hostile_entry_is_found_damaged() {
    use std::os::unix::fs::FileExt;
    let (name, file) = Leftover::region("hostile-entry");
    Child::fork(|| {
        let region = options().create_named(&name).unwrap();
        region.object("version", || 7u32).unwrap();
    })
    .succeed();
    let observer = options().observe(&name).unwrap();
    let address = observer.contents().unwrap().objects[0].address;
    // The entry is where the object's address and size are, with the name behind them.
    let bytes = std::fs::read(file.path()).unwrap();
    let entry = [address, 4].map(u64::to_le_bytes).concat();
    let is_entry = |at: &usize| bytes[*at..].starts_with(&entry);
    let at = (0..bytes.len()).step_by(8).find(is_entry).unwrap();
    assert!(bytes[at..at + 64].windows(7).any(|part| part == b"version"));
    let options = std::fs::OpenOptions::new().write(true).clone();
    let writable = options.open(file.path()).unwrap();
    let outside = [
        0,
        8,
        observer.base() as u64,
        address + (64 << 20),
        u64::MAX - 1,
    ];
    for hostile in outside {
        writable
            .write_all_at(&hostile.to_le_bytes(), at as u64)
            .unwrap();
        let damaged = observer.find::<u32>("version").unwrap_err();
        assert!(
            matches!(damaged, ObjectError::Damaged),
            "{hostile:x}: {damaged}"
        );
    }
}

/// `/proc` is that of the namespace outside, in which the process has another number.
#[test]
fn an_observer_may_be_in_another_pid_namespace_with_the_proc_of_an_outer_one() {
    let test = "an_observer_may_be_in_another_pid_namespace_with_the_proc_of_an_outer_one";
    if let Err(error) = Namespace::may_be_made() {
        println!("skipped: {test}: PID namespaces cannot be made here: {error}");
        return;
    }
    let (name, file) = Leftover::region("observed-from-elsewhere");
    let step = Page::<AtomicU32>::new();
    let child = kept_by_child(&name, &step);
    let file = std::fs::File::open(file.path()).unwrap().into();
    Namespace::start(false, || {
        let observer = options().observe(&name).unwrap();
        assert_eq!(observer.contents().unwrap().objects.len(), 2);
        drop(observer);
        let observer = options().observe_file(&file).unwrap();
        assert_eq!(observer.find::<[u32; 2]>("version").unwrap(), &[7, 8]);
    })
    .succeed();
    step.store(2, Ordering::Release);
    until(|| step.load(Ordering::Acquire) == 3);
    step.store(4, Ordering::Release);
    child.succeed();
}
