//! The CoProc library's interface: see `include/coproc.h`.
//!
//! A process's own state lies behind one pointer, which a coproc replaces in its first step: the state that it finds is
//! a copy of its creator's, in which some thread may hold a lock.
//!
//! Each coproc is a *member* until it was joined, has ended detached, or `coproc_exit` has ended it. A join keeps its
//! member on the list while it waits, so that `coproc_exit` finds it there. `coproc_exit` closes the server and starts
//! a new *generation* in one step, under the lock `server`. A `coproc_create` that took the server before finds the
//! generation changed after its spawn, and ends its coproc itself. So no coproc outlives the `coproc_exit` that it was
//! created before, and none is forgotten.
//!
//! | server | entered by | `coproc_create` | `coproc_init` |
//! | --- | --- | --- | --- |
//! | no state | | `EINVAL` | makes memory and server |
//! | `Started` | `coproc_init` | spawns | `EBUSY` |
//! | `Unstarted` | the start of a coproc | starts the server, spawns | `EBUSY` |
//! | `Closed` | `coproc_exit` | `EINVAL` | makes a server over the same memory |
//!
//! *Locks:* `server`, then `running`; neither is held in a spawn or a wait.
#![allow(unsafe_code)]

mod attributes;

use crate::region::TABLES;
use attributes::{CoprocAttributes, CoprocExtras, attributes_of, c_name_of, flag, with_extras};
use core::alloc::Layout;
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use core::time::Duration;
use latchwork::coproc::{
    Attributes, Coproc, Coprocs, Exit, JoinError, Outcome, Signal, SpawnError, StartError,
    descriptors,
};
use latchwork::foreign::{ProcessMark, Undisturbed, cancellable};
use latchwork::mutex::Mutex;
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::time::Deadline;
use libc::{EAGAIN, EBADF, EBUSY, ECHILD, EINVAL, EIO, ENOMEM, EPERM, pid_t, size_t};
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::Arc;

/// How long `coproc_exit` waits for coprocs to end by themselves.
const GRACE: Duration = Duration::from_secs(1);
/// The length of one wait in a join, which is repeated.
const LONG: Duration = Duration::from_secs(1 << 20);

type Start = unsafe extern "C" fn(*mut c_void) -> c_int;

/// A process's state about its coprocs.
struct State {
    /// The process that owns this state: the child of a fork has a copy. (The server, or the creator's, has one: so there is
    /// a mark.)
    made_by: Option<ProcessMark>,
    region: Region,
    server: Mutex<Server>,
    running: Mutex<Running>,
    /// The descriptors that this process was passed at its start.
    passed: Vec<RawFd>,
}

enum Server {
    /// In a coproc that has not created one yet.
    Unstarted,
    Started(Coprocs),
    /// After `coproc_exit`.
    Closed,
}

#[derive(Default)]
struct Running {
    /// How many times `coproc_exit` was called.
    generation: u64,
    members: Vec<Member>,
}

struct Member {
    coproc: Arc<Coproc>,
    /// Whether it is detached, or a thread is joining it.
    is_taken: bool,
}

impl Running {
    /// Removes the detached members that have ended: the library reaps them later.
    fn prune(&mut self) {
        // A coproc that has left the region may go on as another program, so its process is checked by a join.
        let ended = |coproc: &Coproc| {
            !coproc.is_alive()
                && !matches!(
                    coproc.join_until(Deadline::from_nanoseconds(0)),
                    Err(JoinError::TimedOut)
                )
        };
        self.members
            .retain(|member| !member.is_taken || !ended(&member.coproc));
    }

    fn remove(&mut self, coproc: &Arc<Coproc>) {
        self.members
            .retain(|member| !Arc::ptr_eq(&member.coproc, coproc));
    }
}

impl State {
    fn is_own(&self) -> bool {
        self.made_by.is_some_and(ProcessMark::is_own)
    }
}

static STATE: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());
/// Whether a thread is making the state, or has made it.
static BEGUN: AtomicBool = AtomicBool::new(false);

