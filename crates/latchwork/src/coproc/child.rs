//! The life of a coproc, from its first instruction to its last.
//!
//! It runs on a copy of another process's memory, of which it uses: the region, the request in its
//! record, and the C library and std. It leaves by `_exit` alone, so that nothing of that other
//! process (handlers of `atexit`, destructors of threads) ever runs a second time.
//!
//! *The end.* First the result and `DONE`, then the region is left, which wakes whoever waits for
//! this task: one wake-up serves both, and who sees the task gone sees the result. A coproc that
//! still holds a robust lock, or has further threads in the region, does not leave: the kernel does
//! it for them all, and reports what they held. Whoever joins waits for either in the same way.
#![allow(unsafe_code)]

use super::attributes::Attribute;
use super::record::{self, Ref, Request};
use crate::atomic::{AtomicPtr, Ordering};
use crate::region::{AttachError, Region};
use crate::sys::{futex, limits, process, scheduling, signals, sockets};
use crate::task::Me;
use crate::time::Deadline;
use core::ops::Range;
use core::ptr;
use core::time::Duration;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The exit status of a coproc that panicked, as of a Rust program.
const PANICKED: i32 = 101;
/// What `code` says of the result.
pub(super) const RESULT_RETURNED: u32 = 0;
pub(super) const RESULT_PANICKED: u32 = 1;
/// How often a ready coproc makes sure that its parent lives. The runtime tells it; this is for a
/// runtime whose processes were all killed at once.
const PARENT_CHECK: Duration = Duration::from_secs(10);
/// How long a coproc from the pool puts its end off. Taking a process apart takes some 100 µs of a
/// processor; in a burst of short coprocs that would be taken from the next ones.
const LINGER: Duration = Duration::from_millis(10);

/// What a coproc finds in the memory that it is a copy of.
pub(super) struct Seed<'a> {
    pub(super) record: &'a Ref,
    /// The runtime's own record, for a coproc that is made ahead.
    pub(super) control: Option<&'a Ref>,
    /// Where the arguments are that `/proc` shows; empty if unknown.
    pub(super) arguments: Range<usize>,
    /// Descriptors of the copied process that this one must not keep.
    pub(super) close: [Option<BorrowedFd<'a>>; 2],
    /// Signal handlers are still the copied process's.
    pub(super) reset_signals: bool,
    /// The descriptors in the request are in use by the copied process, too.
    pub(super) duplicate: bool,
}

/// Where a clone begins. All signals are blocked.
pub(super) fn begin(seed: &Seed<'_>) -> ! {
    for descriptor in seed.close.iter().flatten() {
        // SAFETY: this process's copy, which nobody uses: its owner never runs here.
        unsafe { sockets::close_copy(*descriptor) };
    }
    if seed.reset_signals {
        signals::reset_handlers();
        process::cut_exit_handlers();
    }
    let record = seed.record;
    // SAFETY: until `STARTED` or `READY` the request is the coproc's to read (invariant 1).
    let mut request: &Request = unsafe { record.request() };
    if let Err(error) = join_region(record, request.settings.name()) {
        fail(record, Attribute::Region, errno_of(&error));
    }
    if request.pooled {
        wait_for_work(seed);
        // SAFETY: assigned to this coproc just now.
        request = unsafe { record.request() };
        if let Ok(task) = record.region.inner().task() {
            task.slot.set_name(request.settings.name());
        }
    }
    request.settings.apply_name(&seed.arguments);
    if let Err((attribute, error)) = prepare(&record.region, request, seed.duplicate) {
        fail(record, attribute, error);
    }
    run(record, request)
}

fn join_region(record: &Ref, name: &str) -> Result<(), AttachError> {
    let task = record.region.inner().task()?;
    task.slot.set_name(name);
    record.set_task(task.owner());
    Ok(())
}

fn errno_of(error: &AttachError) -> Errno {
    match error {
        AttachError::TaskTableFull { .. } | AttachError::TooManyRegions => Errno::NOSPC,
        AttachError::System { error, .. } => *error,
        _ => Errno::NOMEM,
    }
}

