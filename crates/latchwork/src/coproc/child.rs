//! The life of a coproc, from its first instruction to its last.
//!
//! It runs on a copy of another process's memory, and uses of it only the region, the request in its record, the C
//! library and std. It leaves only by `_exit`, so that nothing of the copied process (`atexit` handlers, destructors of
//! threads) runs a second time; the one exception is a function that calls `exit`, which makes the C library run the
//! destructors of thread-locals that the copied thread had.
//!
//! *The start.* The start of a snapshot does not allocate before `STARTED`, unless the coproc is to die with its
//! parent: another thread of the creator may have held the allocator's lock when the process was copied.
//!
//! *The end.* The coproc first stores the result and `DONE`; then it leaves the region, which wakes the tasks that wait
//! for its end. One wake-up serves both, and a task that sees the coproc gone also sees the result. A coproc that still
//! holds a robust lock, has a message in flight, or has further threads in the region, does not leave: the kernel ends
//! all its tasks at its exit, and reports what they held. A joiner waits for either in the same way.
#![allow(unsafe_code)]

use super::{Attribute, Ref, Request, record};
use crate::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::atomic::{AtomicU32, AtomicUsize};
use crate::backoff::{poll_briefly, yield_if_brief};
use crate::region::heap::Owner;
use crate::region::{AttachError, Region, has_messages};
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

/// The exit status of a coproc that panicked: that of a Rust program.
const PANICKED: i32 = 101;
/// The values of `code` in a record with a result.
pub(super) const RESULT_RETURNED: u32 = 0;
pub(super) const RESULT_PANICKED: u32 = 1;
/// How often a ready coproc checks that its creator lives, as the same program. The creator or the zygote closes its record; this
/// check is for a coproc whose zygote was killed.
const PARENT_CHECK: Duration = Duration::from_secs(10);

/// Spawns at most this far apart are a burst: the pool wakes the next coproc before it is requested, and that coproc
/// polls for work without sleeping. Waking an idle processor takes longer than everything else in a spawn.
pub(super) const BURST_GAP: Duration = Duration::from_micros(60);

/// How long a coproc from the pool delays its exit. The kernel needs some 100 µs of processor time to tear a process
/// down; in a burst of short coprocs that time would be taken from the next ones.
pub(super) const EXIT_DELAY: Duration = Duration::from_millis(10);

/// What a coproc finds in its copy of the memory.
pub(super) struct CloneContext<'a> {
    pub(super) record: &'a Ref,
    /// The zygote's task, if the zygote is copied. In a snapshot the copied process is the creator itself: handlers, output and
    /// descriptors are then the creator's.
    pub(super) zygote: Option<Owner>,
    /// The address range of the arguments that `/proc` shows; empty if unknown.
    pub(super) arguments: Range<usize>,
    /// Descriptors of the copied process that this one must not keep.
    pub(super) close: &'a [BorrowedFd<'a>],
}

/// The entry point of a clone. All signals are blocked.
pub(super) fn begin(context: &CloneContext<'_>) -> ! {
    for descriptor in context.close {
        // SAFETY: this process's copy of the descriptor, which nothing uses: its owner never runs here.
        unsafe { sockets::close_copy(*descriptor) };
    }
    let snapshot = context.zygote.is_none();
    if snapshot {
        signals::reset_handlers();
        process::discard_c_output();
    }
    let record = context.record;
    record.identify();
    // SAFETY: until it enters `STARTED` or `READY`, the coproc may read the request (invariant 1).
    let mut request: &Request = unsafe { record.request() };
    let joined = join_region(record, request.settings.name());
    joined.unwrap_or_else(|error| fail(record, (Attribute::Region, error)));
    if request.pooled && !snapshot {
        wait_for_work(context);
        // SAFETY: the record is `ASSIGNED`, so the request is the coproc's to read (invariant 1).
        request = unsafe { record.request() };
        if let Ok(task) = record.region.inner().task() {
            task.slot.set_name(request.settings.name());
        }
    }
    request.settings.apply_name(&context.arguments);
    let prepared = prepare(&record.region, request, snapshot);
    prepared.unwrap_or_else(|refused| fail(record, refused));
    run(record, request, snapshot)
}

/// Makes the calling thread, which is new, a task of the region, and notes it in the record.
pub(super) fn join_region(record: &Ref, name: &str) -> Result<(), Errno> {
    let task = record.region.inner().task().map_err(errno_of)?;
    task.slot.set_name(name);
    record.set_task(task.owner());
    Ok(())
}