thread_local! {
    static FAILED_ATTRIBUTE: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

fn state() -> Option<&'static State> {
    // Acquire: pairs with the Release of `install`.
    // SAFETY: null, or leaked by `install`.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

fn install(region: Region, server: Server, passed: Vec<RawFd>) {
    let state = Box::leak(Box::new(State {
        made_by: ProcessMark::own().ok(),
        region,
        server: Mutex::new(server),
        running: Mutex::default(),
        passed,
    }));
    // Release: pairs with the Acquire of `state`. In a coproc the previous pointer was its creator's.
    STATE.store(state, Ordering::Release);
}

/// Sets `errno` and returns -1.
fn fail(error: c_int) -> c_int {
    // SAFETY: libc returns a valid pointer to the calling thread's `errno`.
    unsafe { *libc::__errno_location() = error };
    -1
}

fn answer(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(fail)
}

#[unsafe(no_mangle)]
extern "C" fn coproc_init(shm_max_size: size_t) -> c_int {
    let _undisturbed = Undisturbed::begin();
    if state().is_some_and(|state| !state.is_own()) {
        return fail(EPERM);
    }
    // Relaxed, here and below: a second caller reads nothing that the first one has written.
    if BEGUN.swap(true, Ordering::Relaxed) {
        return fail(EBUSY);
    }
    let initialised = init(shm_max_size as u64);
    if initialised.is_err() {
        BEGUN.store(false, Ordering::Relaxed);
    }
    answer(initialised.map(|()| 0))
}

/// For each task one span that it has not filled.
const UNFILLED: u64 = 256 * (64 << 10);

fn init(bytes: u64) -> Result<(), c_int> {
    // A block just larger than a power of two takes up to twice its size.
    let max = bytes
        .checked_mul(2)
        .and_then(|twice| twice.checked_add(TABLES + UNFILLED))
        .and_then(|max| max.checked_next_multiple_of(1 << 20))
        .ok_or(ENOMEM)?;
    if let Some(state) = state() {
        // Pointers into the memory must stay valid, so it is not replaced.
        if max > state.region.max_bytes() {
            return Err(ENOMEM);
        }
        // SAFETY: a program in C is responsible for which copied objects its coprocs use.
        let server = unsafe { Coprocs::new(&state.region) }.map_err(|error| of_start(&error))?;
        *state.server.lock() = Server::Started(server);
        return Ok(());
    }
    let options = RegionOptions::new().max_bytes(max).label("coproc");
    let region = options.create_anonymous();
    let region = region.map_err(|_| ENOMEM)?;
    // SAFETY: a program in C is responsible for which copied objects its coprocs use.
    let server = unsafe { Coprocs::new(&region) }.map_err(|error| of_start(&error))?;
    install(region, Server::Started(server), Vec::new());
    Ok(())
}

fn of_start(error: &StartError) -> c_int {
    match error {
        StartError::Unproven { .. } => EAGAIN,
        StartError::Holding => EBUSY,
        StartError::OtherProcess => EPERM,
        _ => ENOMEM,
    }
}

/// The routine and argument of a coproc, passed by value, so that nothing has to be freed.
#[derive(Clone, Copy)]
#[repr(C)]
struct Routine {
    start: usize,
    argument: usize,
}
// SAFETY: two numbers. The address of a function means the same in a copy of this process.
unsafe impl Shareable for Routine {
    const FINGERPRINT: u64 = 0;
}

unsafe extern "C" {
    /// In `once.c`: calls a program's function from a C frame, beyond which `pthread_exit` does not unwind.
    fn latchwork_run(start: Start, argument: *mut c_void) -> c_int;
}

fn run(region: &Region, routine: Routine) -> i32 {
    // They are the program's to close.
    let passed = descriptors();
    let passed = passed.into_iter().map(IntoRawFd::into_raw_fd).collect();
    install(region.clone(), Server::Unstarted, passed);
    let argument = ptr::with_exposed_provenance_mut(routine.argument);
    // The thread whose copy this is had disabled it, or its creator had.
    cancellable(|| {
        // SAFETY: the caller gave `coproc_create` a function of this type, which is at this address in the copy, too.
        unsafe {
            let start = core::mem::transmute::<usize, Start>(routine.start);
            latchwork_run(start, argument)
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn coproc_create(
    name: *const c_char,
    attributes: *const CoprocAttributes,
    flags: c_int,
    start: Option<Start>,
    argument: *mut c_void,
) -> pid_t {
    // SAFETY: this function's contract.
    unsafe { coproc_create_with(name, attributes, ptr::null(), flags, start, argument) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn coproc_create_with(
    name: *const c_char,
    attributes: *const CoprocAttributes,
    extras: *const CoprocExtras,
    flags: c_int,
    start: Option<Start>,
    argument: *mut c_void,
) -> pid_t {
    let _undisturbed = Undisturbed::begin();
    FAILED_ATTRIBUTE.set(None);
    // SAFETY: the caller passes a string, attributes and extras, or null.
    let (name, attributes, extras) = unsafe {
        let name = (!name.is_null()).then(|| CStr::from_ptr(name));
        (name, attributes.as_ref(), extras.as_ref())
    };
    let created = attributes_of(name, attributes, flags).and_then(|mut attributes| {
        let routine = Routine {
            start: start.ok_or(EINVAL)? as usize,
            argument: argument.expose_provenance(),
        };
        if let Some(extras) = extras {
            // SAFETY: this function's contract.
            attributes =
                unsafe { with_extras(attributes, extras) }.map_err(|(attribute, error)| {
                    FAILED_ATTRIBUTE.set(Some(attribute));
                    error
                })?;
        }
        create(routine, &attributes, flags & flag::DETACHED != 0)
    });
    answer(created)
}

#[unsafe(no_mangle)]
extern "C" fn coproc_descriptor(place: size_t) -> c_int {
    let passed = state().and_then(|state| state.passed.get(place));
    answer(passed.copied().ok_or(EBADF))
}

fn create(routine: Routine, attributes: &Attributes, detached: bool) -> Result<pid_t, c_int> {
    let state = state().ok_or(EINVAL)?;
    // Before the lock, which another thread of the parent may have held at the fork.
    if !state.is_own() {
        return Err(EPERM);
    }
    let (runtime, generation) = {
        let mut server = state.server.lock();
        let runtime = match &*server {
            Server::Started(runtime) => runtime.clone(),
            Server::Closed => return Err(EINVAL),
            Server::Unstarted => {
                // SAFETY: a program in C is responsible for which copied objects its coprocs use.
                let runtime =
                    unsafe { Coprocs::new(&state.region) }.map_err(|error| of_start(&error))?;
                *server = Server::Started(runtime.clone());
                runtime
            }
        };
        (runtime, state.running.lock().generation)
    };
    // No lock is held here: a snapshot would have a copy of it, which nothing releases.
    let coproc = runtime
        .spawn_value(run, routine, attributes)
        .map_err(|error| of_spawn(&error))?;
    let pid = coproc.pid();
    // The library's own flag is not set, since `coproc_exit` joins detached coprocs, too.
    let member = Member {
        coproc: Arc::new(coproc),
        is_taken: detached,
    };
    let mut running = state.running.lock();
    running.prune();
    if running.generation == generation {
        running.members.push(member);
        return Ok(pid as pid_t);
    }
    drop(running);
    end(&[member]);
    Err(EINVAL)
}

fn of_spawn(error: &SpawnError) -> c_int {
    match error {
        SpawnError::Attribute { attribute, error } => {
            FAILED_ATTRIBUTE.set(c_name_of(attribute));
            error.raw_os_error()
        }
        SpawnError::Holding => EBUSY,
        SpawnError::OtherProcess => EPERM,
        SpawnError::Server(error) => of_start(error),
        SpawnError::Region(_) => ENOMEM,
        _ => EAGAIN,
    }
}

#[unsafe(no_mangle)]
extern "C" fn coproc_failed_attribute() -> *const c_char {
    FAILED_ATTRIBUTE.get().map_or(ptr::null(), CStr::as_ptr)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn coproc_join(pid: pid_t, status: *mut c_int) -> c_int {
    let _undisturbed = Undisturbed::begin();
    answer(join(pid).map(|how| {
        // SAFETY: the caller's variable, or null.
        if let Some(status) = unsafe { status.as_mut() } {
            *status = how;
        }
        0
    }))
}

fn join(pid: pid_t) -> Result<c_int, c_int> {
    let state = state().ok_or(EINVAL)?;
    if !state.is_own() {
        return Err(ECHILD);
    }
    let coproc = {
        let mut running = state.running.lock();
        let is_it = |member: &&mut Member| {
            !member.is_taken && i64::from(member.coproc.pid()) == i64::from(pid)
        };
        let member = running.members.iter_mut().find(is_it).ok_or(ECHILD)?;
        member.is_taken = true;
        Arc::clone(&member.coproc)
    };
    let joined = wait_for(&coproc);
    let mut running = state.running.lock();
    if let Err(JoinError::System { .. }) = joined {
        // It may run on: another call can join it.
        let mut members = running.members.iter_mut();
        if let Some(member) = members.find(|member| Arc::ptr_eq(&member.coproc, &coproc)) {
            member.is_taken = false;
        }
        return Err(EIO);
    }
    running.remove(&coproc);
    running.prune();
    drop(running);
    match joined {
        Ok(exit) => Ok(status_of(&exit)),
        Err(_) => Err(ECHILD),
    }
}

/// As [`Coproc::join`], for a coproc that other threads may access, too.
fn wait_for(coproc: &Coproc) -> Result<Exit, JoinError> {
    loop {
        match coproc.join_until(Deadline::after(LONG)) {
            Err(JoinError::TimedOut) => {}
            joined => return joined,
        }
    }
}

/// The status in `waitpid`'s encoding.
fn status_of(exit: &Exit) -> c_int {
    let exited = |code: c_int| (code & 0xff) << 8;
    match &exit.outcome {
        Outcome::Returned(code) | Outcome::Exited(code) => exited(*code),
        Outcome::Panicked(_) => exited(101),
        Outcome::Signalled { signal, core } => *signal & 0x7f | if *core { 0x80 } else { 0 },
        // There is no other known outcome.
        _ => libc::SIGKILL,
    }
}

#[unsafe(no_mangle)]
extern "C" fn coproc_exit() -> c_int {
    let _undisturbed = Undisturbed::begin();
    let Some(state) = state() else {
        return fail(EINVAL);
    };
    if !state.is_own() {
        return fail(EPERM);
    }
    let (closed, members) = {
        let mut server = state.server.lock();
        if matches!(*server, Server::Closed) {
            return fail(EINVAL);
        }
        let mut running = state.running.lock();
        running.generation += 1;
        let members = core::mem::take(&mut running.members);
        (core::mem::replace(&mut *server, Server::Closed), members)
    };
    end(&members);
    drop(members);
    drop(closed);
    // Relaxed: as in `coproc_init`.
    BEGUN.store(false, Ordering::Relaxed);
    0
}

/// Sends SIGTERM to the members, waits for a moment, and kills those that still run.
fn end(members: &[Member]) {
    for member in members {
        // An error is ignored: it may have ended meanwhile.
        let _ = member.coproc.kill(Signal::TERM);
    }
    let end = Deadline::after(GRACE);
    for Member { coproc, .. } in members {
        if matches!(coproc.join_until(end), Err(JoinError::TimedOut)) {
            let _ = coproc.kill(Signal::KILL);
            let _ = wait_for(coproc);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn coproc_alloc(size: size_t) -> *mut c_void {
    let Some(state) = state() else {
        fail(EINVAL);
        return ptr::null_mut();
    };
    let allocated = Layout::from_size_align(size.max(1), 16)
        .ok()
        .and_then(|layout| state.region.allocate(layout).ok());
    match allocated {
        Some(block) => {
            // SAFETY: no other task knows the block yet. For callers in C a block is shared from the start.
            unsafe { state.region.keep(block) };
            block.as_ptr().cast()
        }
        None => {
            fail(ENOMEM);
            ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn coproc_free(block: *mut c_void) {
    if let (Some(state), Some(block)) = (state(), NonNull::new(block.cast())) {
        // SAFETY: by the caller's contract nothing uses it. If it cannot be freed, it leaks.
        let _ = unsafe { state.region.deallocate(block) };
    }
}