/// Reports an attribute that cannot be set, and ends.
fn fail(record: &Ref, attribute: Attribute, error: Errno) -> ! {
    record.refuse(attribute, error);
    leave_regions(&record.region);
    process::exit(PANICKED)
}

/// Waits, ready, until there is work; ends if there never will be.
fn wait_for_work(seed: &Seed<'_>) {
    let record = seed.record;
    warm_up(seed);
    // SAFETY: until `READY` the request is the coproc's to read.
    let creator = unsafe { record.request() }.creator;
    record.enter(record::READY);
    loop {
        let control = seed.control.map(|control| (control, control.state()));
        let closed = control.is_some_and(|(_, state)| state == record::CLOSED);
        if record.state() == record::ASSIGNED {
            break;
        }
        if closed || process::parent() != creator {
            // AcqRel: pairs with the pool, which may be assigning work at this moment.
            let state = &record.state;
            if state
                .compare_exchange(
                    record::READY,
                    record::CLOSED,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_err()
            {
                break;
            }
            free_if_orphan(record, creator);
            leave_regions(&record.region);
            process::exit(0);
        }
        let own = futex::shared_word(&record.state, record::READY);
        let deadline = Some(Deadline::after(PARENT_CHECK));
        match control {
            Some((control, state)) => {
                futex::wait_many(&[own, futex::shared_word(&control.state, state)], deadline)
            }
            None => futex::wait_many(&[own], deadline),
        };
    }
    // What came so far was for whoever has the terminal, not for the work that comes now.
    signals::discard_pending();
}

/// Rehearses the start and the end, while nobody waits: each page that they need is then here.
fn warm_up(seed: &Seed<'_>) {
    let record = seed.record;
    // SAFETY: until `READY` the request is the coproc's to read.
    let settings = &unsafe { record.request() }.settings;
    settings.apply_name(&seed.arguments);
    signals::discard_pending();
    core::hint::black_box([1u8; 3 * 4096]);
    let _ = catch_unwind(flush_output);
    record.set_usage(&limits::usage());
    leave_regions(&record.region);
    if let Err(error) = join_region(record, settings.name()) {
        fail(record, Attribute::Region, errno_of(&error));
    }
}

fn prepare(region: &Region, request: &Request, duplicate: bool) -> Result<(), (Attribute, Errno)> {
    let numbers = &request.descriptors[..request.descriptor_count];
    let mut passed = Vec::with_capacity(numbers.len());
    for number in numbers {
        let owned = if duplicate {
            // SAFETY: open in the copied process, and so in this one.
            let theirs = unsafe { BorrowedFd::borrow_raw(*number) };
            sockets::duplicate(theirs).map_err(|error| (Attribute::Descriptor, error))?
        } else {
            // SAFETY: received for this process by the zygote, whose copy has another owner.
            unsafe { OwnedFd::from_raw_fd(*number) }
        };
        passed.push(owned);
    }
    let members = if request.settings.cgroup {
        passed.pop()
    } else {
        None
    };
    // Before the limits, which are for the coproc's own work.
    if request.settings.die_with_parent {
        watch_parent(request.creator).map_err(|error| (Attribute::DieWithParent, error))?;
    }
    request.settings.apply(members.as_ref().map(AsFd::as_fd))?;
    drop(members);
    if !passed.is_empty() {
        // Release: pairs with the Acquire of `descriptors`.
        DESCRIPTORS.store(Box::into_raw(Box::new(passed)), Ordering::Release);
    }
    region
        .on_death(request.settings.orphans)
        .map_err(|error| (Attribute::Region, errno_of(&error)))
}

/// The descriptors that came with the start; null if there are none, or they were taken.
static DESCRIPTORS: AtomicPtr<Vec<OwnedFd>> = AtomicPtr::new(ptr::null_mut());

/// In a coproc: the descriptors that [`Attributes::descriptor`](super::Attributes::descriptor)
/// passed, in that order. The first call gets them; later ones get none.
#[must_use]
pub fn descriptors() -> Vec<OwnedFd> {
    // Acquire: pairs with the Release of `prepare`.
    let passed = DESCRIPTORS.swap(ptr::null_mut(), Ordering::Acquire);
    if passed.is_null() {
        return Vec::new();
    }
    // SAFETY: made by `prepare` with `into_raw`, and taken once.
    *unsafe { Box::from_raw(passed) }
}

/// Starts the thread that ends this process when its parent does.
fn watch_parent(parent: u32) -> Result<(), Errno> {
    let watched = process::open_process(parent);
    // It may have ended before, and its ID be another's by now: then this process has been adopted.
    if process::parent() != parent {
        process::kill_self();
    }
    let watched = watched?;
    // Created with all signals blocked: they stay with the coproc's own thread.
    let watcher = std::thread::Builder::new()
        .name("parent-watch".into())
        .stack_size(64 << 10);
    let started = watcher.spawn(move || match process::wait_for_end(&watched, None) {
        Ok(_) => process::kill_self(),
        Err(error) => crate::fatal(format_args!("a coproc cannot watch its parent: {error}")),
    });
    started
        .map(drop)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))
}