fn errno_of(error: AttachError) -> Errno {
    match error {
        AttachError::TaskTableFull { .. }
        | AttachError::TooManyRegions
        | AttachError::TooManyAttachments => Errno::NOSPC,
        AttachError::Validating => Errno::AGAIN,
        AttachError::System { error, .. } => error,
        _ => Errno::NOMEM,
    }
}

/// The error of a thread that could not be started.
pub(super) fn errno_of_io(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)
}

/// Reports an attribute that cannot be set, and ends.
fn fail(record: &Ref, (attribute, error): (Attribute, Errno)) -> ! {
    record.refuse(attribute, error);
    leave_regions(&record.region);
    process::exit(PANICKED)
}

/// Waits, ready, until there is work. Ends the process if the pool is closed, or the creator is dead or has become another program.
///
/// It depends on its own record alone: the control record may be freed while this process is not scheduled.
fn wait_for_work(context: &CloneContext<'_>) {
    let record = context.record;
    warm_up(context);
    // SAFETY: until it enters `READY`, the coproc may read the request (invariant 1).
    let &mut Request {
        creator, made_at, ..
    } = unsafe { record.request() };
    let inner = record.region.inner();
    let is_parent_another = || {
        process::parent() != creator
            // An `exec` keeps the parent's ID, and ends its tasks. The zygote notices that; it is asked for first, since a creator
            // whose tasks have merely left keeps its ready coprocs.
            || context.zygote.is_none_or(|zygote| inner.life_word(zygote).is_none())
                && !inner.has_tasks_of(creator, made_at)
    };
    let change = |from, to| {
        // AcqRel: pairs with the pool, which may be assigning work, or closing, at the same time.
        let changed = record.state.compare_exchange(from, to, AcqRel, Acquire);
        changed.is_ok()
    };
    let mut is_closed = !change(record::REQUESTED, record::READY);
    while !is_closed {
        match record.state() {
            record::ASSIGNED => break,
            record::CLOSED => is_closed = true,
            _ if is_parent_another() => is_closed = change(record::READY, record::CLOSED),
            _ => {
                let deadline = Some(Deadline::after(PARENT_CHECK));
                let shared = futex::Sharing::Shared;
                if futex::wait_woken(&record.state, record::READY, shared, deadline).1 {
                    poll_for_work(record);
                }
            }
        }
    }
    if is_closed {
        free_if_orphan(record, creator);
        leave_regions(&record.region);
        process::exit(0);
    }
    // Signals that arrived so far were sent to the terminal's process group, not to the work that starts now.
    signals::discard_pending();
}

/// Polls for work without sleeping, for a moment: a coproc that is woken without work will probably be assigned some
/// soon (see [`BURST_GAP`]).
fn poll_for_work(record: &Ref) {
    // Relaxed: a value that was published with `READY` stays visible to an Acquire load, by the release sequence. Each
    // exchange fails if there is work.
    let step = |from, to| {
        let state = &record.state;
        state.compare_exchange(from, to, Relaxed, Relaxed)
    };
    if step(record::READY, record::AWAKE).is_err() {
        return;
    }
    let until = Deadline::after(BURST_GAP);
    while record.state() == record::AWAKE && !until.has_passed() {
        if poll_briefly(|| record.state() != record::AWAKE) || !yield_if_brief() {
            break;
        }
    }
    let _ = step(record::AWAKE, record::READY);
}

/// Rehearses the start and the end before there is work, so that each page that they need is already mapped in.
fn warm_up(context: &CloneContext<'_>) {
    let record = context.record;
    // SAFETY: until it enters `READY`, the coproc may read the request (invariant 1).
    let settings = &unsafe { record.request() }.settings;
    settings.apply_name(&context.arguments);
    signals::discard_pending();
    // This blocks what is blocked already: only the call matters.
    signals::block_all();
    core::hint::black_box([1u8; 3 * 4096]);
    let _ = catch_unwind(flush_output);
    thread::sleep_until(Deadline::now());
    record.set_usage(&limits::usage());
    leave_regions(&record.region);
    let joined = join_region(record, settings.name());
    joined.unwrap_or_else(|error| fail(record, (Attribute::Region, error)));
}

