//! The life of a coproc, from its first instruction to its last.
//!
//! It runs on a copy of another process's memory, of which it uses: the region, the request in its
//! record, and the C library and std. It leaves by `_exit` alone, so that nothing of that other
//! process (handlers of `atexit`, destructors of threads) runs a second time; only a function that
//! calls `exit` has the C library run the destructors of thread-locals that the copied thread had.
//!
//! *The start.* A snapshot's does not allocate before `STARTED`, unless it is to die with its
//! parent: another thread of the creator may have held the allocator's lock when it was copied.
//!
//! *The end.* First the result and `DONE`, then the region is left, which wakes whoever waits for
//! this task: one wake-up serves both, and who sees the task gone sees the result. A coproc that
//! still holds a robust lock, has a message in flight, or has further threads in the region, does
//! not leave: the kernel does it for them all, and reports what they held. Whoever joins waits for
//! either in the same way.
#![allow(unsafe_code)]

use super::attributes::Attribute;
use super::pace::{BURST, LINGER};
use super::record::{self, Ref, Request};
use crate::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::backoff::poll_briefly;
use crate::region::watch::has_messages;
use crate::region::{AttachError, Region};
use crate::sys::sockets::{self, MAX_DESCRIPTORS};
use crate::sys::{futex, limits, process, scheduling, signals, thread};
use crate::task::Me;
use crate::time::Deadline;
use core::ops::Range;
use core::ptr;
use core::time::Duration;
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
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
/// What a coproc finds in the memory that it is a copy of.
pub(super) struct Seed<'a> {
    pub(super) record: &'a Ref,
    /// The runtime's own record, for a coproc that is made ahead.
    pub(super) control: Option<&'a Ref>,
    /// Where the arguments are that `/proc` shows; empty if unknown.
    pub(super) arguments: Range<usize>,
    /// Descriptors of the copied process that this one must not keep.
    pub(super) close: [Option<BorrowedFd<'a>>; 2],
    /// The copied process is the creator itself: handlers, output and descriptors are its own.
    pub(super) snapshot: bool,
}

