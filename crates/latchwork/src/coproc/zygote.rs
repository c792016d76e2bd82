//! The zygote: a small process of one thread that makes clean coprocs.
//!
//! It is a clone of the process that starts the runtime, and each coproc is a clone of it. So the cost of a start
//! depends on *its* memory, however much its parent has grown since, and no lock is copied while a thread of the parent
//! holds it. Coprocs are its siblings (`CLONE_PARENT`): the parent waits for them itself. The zygote has no exit
//! signal, and neither have the coprocs.
//!
//! *A late start.* In a process with threads, one of them may hold a lock of the allocator, the loader or std at the
//! instant of the clone, and in the copy that lock is held for ever. So the copy first takes each of these locks once;
//! its parent watches, kills it if it hangs, and makes another. (The cloning thread itself locks std's standard
//! output.) This proof does not cover locks of other libraries, the parent's own, or the lock of standard input, which
//! a program that reads commands holds all the time.
//!
//! *Its end.* It ends when its socket is closed. When its parent has ended, or become another program, it
//! makes the ready coprocs of the pool end, too. After the end it waits for those that go on, and frees the records, since no
//! other process can. If it is killed, the next spawn
//! that needs it makes another one.
//!
//! *Signals.* All are blocked in it, so that signals to the terminal's process group do not affect it.
#![allow(unsafe_code)]

use super::attributes::STACK_BYTES;
use super::child::{self, CloneContext};
use super::{Attribute, Ref, StartError, clone, record};
use crate::atomic::Ordering;
use crate::region;
use crate::region::heap::Owner;
use crate::sys::clock::since_boot;
use crate::sys::process::{self, Sharing, Stack};
use crate::sys::sockets::{self, Readable};
use crate::sys::{futex, proc_file, signals};
use crate::time::Deadline;
use core::ops::Range;
use core::time::Duration;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::sync::Arc;

/// How long the first copy may take for its proof; each further copy may take twice as long, up to some seconds for a
/// busy machine. It usually takes about a millisecond.
const FIRST_PROOF_TIMEOUT: Duration = Duration::from_millis(10);
const ATTEMPTS: u32 = 10;
/// How often a task that waits for a new process checks that the process still exists: a process without a life-word
/// cannot report its death.
pub(super) const EXISTENCE_CHECK: Duration = Duration::from_millis(20);
/// How long a dying parent may take to end after its descriptors were closed.
const PARENT_EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for a zygote that cannot be killed.
const ZYGOTE_EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const ZYGOTE_STACK: usize = 256 << 10;
/// The most records that one message names.
pub(super) const BATCH: usize = 64;

/// The parent's handle of the zygote.
#[derive(Debug)]
pub(super) struct Zygote {
    socket: OwnedFd,
    pub(super) pid: u32,
    /// Other code of this process may have reaped it, and the ID be another process's. `None`: no descriptor was free.
    process: Option<OwnedFd>,
    pub(super) task: Owner,
}

/// What the zygote needs of its parent's memory.
struct ServerContext<'a> {
    control: &'a Ref,
    socket: BorrowedFd<'a>,
    parent: u32,
    arguments: Range<usize>,
    prove: bool,
}

impl Zygote {
    /// Makes a zygote from the process as it is now, which reports in `control` that it is ready.
    pub(super) fn start(control: &Ref) -> Result<Arc<Self>, StartError> {
        if child::holds_locks_or_messages() {
            return Err(StartError::Holding);
        }
        let stat = proc_file::stat();
        // If /proc cannot be read, other threads are assumed.
        let prove = stat.as_ref().is_none_or(|stat| stat.threads > 1);
        let arguments = stat.map_or(0..0, |stat| stat.arguments);
        let parent = crate::sys::thread::process_id();
        for attempt in 0..ATTEMPTS {
            let (ours, theirs) = sockets::pair().map_err(system("socketpair"))?;
            let stack = Stack::map(ZYGOTE_STACK).map_err(system("mmap"))?;
            control.enter(record::REQUESTED);
            let context = ServerContext {
                control,
                socket: theirs.as_fd(),
                parent,
                arguments: arguments.clone(),
                prove,
            };
            // SAFETY: `serve` proves that it can use what it uses, and never returns.
            let pid = unsafe {
                clone::clone(
                    false,
                    &stack,
                    Sharing::empty(),
                    serve,
                    &context,
                    &control.pid,
                )
            };
            let pid = pid.map_err(system("clone"))?;
            let process = process::open_process(pid).ok();
            let timeout = Deadline::after(FIRST_PROOF_TIMEOUT * 2u32.pow(attempt));
            if wait_until_ready(control, pid, timeout)? {
                return Ok(Arc::new(Self {
                    socket: ours,
                    pid,
                    process,
                    task: control.task().ok_or(StartError::Died)?,
                }));
            }
            end_child(pid, process.as_ref());
        }
        Err(StartError::Unproven { attempts: ATTEMPTS })
    }