fn prepare(region: &Region, request: &Request, snapshot: bool) -> Result<(), (Attribute, Errno)> {
    let mut count = request.descriptor_count;
    let mut passed = [const { None::<OwnedFd> }; MAX_DESCRIPTORS];
    for (place, number) in passed.iter_mut().zip(&request.descriptors[..count]) {
        *place = Some(if snapshot {
            // SAFETY: the descriptor is open in the copied process, and so in this one.
            let theirs = unsafe { BorrowedFd::borrow_raw(*number) };
            crate::sys::descriptors::duplicate(theirs)
                .map_err(|error| (Attribute::Descriptor, error))?
        } else {
            // SAFETY: the zygote received the descriptor for this process, and the zygote's copy of it has another
            // owner.
            unsafe { OwnedFd::from_raw_fd(*number) }
        });
    }
    let settings = &request.settings;
    // The last ones are for the settings.
    let mut take_last = |is_there: bool| {
        count -= usize::from(is_there);
        is_there.then(|| passed.get_mut(count)?.take()).flatten()
    };
    let members = take_last(settings.cgroup);
    let program = take_last(settings.calls);
    let ruleset = take_last(settings.files);
    // First: threads that are started afterwards inherit it.
    settings.confine(ruleset.as_ref().map(AsFd::as_fd))?;
    // The watcher is started before the limits are set, since the limits are for the coproc's own work.
    if request.settings.plain.die_with_parent {
        watch_parent(request.creator).map_err(|error| (Attribute::DieWithParent, error))?;
    }
    request.settings.apply(members.as_ref().map(AsFd::as_fd))?;
    drop((members, ruleset));
    for (place, descriptor) in PASSED.iter().zip(passed.into_iter().flatten()) {
        // Relaxed: the Release store of the count publishes it.
        place.store(descriptor.into_raw_fd().cast_unsigned(), Relaxed);
    }
    // An unneeded store would make the kernel copy a page.
    if PASSED_COUNT.load(Relaxed) != count {
        // Release: pairs with the Acquire of `descriptors`.
        PASSED_COUNT.store(count, Release);
    }
    let orphans = region.on_death(request.settings.plain.orphans);
    let orphans = orphans.map_err(|error| (Attribute::Region, errno_of(error)));
    // Last. The program's descriptor stays open: its close might be denied. In a snapshot, which may share the creator's
    // descriptors, that is the creator's, which is open until the handshake.
    let program = match program {
        Some(own) if snapshot => {
            drop(own);
            let cgroup = usize::from(settings.cgroup);
            Some(request.descriptors[request.descriptor_count - cgroup - 1])
        }
        own => own.map(IntoRawFd::into_raw_fd),
    };
    // SAFETY: open, since nothing closes it.
    let program = program.map(|number| unsafe { BorrowedFd::borrow_raw(number) });
    let confined = orphans.and_then(|()| settings.filter_calls(program));
    if confined.is_err() {
        // They may be in the creator's table.
        drop(descriptors());
    }
    confined
}

/// The descriptors that were passed at the start, and their number; 0 once they were taken.
static PASSED: [AtomicU32; MAX_DESCRIPTORS] = [const { AtomicU32::new(0) }; MAX_DESCRIPTORS];
static PASSED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// Returns, in a coproc, the descriptors that [`Attributes::descriptor`](super::Attributes::descriptor) passed, in that
/// order. Only the first call returns them; later calls return none.
#[must_use]
pub fn descriptors() -> Vec<OwnedFd> {
    // Acquire: pairs with the Release of `prepare`.
    let count = PASSED_COUNT.swap(0, Acquire);
    let numbers = PASSED[..count].iter();
    numbers
        .map(|number| number.load(Relaxed).cast_signed())
        // SAFETY: `prepare` released ownership of the descriptor, and the swap lets only one call take it.
        .map(|number| unsafe { OwnedFd::from_raw_fd(number) })
        .collect()
}