/// Where a clone begins. All signals are blocked.
pub(super) fn begin(seed: &Seed<'_>) -> ! {
    for descriptor in seed.close.iter().flatten() {
        // SAFETY: this process's copy, which nobody uses: its owner never runs here.
        unsafe { sockets::close_copy(*descriptor) };
    }
    if seed.snapshot {
        signals::reset_handlers();
        process::forget_c_output();
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
    if let Err((attribute, error)) = prepare(&record.region, request, seed.snapshot) {
        fail(record, attribute, error);
    }
    run(record, request, seed.snapshot)
}

fn join_region(record: &Ref, name: &str) -> Result<(), AttachError> {
    let task = record.region.inner().task()?;
    task.slot.set_name(name);
    record.set_task(task.owner());
    Ok(())
}

fn errno_of(error: &AttachError) -> Errno {
    match error {
        AttachError::TaskTableFull { .. }
        | AttachError::TooManyRegions
        | AttachError::TooManyAttachments => Errno::NOSPC,
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
        let ended = match control {
            Some((control, state)) => {
                futex::wait_many(&[own, futex::shared_word(&control.state, state)], deadline)
            }
            None => futex::wait_many(&[own], deadline),
        };
        if ended != futex::Wait::TimedOut {
            stay_awake(record);
        }
    }
    // What came so far was for whoever has the terminal, not for the work that comes now.
    signals::discard_pending();
}

/// Looks for work without sleeping, for a moment: who is woken and finds none is about to get it
/// (see [`BURST`]).
fn stay_awake(record: &Ref) {
    // Relaxed: what comes with `READY` is published still, by the release sequence. Each fails if there
    // is work.
    let step = |from, to| {
        let state = &record.state;
        state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
    };
    if step(record::READY, record::AWAKE).is_err() {
        return;
    }
    let until = Deadline::after(BURST);
    while record.state() == record::AWAKE && !until.has_passed() {
        if poll_briefly(|| record.state() != record::AWAKE) {
            break;
        }
        thread::yield_cpu();
    }
    let _ = step(record::AWAKE, record::READY);
}

/// Rehearses the start and the end, while nobody waits: each page that they need is then here.
fn warm_up(seed: &Seed<'_>) {
    let record = seed.record;
    // SAFETY: until `READY` the request is the coproc's to read.
    let settings = &unsafe { record.request() }.settings;
    settings.apply_name(&seed.arguments);
    signals::discard_pending();
    // As it is. Only the call matters.
    signals::block_all();
    core::hint::black_box([1u8; 3 * 4096]);
    let _ = catch_unwind(flush_output);
    thread::sleep_until(Deadline::now());
    record.set_usage(&limits::usage());
    leave_regions(&record.region);
    if let Err(error) = join_region(record, settings.name()) {
        fail(record, Attribute::Region, errno_of(&error));
    }
}

fn prepare(region: &Region, request: &Request, snapshot: bool) -> Result<(), (Attribute, Errno)> {
    let mut count = request.descriptor_count;
    let mut passed = [const { None::<OwnedFd> }; MAX_DESCRIPTORS];
    for (place, number) in passed.iter_mut().zip(&request.descriptors[..count]) {
        *place = Some(if snapshot {
            // SAFETY: open in the copied process, and so in this one.
            let theirs = unsafe { BorrowedFd::borrow_raw(*number) };
            sockets::duplicate(theirs).map_err(|error| (Attribute::Descriptor, error))?
        } else {
            // SAFETY: received for this process by the zygote, whose copy has another owner.
            unsafe { OwnedFd::from_raw_fd(*number) }
        });
    }
    let members = if request.settings.cgroup {
        count -= 1;
        passed[count].take()
    } else {
        None
    };
    // Before the limits, which are for the coproc's own work.
    if request.settings.die_with_parent {
        watch_parent(request.creator).map_err(|error| (Attribute::DieWithParent, error))?;
    }
    request.settings.apply(members.as_ref().map(AsFd::as_fd))?;
    drop(members);
    for (place, descriptor) in PASSED.iter().zip(passed.into_iter().flatten()) {
        // Relaxed: before the count.
        place.store(descriptor.into_raw_fd().cast_unsigned(), Ordering::Relaxed);
    }
    // What is written for nothing is a page to copy.
    if PASSED_COUNT.load(Ordering::Relaxed) != count {
        // Release: pairs with the Acquire of `descriptors`.
        PASSED_COUNT.store(count, Ordering::Release);
    }
    region
        .on_death(request.settings.orphans)
        .map_err(|error| (Attribute::Region, errno_of(&error)))
}

/// The descriptors that came with the start, and how many they are; 0 once they were taken.
static PASSED: [AtomicU32; MAX_DESCRIPTORS] = [const { AtomicU32::new(0) }; MAX_DESCRIPTORS];
static PASSED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// In a coproc: the descriptors that [`Attributes::descriptor`](super::Attributes::descriptor)
/// passed, in that order. The first call gets them; later ones get none.
#[must_use]
pub fn descriptors() -> Vec<OwnedFd> {
    // Acquire: pairs with the Release of `prepare`.
    let count = PASSED_COUNT.swap(0, Ordering::Acquire);
    let numbers = PASSED[..count].iter();
    numbers
        .map(|number| number.load(Ordering::Relaxed).cast_signed())
        // SAFETY: given up by `prepare`, and taken once.
        .map(|number| unsafe { OwnedFd::from_raw_fd(number) })
        .collect()
}

/// Starts the thread that ends this process when its parent does.
fn watch_parent(parent: u32) -> Result<(), Errno> {
    // Created with all signals blocked: they stay with the coproc's own thread.
    let watcher = std::thread::Builder::new()
        .name("parent-watch".into())
        .stack_size(64 << 10);
    let (report, reported) = std::sync::mpsc::sync_channel(1);
    let watch = move || {
        // Where descriptors are shared with the parent, one that is opened for the parent's end
        // would stay open in it after this process's.
        let watched = process::leave_descriptors().and_then(|()| process::open_process(parent));
        let _ = report.send(watched.as_ref().map(drop).map_err(|error| *error));
        let Ok(watched) = watched else { return };
        match process::wait_for_end(&watched, None) {
            Ok(_) => process::kill_self(),
            Err(error) => crate::fatal(format_args!("a coproc cannot watch its parent: {error}")),
        }
    };
    watcher
        .spawn(watch)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
    let watched = reported.recv().unwrap_or(Err(Errno::AGAIN));
    // It may have ended before, and its ID be another's by now: then this process has been adopted.
    if process::parent() != parent {
        process::kill_self();
    }
    watched
}

fn run(record: &Ref, request: &Request, snapshot: bool) -> ! {
    let (call, pooled) = (request.call, request.pooled);
    let thread = Me::whoever().tid();
    let value: [u128; record::VALUE_BYTES / 16] = request.value;
    signals::unblock_all();
    // From here on the request is not used; whoever waits for the handshake goes on.
    if pooled {
        record.begin_here()
    } else {
        record.announce(record::STARTED)
    }
    if snapshot {
        // It may allocate.
        process::cut_exit_handlers(crate::task::process_ends);
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
    let status = ended.as_ref().map_or(PANICKED, |returned| returned & 0xff);
    if Me::whoever().tid() != thread {
        // The child of a fork has come back from the function. Neither the record nor the place in
        // the region is its own.
        process::exit(status);
    }
    match ended {
        Ok(returned) => {
            record.code.store(RESULT_RETURNED, Ordering::Relaxed);
            record
                .detail
                .store(returned.cast_unsigned(), Ordering::Relaxed);
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
        }
    }
    record.set_usage(&limits::usage());
    if !free_if_orphan(record, request.creator) {
        record.enter(record::DONE);
    }
    // Who was woken by that may be waiting for this processor.
    if leave_regions(&record.region) {
        if pooled {
            // On no word of the region: the record may be another coproc's by now, whose wake-up
            // this one would take.
            thread::sleep_until(Deadline::after(LINGER));
        }
        scheduling::step_back();
    }
    process::exit(status)
}

/// Frees the record if nobody is left to do so; whether it did.
fn free_if_orphan(record: &Ref, creator: u32) -> bool {
    let orphan = !record.is_in_chain() && process::parent() != creator;
    if orphan {
        // SAFETY: the creator is dead, and its zygote, if there is one, does not know the record.
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

/// Whether this thread holds robust locks, or has messages in flight.
pub(super) fn holds_something() -> bool {
    Me::get().is_ok_and(|me| me.locks().next().is_some() || has_messages(me))
}

/// Ends this thread's part in all regions, unless something would then be left dangling; whether it
/// did.
fn leave_regions(region: &Region) -> bool {
    let Ok(me) = Me::get() else { return false };
    if holds_something()
        || region
            .inner()
            .task()
            .is_ok_and(|task| region.inner().has_fellows(task))
    {
        return false;
    }
    while let Some(attachment) = me.attachments().last() {
        // SAFETY: made by this thread, and undone once.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
    }
    true
}