    /// Requests processes, one for each record, of which there are at most [`BATCH`]; descriptors can be sent only with
    /// a single record.
    pub(super) fn request(
        &self,
        records: &[Ref],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let mut message = [0; BATCH * 8];
        for (place, record) in message.chunks_exact_mut(8).zip(records) {
            place.copy_from_slice(&record.address().to_ne_bytes());
        }
        sockets::send(&self.socket, &message[..records.len() * 8], descriptors)
    }

    /// A `Zygote` without a process: nothing reads the other end of its socket.
    #[cfg(test)]
    pub(super) fn without_process(socket: OwnedFd) -> Self {
        Self {
            socket,
            pid: 0,
            process: None,
            task: Owner::new(0, core::num::NonZero::<u32>::MIN),
        }
    }

    /// Ends it; returns whether it is gone. If so, it makes no more processes and uses no record.
    pub(super) fn end(&self) -> bool {
        // The kill fails if this process has changed its user ID; the closed socket then ends the zygote.
        sockets::shut_down(&self.socket);
        end_child(self.pid, self.process.as_ref())
    }
}

/// Ends a child, which ends by itself if it cannot be killed. Returns whether it is gone.
fn end_child(pid: u32, process: Option<&OwnedFd>) -> bool {
    let killed = match process {
        Some(process) => process::send_signal(process, rustix::process::Signal::KILL),
        None => process::kill_child(pid),
    };
    match killed {
        Err(Errno::PERM) => {}
        // Other code has reaped it.
        Err(Errno::SRCH | Errno::CHILD) => return true,
        _ => {
            let _ = process::reap(pid, true);
            return true;
        }
    }
    let timeout = Deadline::after(ZYGOTE_EXIT_TIMEOUT);
    while matches!(process::reap(pid, false), Ok(None)) {
        if timeout.has_passed() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

pub(super) fn system(call: &'static str) -> impl Fn(Errno) -> StartError {
    move |error| StartError::System { call, error }
}

/// Waits until the zygote is ready; false if `timeout` passes first.
fn wait_until_ready(control: &Ref, pid: u32, timeout: Deadline) -> Result<bool, StartError> {
    loop {
        match control.state() {
            record::STARTED => return Ok(true),
            record::FAILED => {
                let _ = process::reap(pid, true);
                let errno = control.detail.load(Ordering::Relaxed).cast_signed();
                let error = Errno::from_raw_os_error(errno);
                return Err(system("starting the server process")(error));
            }
            _ => {}
        }
        if !matches!(process::reap(pid, false), Ok(None)) {
            return Err(StartError::Died);
        }
        if timeout.has_passed() {
            return Ok(false);
        }
        let check = Some(Deadline::after(EXISTENCE_CHECK).min(timeout));
        let shared = futex::Sharing::Shared;
        futex::wait(&control.state, record::REQUESTED, shared, check);
    }
}

/// The main function of the zygote.
fn serve(context: &ServerContext<'_>) -> ! {
    let control = context.control;
    let parent = prepare(context).unwrap_or_else(|error| {
        control.refuse(Attribute::Process, error);
        process::exit(1)
    });
    let mut server = Server {
        context,
        parent,
        stack: Stack::map(STACK_BYTES).ok(),
        backlog: VecDeque::with_capacity(BATCH),
        heard: since_boot(),
    };
    control.announce(record::STARTED);
    while server.serve_one() {}
    // The kernel closes a dying parent's descriptors before the parent has ended. (A parent that became another program
    // lives on.)
    let _ = process::wait_for_end(&server.parent, Some(Deadline::after(PARENT_EXIT_TIMEOUT)));
    let has_ended = process::parent() != context.parent;
    if control.state() == record::CLOSED && !has_ended {
        // The parent has closed all records, and frees them when this process is gone. (It could not kill it.)
        process::exit(0)
    }
    let is_dead = crate::atomic::unless_disabled!(ZygoteFreesRecords, has_ended, false);
    let other = LivesOn {
        process: context.parent,
        heard: server.heard,
    };
    end_all(control, (!is_dead).then_some(other));
    process::exit(0)
}

/// A parent that has not ended: it became another program, or only closed its socket.
pub(super) struct LivesOn {
    pub(super) process: u32,
    /// When it was last heard of, as the same program. Later tasks with its ID may be another program's.
    pub(super) heard: u64,
}

/// After the end of the parent, which has died, or `lives_on` as another program: makes its ready coprocs end. If it
/// has died, also frees all records, each when its process is gone.
pub(super) fn end_all(control: &Ref, lives_on: Option<LivesOn>) {
    // The parent may have died in the middle of a change of the chain, which its task's sweep finishes or undoes.
    let swept = crate::atomic::unless_disabled!(
        ZygoteSweepsFirst,
        control.region.sweep().map(drop),
        Ok(())
    );
    // A parent that only closed the socket still uses its records.
    let inner = control.region.inner();
    let has_tasks = |it: &LivesOn| inner.has_tasks_of(it.process, it.heard);
    if swept.is_err() || lives_on.as_ref().is_some_and(has_tasks) {
        return;
    }
    let mut all = Vec::new();
    let mut next = control.next();
    // SAFETY: the links are those of the parent's chain, which no process changes any more.
    while let Some(record) = unsafe { Ref::at(&control.region, next) } {
        next = record.next();
        // All of them now: while the first ones are waited for, other processes may get the IDs of those that end.
        let pid = record.pid.load(Ordering::Relaxed);
        let process = (lives_on.is_none() && pid != 0).then(|| process::open_process(pid));
        record.close();
        all.push((record, process));
    }
    if lives_on.is_some() {
        return;
    }
    for (record, process) in all {
        let process = match process {
            // Too many are open; by now there are fewer.
            Some(Err(Errno::MFILE | Errno::NFILE)) => {
                Some(process::open_process(record.pid.load(Ordering::Relaxed)))
            }
            process => process,
        };
        let used = record.state() != record::DONE
            && match process {
                None => false,
                Some(Ok(process)) => process::wait_for_end(&process, None).is_err(),
                Some(Err(error)) => error != Errno::SRCH,
            };
        if !used {
            // SAFETY: the parent is dead, and the coproc has ended or stored `DONE`: neither uses the record again.
            unsafe { record.free() };
        }
    }
    // SAFETY: the parent, the only other reader, is dead.
    unsafe { control.free() };
}

/// Separates this process from its parent. Returns a descriptor of the parent.
fn prepare(context: &ServerContext<'_>) -> Result<OwnedFd, Errno> {
    // Until the proof is done, this process must die with the creating thread: if it hangs, its parent may die before
    // it can kill it.
    process::end_with_creating_thread(true);
    signals::reset_handlers();
    let mut kept: Vec<_> = Vec::new();
    // SAFETY: this process has one thread.
    kept.extend(unsafe { region::files() });
    kept.push(context.socket.as_raw_fd());
    // SAFETY: the descriptors' owners are the parent's objects; nothing uses or drops their copies here.
    unsafe { process::close_all_but(&mut kept) };
    let parent = process::open_process(context.parent)?;
    if process::parent() != context.parent {
        process::exit(0);
    }
    process::discard_c_output();
    // SAFETY: `process_ends` is called in `exit` alone.
    unsafe { process::cut_exit_handlers(crate::task::process_ends) };
    if context.prove {
        process::touch_libc_locks();
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let started = thread.spawn(|| drop(vec![0u8; 4096]));
        let _ = started.map_err(child::errno_of_io)?.join();
        touch_std_locks();
    }
    process::end_with_creating_thread(false);
    process::set_name(b"zygote");
    // SAFETY: nothing in this process uses its arguments.
    unsafe { proc_file::set_title(&context.arguments, b"latchwork zygote") };
    child::join_region(context.control, "zygote")?;
    Ok(parent)
}

/// Takes and releases the locks that std has for standard error and for panics.
fn touch_std_locks() {
    drop(std::io::stderr().lock());
    // The lock under which the default hook prints.
    drop(std::backtrace::Backtrace::force_capture());
    // The hook cannot be changed during a panic, and the runtime may be started during one.
    if !std::thread::panicking() {
        // The program's own hook is not called, since it may do anything.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let _ = std::panic::catch_unwind(|| panic!("a proof that panics work"));
        std::panic::set_hook(hook);
    }
}

struct Server<'a> {
    context: &'a ServerContext<'a>,
    parent: OwnedFd,
    /// The stack for all coprocs of the default size: each has a copy of its own.
    stack: Option<Stack>,
    /// Ready coprocs to make when there is no other request.
    backlog: VecDeque<Ref>,
    /// The time since boot of the latest request, or of the start.
    heard: u64,
}

impl Server<'_> {
    /// Serves one request, or makes one ready coproc. Returns false when the zygote must end.
    fn serve_one(&mut self) -> bool {
        match sockets::wait_readable(self.context.socket, &self.parent, self.backlog.is_empty()) {
            Ok(Readable::First) => self.receive(),
            Ok(Readable::Neither) => {
                if let Some(record) = self.backlog.pop_front() {
                    self.make(&record, &[]);
                }
                true
            }
            Ok(Readable::Second) | Err(_) => false,
        }
    }

    fn receive(&mut self) -> bool {
        let mut message = [0; BATCH * 8];
        let mut descriptors = Vec::new();
        let Ok(length @ 1..) =
            sockets::receive(self.context.socket, &mut message, &mut descriptors)
        else {
            return false;
        };
        self.heard = since_boot();
        for address in message[..length].as_chunks::<8>().0 {
            // SAFETY: the parent sends addresses of records of this region.
            let record =
                unsafe { Ref::at(&self.context.control.region, usize::from_ne_bytes(*address)) };
            let Some(record) = record else { continue };
            // SAFETY: the coproc of this record has not been made, so only the zygote reads the request.
            if unsafe { record.request() }.pooled {
                self.backlog.push_back(record);
            } else {
                self.make(&record, &descriptors);
            }
        }
        true
    }

    fn make(&self, record: &Ref, descriptors: &[OwnedFd]) {
        // SAFETY: the coproc of this record has not been made, so only the zygote uses the request.
        let request = unsafe { record.request() };
        if request.descriptor_count != descriptors.len() {
            // The kernel passes only as many descriptors as this process's limit leaves room for.
            return record.refuse(Attribute::Descriptor, Errno::MFILE);
        }
        for (place, descriptor) in request.descriptors.iter_mut().zip(descriptors) {
            *place = descriptor.as_raw_fd();
        }
        let bytes = request.settings.stack_bytes();
        let own;
        let stack = match &self.stack {
            Some(stack) if bytes == STACK_BYTES => stack,
            _ => match Stack::map(bytes) {
                Ok(mapped) => {
                    own = mapped;
                    &own
                }
                Err(error) => return record.refuse(Attribute::StackSize, error),
            },
        };
        let context = CloneContext {
            record,
            zygote: self.context.control.task(),
            arguments: self.context.arguments.clone(),
            close: &[self.context.socket, self.parent.as_fd()],
        };
        // SAFETY: this process has one thread, and `begin` never returns.
        let made = unsafe {
            clone::clone(
                true,
                stack,
                Sharing::PARENT,
                child::begin,
                &context,
                &record.pid,
            )
        };
        if let Err(error) = made {
            record.refuse(Attribute::Process, error);
        }
    }
}