/// Starts the thread that kills this process when its parent ends.
fn watch_parent(parent: u32) -> Result<(), Errno> {
    // The thread is created with all signals blocked, so signals are delivered to the coproc's own thread.
    let watcher = std::thread::Builder::new()
        .name("parent-watch".into())
        .stack_size(64 << 10);
    let (report, reported) = std::sync::mpsc::sync_channel(1);
    let watch = move || {
        // If descriptors are shared with the parent, a pidfd that is opened here would stay open in the parent after
        // this process has ended. So this thread first takes a table of its own.
        // SAFETY: this thread uses the pidfd alone, which it opens afterwards.
        let left = unsafe { process::leave_descriptors() };
        let watched = left.and_then(|()| process::open_process(parent));
        let _ = report.send(watched.as_ref().map(drop).map_err(|error| *error));
        let Ok(watched) = watched else { return };
        match process::wait_for_end(&watched, None) {
            Ok(_) => process::kill_self(),
            Err(error) => crate::fatal(format_args!("a coproc cannot watch its parent: {error}")),
        }
    };
    watcher.spawn(watch).map_err(errno_of_io)?;
    let watched = reported.recv().unwrap_or(Err(Errno::AGAIN));
    // The parent may have ended before, and its ID been reused: this process has then been adopted by another one.
    if process::parent() != parent {
        process::kill_self();
    }
    watched
}

fn run(record: &Ref, request: &Request, snapshot: bool) -> ! {
    let (call, pooled) = (request.call, request.pooled);
    let task = Me::current_or_none().stamp();
    let value = request.value;
    signals::unblock_all();
    // The request is not used after this; the creator's handshake returns.
    if pooled {
        record.begin_here()
    } else {
        record.announce(record::STARTED)
    }
    if snapshot {
        // Cutting the handlers may allocate, so it is not done before `STARTED`.
        // SAFETY: `process_ends` is called in `exit` alone.
        unsafe { process::cut_exit_handlers(crate::task::process_ends) };
    }
    let ended = catch_unwind(AssertUnwindSafe(|| match call {
        Some(call) => {
            let argument = match call.argument {
                0 => value.as_ptr().cast(),
                address => ptr::with_exposed_provenance(address),
            };
            // SAFETY: `Call` is made from an entry and an argument that belong together.
            unsafe { (call.run)(&record.region, call.entry, argument) }
        }
        None => 0,
    }));
    // A write error, or a panic while writing, must not hide the result.
    let _ = catch_unwind(flush_output);
    let status = ended.as_ref().map_or(PANICKED, |returned| returned & 0xff);
    if Me::current_or_none().stamp() != task {
        // This is the child of a fork inside the function. The record and the task in the region belong to its parent.
        process::exit(status);
    }
    match ended {
        Ok(returned) => {
            record.code.store(RESULT_RETURNED, Relaxed);
            record.detail.store(returned.cast_unsigned(), Relaxed);
        }
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or(payload.downcast_ref::<String>().map(String::as_str));
            record.set_message(text.unwrap_or("a value that is no text"));
            // The payload is leaked: its destructor may panic, and must not unwind from here.
            core::mem::forget(payload);
            record.code.store(RESULT_PANICKED, Relaxed);
        }
    }
    record.set_usage(&limits::usage());
    if !free_if_orphan(record, request.creator) {
        record.enter(record::DONE);
    }
    // The task that the leaving wakes may be waiting for this processor.
    if leave_regions(&record.region) {
        if pooled {
            // This does not sleep on a futex word of the region: the record may be another coproc's meanwhile, and this
            // process would consume its wake-up.
            thread::sleep_until(Deadline::after(EXIT_DELAY));
        }
        scheduling::yield_to_shorter_slices();
    }
    process::exit(status)
}

/// Frees the record if no process is left to do so. Returns whether it did.
fn free_if_orphan(record: &Ref, creator: u32) -> bool {
    let orphan = !record.is_in_chain() && process::parent() != creator;
    if orphan {
        // SAFETY: the creator is dead, and the record is in no chain, so no zygote reads or frees it.
        unsafe { record.free() };
    }
    orphan
}

/// Writes buffered output, since `_exit` does not.
fn flush_output() {
    use std::io::Write;
    let _ = std::io::stdout().flush();
    process::flush_c_output();
}

/// Whether this thread holds robust locks, or has messages in flight.
pub(super) fn holds_locks_or_messages() -> bool {
    Me::get().is_ok_and(|me| me.holds_locks() || has_messages(me))
}

/// Ends this thread's membership in all regions, unless it still holds something there. Returns whether it did.
fn leave_regions(region: &Region) -> bool {
    let Ok(me) = Me::get() else { return false };
    let inner = region.inner();
    let is_shared = |task| inner.process_has_other_tasks(task);
    if holds_locks_or_messages() || inner.task().is_ok_and(is_shared) {
        return false;
    }
    while let Some(attachment) = me.attachments().last() {
        // SAFETY: this thread made the attachment, and undoes it once.
        unsafe { (attachment.detach)(attachment.context, attachment.slot) };
    }
    true
}