fn run(record: &Ref, request: &Request) -> ! {
    let (call, pooled) = (request.call, request.pooled);
    let value: [u128; record::VALUE_BYTES / 16] = request.value;
    signals::unblock_all();
    // From here on the request is not used; whoever waits for the handshake goes on.
    if pooled {
        record.enter(record::STARTED)
    } else {
        record.announce(record::STARTED)
    }
    let ended = catch_unwind(AssertUnwindSafe(|| match call {
        Some(call) => {
            let argument = if call.argument == 0 {
                value.as_ptr().cast()
            } else {
                ptr::with_exposed_provenance(call.argument)
            };
            // SAFETY: `Call` is made from an entry and an argument that belong together.
            unsafe { (call.run)(&record.region, call.entry, argument) }
        }
        None => 0,
    }));
    // Output that cannot be written, or a panic in doing so, is not to hide the result.
    let _ = catch_unwind(flush_output);
    let status = match ended {
        Ok(returned) => {
            record.code.store(RESULT_RETURNED, Ordering::Relaxed);
            record
                .detail
                .store(returned.cast_unsigned(), Ordering::Relaxed);
            returned
        }
        Err(payload) => {
            let text = payload
                .downcast_ref::<&str>()
                .copied()
                .or(payload.downcast_ref::<String>().map(String::as_str));
            record.set_message(text.unwrap_or("a value that is no text"));
            // A payload whose destructor panics must not unwind from here.
            core::mem::forget(payload);
            record.code.store(RESULT_PANICKED, Ordering::Relaxed);
            PANICKED
        }
    };
    record.set_usage(&limits::usage());
    if !free_if_orphan(record, request.creator) {
        record.enter(record::DONE);
    }
    // Who was woken by that may be waiting for this processor.
    if leave_regions(&record.region) {
        if pooled {
            // On no word of the region: the record may be another coproc's by now, whose wake-up
            // this one would take.
            std::thread::sleep(LINGER);
        }
        scheduling::step_back();
    }
    process::exit(status & 0xff)
}

/// Frees the record if nobody is left to do so; whether it did.
fn free_if_orphan(record: &Ref, creator: u32) -> bool {
    let orphan = process::parent() != creator;
    if orphan {
        // SAFETY: the creator, who alone knows it beside this process, is dead.
        unsafe { record.free() };
    }
    orphan
}

/// Writes what was printed: `_exit` does not.
fn flush_output() {
    use std::io::Write;
    let _ = std::io::stdout().flush();
    process::flush_c_output();
}

/// Ends this thread's part in all regions, unless something would then be left dangling; whether it
/// did.
fn leave_regions(region: &Region) -> bool {
    let Ok(me) = Me::get() else { return false };
    let holds = me
        .head()
        .links()
        .any(|link| me.attachments().all(|attachment| attachment.life != link));
    if holds
        || region
            .inner()
            .task()
            .is_ok_and(|task| region.inner().has_fellows(task))
    {
        return false;
    }
    while let Some(attachment) = me.attachments().last() {
        // SAFETY: made by this thread, and undone once; it holds no lock.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
    }
    true
}
