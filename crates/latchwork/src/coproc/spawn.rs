//! The runtime, and the ways to start a coproc.
#![allow(unsafe_code)]

use super::attributes::{Attribute, Attributes, Settings};
use super::child::{self, Seed};
use super::error::{SpawnError, StartError};
use super::join::{Coproc, Origin};
use super::pool::Pool;
use super::record::{self, Call, Chain, Ref, Request, VALUE_BYTES};
use super::zygote::{EXISTENCE_CHECK, Zygote};
use super::{clone, graveyard};
use crate::atomic::Ordering;
use crate::mutex::Mutex;
use crate::region::{Region, Shareable};
use crate::sys::process::{self, Sharing, Stack};
use crate::sys::sockets::MAX_DESCRIPTORS;
use crate::sys::{futex, proc_file};
use crate::task;
use crate::time::Deadline;
use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::time::Duration;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// How many times a spawn makes a new zygote, if the last one died during the spawn.
const ZYGOTES: usize = 3;
/// How long a snapshot may take to start. It takes about a millisecond, and longer only if it hangs on a lock of
/// another thread, or if the machine is very busy.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often [`Coprocs::fill`] counts the ready coprocs.
const FILL_CHECK: Duration = Duration::from_millis(1);

/// The options of a runtime.
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until a runtime is started with them"]
pub struct Options {
    pool: usize,
}

impl Options {
    /// No pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many coprocs to hold ready: processes that exist, have joined the region (each takes a slot of its task
    /// table) and sleep. A spawn whose only attributes are name, orphans and detached takes one of them: with the join
    /// some 30 µs, about what a thread takes. Its process exits 10 ms after its function has ended. More coprocs are
    /// made in the background when half of them are gone; when none is left, spawns are clean ones.
    pub fn pool(mut self, coprocs: usize) -> Self {
        self.pool = coprocs;
        self
    }
}

/// The runtime that makes coprocs for one region. An example: the [module](super).
///
/// Clones refer to the same runtime. When the last one is dropped, the server process and the ready coprocs end;
/// coprocs that run go on, and their handles stay valid. A coproc may make a runtime of its own. In the child of a fork
/// the parent's runtime fails with [`SpawnError::OtherProcess`], and the child makes its own.
#[derive(Clone)]
pub struct Coprocs {
    shared: Arc<Shared>,
}

struct Shared {
    region: Region,
    creator: u32,
    arguments: Range<usize>,
    /// Announces to the ready coprocs when to end. A zygote reports in it that it is ready.
    control: Ref,
    /// All other records.
    chain: Arc<Chain>,
    zygote: Mutex<Option<Arc<Zygote>>>,
    pool: Mutex<Pool>,
    has_pool: bool,
    /// Whether the machine had several processors when the runtime started.
    several_processors: bool,
}

impl Coprocs {
    /// Starts the runtime, without a pool.
    ///
    /// It makes a copy of this process, as it is now, from which all clean coprocs will be copied: start it early. If
    /// the process has other threads already, the copy first proves that none of them holds a lock of the allocator,
    /// the loader or std (standard error and panics). If one does, another copy is made, and after some attempts
    /// [`StartError::Unproven`] is returned. Standard output is locked for that moment: a thread that never releases it
    /// blocks the start, as it blocks `println!`.
    ///
    /// Locks of other libraries are not checked, nor are two of std:
    /// - that of *standard input*, which a thread holds while it waits for a line. In coprocs it is then held for ever:
    ///   they must read descriptor 0 by other means.
    /// - that of *standard output, if the calling thread holds it* ([`std::io::StdoutLock`]). In a coproc its first
    ///   thread then holds it for ever, and other threads that print hang: drop it before.
    ///
    /// # Safety
    /// What this process owns in a region exists twice in copies: a container, a box or a guard that a static, a
    /// thread-local or a leaked reference holds is in the memory of every coproc, too. Coprocs must not use it, nor any
    /// exclusive reference into shared memory that existed before the copy, nor an owned descriptor (its number is
    /// closed in them, or names another file). To drop one is a use: the destructors of thread-locals run in a coproc
    /// that calls `exit`. This holds for all that exists now and, if the server process dies, for all that exists when
    /// a later spawn makes another one.
    ///
    /// So start before the region is used, and keep owned objects out of statics. The call fails if the calling thread
    /// holds robust locks or messages; it cannot check the rest.
    ///
    /// # Errors
    /// See [`StartError`].
    pub unsafe fn new(region: &Region) -> Result<Self, StartError> {
        // SAFETY: this function has the same contract as `with_options`, and the caller keeps it.
        unsafe { Self::with_options(region, &Options::new()) }
    }

    /// Starts the runtime. See [`Self::new`].
    ///
    /// # Safety
    /// As for [`Self::new`].
    ///
    /// # Errors
    /// See [`StartError`].
    pub unsafe fn with_options(region: &Region, options: &Options) -> Result<Self, StartError> {
        let creator = task::process_id();
        let several_processors =
            std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        let control = Ref::new(region, blank(creator, false))?;
        let zygote = Zygote::start(&control).inspect_err(|_| {
            // SAFETY: the zygote, if there ever was one, is gone.
            unsafe { control.free() };
        })?;
        let coprocs = Self {
            shared: Arc::new(Shared {
                chain: Chain::new(&control),
                region: region.clone(),
                creator,
                arguments: proc_file::stat().map_or(0..0, |stat| stat.arguments),
                control,
                zygote: Mutex::new(Some(Arc::clone(&zygote))),
                pool: Mutex::new(Pool::new(options.pool, several_processors)),
                has_pool: options.pool > 0,
                several_processors,
            }),
        };
        coprocs.refill(&zygote);
        Ok(coprocs)
    }

    /// The region that the coprocs of this runtime share.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.shared.region
    }

    /// Fills the pool, and waits until all of it is ready or `deadline` has passed. Use it before a burst of spawns
    /// that must not wait for clean starts.
    ///
    /// Returns how many coprocs are ready. That is fewer than the pool's size if the time, the region's memory, its
    /// task table or the system's limits did not suffice.
    ///
    /// # Errors
    /// See [`StartError`]; only if the server process has died.
    pub fn fill(&self, deadline: Deadline) -> Result<usize, StartError> {
        let mut asked = None;
        loop {
            let zygote = self.zygote()?;
            if self.shared.region.inner().life_word(zygote.task).is_none() {
                self.replace(&zygote);
                continue;
            }
            let mut pool = self.shared.pool.lock();
            let (mut ready, mut coming) = pool.count();
            if asked != Some(zygote.pid) {
                asked = Some(zygote.pid);
                self.top_up(&mut pool, &zygote);
                (ready, coming) = pool.count();
            }
            drop(pool);
            if coming == 0 || deadline.has_passed() {
                return Ok(ready);
            }
            // This does not wait on a futex word of a member: another thread may take that member, and its record be
            // freed.
            std::thread::sleep(FILL_CHECK.min(deadline.remaining()));
        }
    }

    /// Starts a coproc that runs `entry` on a named object of the region, as returned by [`Region::object`] and
    /// [`Region::find`]. Other references are refused, since their object might end before the coproc does.
    ///
    /// Returns once all attributes are set (or, from a pool, at once). May be called by several
    /// threads at a time.
    ///
    /// # Errors
    /// [`SpawnError::Attribute`] names the attribute that could not be set; see [`SpawnError`].
    pub fn spawn<A: Shareable>(
        &self,
        entry: fn(&Region, &A) -> i32,
        argument: &A,
        attributes: &Attributes,
    ) -> Result<Coproc, SpawnError> {
        if !self.shared.region.is_object(argument) {
            return Err(SpawnError::Argument);
        }
        refuse_copies_of_guards(attributes)?;
        // SAFETY: `argument` is a whole named object, which only unsafe code frees.
        unsafe { self.spawn_unchecked(entry, argument, attributes) }
    }

    /// Starts a coproc that runs `entry` on a copy of plain data, of at most 256 bytes and an
    /// alignment of at most 16: an index, a few numbers.
    ///
    /// # Errors
    /// As for [`Self::spawn`].
    pub fn spawn_value<A: Shareable + Copy>(
        &self,
        entry: fn(&Region, A) -> i32,
        argument: A,
        attributes: &Attributes,
    ) -> Result<Coproc, SpawnError> {
        const {
            assert!(
                size_of::<A>() <= VALUE_BYTES && align_of::<A>() <= 16,
                "pass larger arguments in a named object"
            )
        };
        unsafe fn run<A: Copy>(region: &Region, entry: usize, argument: *const u8) -> i32 {
            // SAFETY: `spawn_value` stored a function of this type, and a value of this one.
            unsafe {
                let entry = core::mem::transmute::<usize, fn(&Region, A) -> i32>(entry);
                entry(region, argument.cast::<A>().read())
            }
        }
        refuse_copies_of_guards(attributes)?;
        let mut request = blank(self.shared.creator, false);
        request.call = Some(Call {
            run: run::<A>,
            entry: entry as usize,
            argument: 0,
        });
        // SAFETY: the value's storage is large and aligned enough for `A`, as asserted above.
        unsafe { request.value.as_mut_ptr().cast::<A>().write(argument) };
        self.start(request, attributes)
    }

    /// As [`Self::spawn`], on anything.
    ///
    /// # Safety
    /// The coproc can use the argument, at this address, for as long as it runs: it lies in the
    /// region and no task frees it or changes it meanwhile; or, for a snapshot start, it is memory
    /// of this process, of which the coproc has a copy.
    ///
    /// # Errors
    /// As for [`Self::spawn`].
    pub unsafe fn spawn_unchecked<A>(
        &self,
        entry: fn(&Region, &A) -> i32,
        argument: &A,
        attributes: &Attributes,
    ) -> Result<Coproc, SpawnError> {
        unsafe fn run<A>(region: &Region, entry: usize, argument: *const u8) -> i32 {
            // SAFETY: `spawn_unchecked` stored a function of this type, and an address of this one.
            unsafe {
                let entry = core::mem::transmute::<usize, fn(&Region, &A) -> i32>(entry);
                entry(region, &*argument.cast::<A>())
            }
        }
        let argument = core::ptr::from_ref(argument).expose_provenance();
        let call = Call {
            run: run::<A>,
            entry: entry as usize,
            argument,
        };
        self.start(
            Request {
                call: Some(call),
                ..blank(self.shared.creator, false)
            },
            attributes,
        )
    }

    /// Starts a coproc that runs a closure on a copy of this process's memory as it is now (see
    /// [`Attributes::snapshot`], which this implies).
    ///
    /// # Safety
    /// After the call, everything that the closure reaches exists twice, except *shared* memory, which exists once: the
    /// coproc uses no guard, no owner and no exclusive reference that leads into a region or another shared mapping.
    /// The closure's captures are dropped in both processes; so, with [`Attributes::share_files`], it captures no owned
    /// descriptor.
    ///
    /// In a process with threads, locks that other threads hold at this moment are held for ever in the coproc, the
    /// allocator's and that of standard error included; the coproc must then use only async-signal-safe functions.
    /// (Breaking this rule is not unsound, but the coproc may hang. The start itself takes none of these locks, unless
    /// the coproc is to [die with its parent](Attributes::die_with_parent); if the start hangs nevertheless, the coproc
    /// is killed after ten seconds: [`SpawnError::Stuck`].)
    ///
    /// # Errors
    /// As for [`Self::spawn`].
    pub unsafe fn snapshot<F: FnOnce() -> i32>(
        &self,
        body: F,
        attributes: &Attributes,
    ) -> Result<Coproc, SpawnError> {
        unsafe fn run<F: FnOnce() -> i32>(_: &Region, _: usize, argument: *const u8) -> i32 {
            // SAFETY: `snapshot` stored the address of a closure of this type; this is the copy of it in the coproc,
            // read once.
            unsafe { argument.cast::<F>().read()() }
        }
        let body = ManuallyDrop::new(body);
        let argument = core::ptr::from_ref(&body).expose_provenance();
        let call = Call {
            run: run::<F>,
            entry: 0,
            argument,
        };
        let started = self.start(
            Request {
                call: Some(call),
                ..blank(self.shared.creator, false)
            },
            // SAFETY: the contract of `Attributes::snapshot` is part of this function's, which the caller keeps.
            &unsafe { attributes.clone().snapshot() },
        );
        drop(ManuallyDrop::into_inner(body));
        started
    }

    fn start(&self, mut request: Request, attributes: &Attributes) -> Result<Coproc, SpawnError> {
        if self.shared.creator != task::process_id() {
            return Err(SpawnError::OtherProcess);
        }
        request.settings = attributes.settings()?;
        let pooled = match attributes.sharing() {
            None if attributes.fit_for_pool() => self.take_ready(&mut request),
            _ => None,
        };
        let origin = match &pooled {
            None => Origin::Made,
            Some(_) if self.shared.several_processors => Origin::PoolNearby,
            Some(_) => Origin::Pool,
        };
        let record = match (pooled, attributes.sharing()) {
            (Some(record), _) => record,
            (None, Some(sharing)) => self.start_snapshot(request, attributes, sharing)?,
            (None, None) => self.start_clean(request, attributes)?,
        };
        graveyard::tend();
        Ok(Coproc::new(
            record,
            attributes.display_name(),
            attributes.detached,
            origin,
        ))
    }

    /// Assigns the request to a ready coproc of the pool, if there is one.
    fn take_ready(&self, request: &mut Request) -> Option<Ref> {
        if !self.shared.has_pool {
            return None;
        }
        request.pooled = true;
        let taken = self.shared.pool.lock().take(request);
        request.pooled = taken.is_some();
        if taken.is_some()
            && let Some(zygote) = &*self.shared.zygote.lock()
        {
            self.refill(zygote);
        }
        taken
    }

    fn start_clean(
        &self,
        mut request: Request,
        attributes: &Attributes,
    ) -> Result<Ref, SpawnError> {
        let descriptors = attributes.open()?;
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.borrow();
        request.descriptor_count = descriptors.len();
        for _ in 0..ZYGOTES {
            let zygote = self.zygote()?;
            let record = self.shared.chain.add(request.clone())?;
            let asked = zygote.request(core::slice::from_ref(&record), &descriptors);
            let started = match asked {
                Ok(()) => handshake(&record, Some(&zygote), None),
                Err(Errno::PIPE | Errno::CONNRESET) => Err(Unstarted::Unmade),
                Err(error) => Err(Unstarted::Refused(Attribute::Process.failed(error))),
            };
            match started {
                Ok(()) => {
                    if self.shared.has_pool {
                        self.refill(&zygote);
                    }
                    return Ok(record);
                }
                Err(Unstarted::Unmade) => {
                    // SAFETY: no process has received the record's address, and the dead zygote will not send it.
                    unsafe { record.free() };
                    self.replace(&zygote);
                }
                Err(Unstarted::Refused(error)) => {
                    graveyard::give_up(record, true);
                    return Err(error);
                }
            }
        }
        Err(SpawnError::Server(StartError::Died))
    }

    fn start_snapshot(
        &self,
        mut request: Request,
        attributes: &Attributes,
        sharing: Sharing,
    ) -> Result<Ref, SpawnError> {
        let descriptors = attributes.open()?;
        for (place, descriptor) in request.descriptors.iter_mut().zip(descriptors.borrow()) {
            *place = descriptor.as_raw_fd();
            request.descriptor_count += 1;
        }
        let stack = Stack::map(request.settings.stack_bytes)
            .map_err(|error| Attribute::StackSize.failed(error))?;
        let record = self.shared.chain.add(request)?;
        let seed = Seed {
            record: &record,
            control: None,
            arguments: self.shared.arguments.clone(),
            close: [None, None],
            snapshot: true,
        };
        // The coproc would sweep otherwise, and allocate, if it found dead tasks.
        let _ = self.shared.region.inner().sweep();
        // SAFETY: `begin` never returns. The contract of `snapshot` covers what it may use in a process with threads.
        let made =
            unsafe { clone::clone_caller(&stack, sharing, child::begin, &seed, &record.pid) };
        let started = match made {
            Ok(_) => handshake(&record, None, Some(Deadline::after(PATIENCE))),
            Err(error) => Err(Unstarted::Refused(Attribute::Process.failed(error))),
        };
        match started {
            Ok(()) => Ok(record),
            Err(Unstarted::Unmade) => Err(SpawnError::Died),
            Err(Unstarted::Refused(error)) => {
                graveyard::give_up(record, true);
                Err(error)
            }
        }
    }

    fn zygote(&self) -> Result<Arc<Zygote>, StartError> {
        if let Some(zygote) = &*self.shared.zygote.lock() {
            return Ok(Arc::clone(zygote));
        }
        // The start of a zygote locks standard output. Another thread may hold that lock and wait for the lock below,
        // so this thread takes standard output first.
        let _output = std::io::stdout().lock();
        let mut zygote = self.shared.zygote.lock();
        if let Some(zygote) = &*zygote {
            return Ok(Arc::clone(zygote));
        }
        Ok(Arc::clone(
            zygote.insert(Zygote::start(&self.shared.control)?),
        ))
    }

    /// Forgets a zygote that has died.
    fn replace(&self, dead: &Arc<Zygote>) {
        let mut zygote = self.shared.zygote.lock();
        if zygote
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, dead))
        {
            *zygote = None;
            dead.end();
            self.shared.pool.lock().forget_unmade();
            let _ = self.shared.region.inner().sweep();
        }
    }

    /// Refills the pool if half of it or more is missing.
    fn refill(&self, zygote: &Zygote) {
        let mut pool = self.shared.pool.lock();
        if pool.is_low() {
            self.top_up(&mut pool, zygote);
        }
    }

    fn top_up(&self, pool: &mut Pool, zygote: &Zygote) {
        let shared = &*self.shared;
        pool.refill(zygote, || blank(shared.creator, true), &shared.chain);
    }
}

/// Refuses a snapshot while the thread holds locks or messages: a guard in a thread-local would exist twice after it.
fn refuse_copies_of_guards(attributes: &Attributes) -> Result<(), SpawnError> {
    if attributes.sharing().is_some() && child::holds_something() {
        return Err(SpawnError::Holding);
    }
    Ok(())
}

/// A request without a call.
pub(super) fn blank(creator: u32, pooled: bool) -> Request {
    Request {
        call: None,
        settings: Settings::named("ready"),
        creator,
        pooled,
        descriptors: [-1; MAX_DESCRIPTORS],
        descriptor_count: 0,
        value: [0; VALUE_BYTES / 16],
    }
}

/// Why a coproc has not started.
enum Unstarted {
    /// The zygote died before it made the process.
    Unmade,
    Refused(SpawnError),
}

/// Waits until a coproc runs or is refused; kills it if that takes longer than `patience`.
fn handshake(
    record: &Ref,
    zygote: Option<&Zygote>,
    patience: Option<Deadline>,
) -> Result<(), Unstarted> {
    let inner = record.region.inner();
    loop {
        let zygote_life = zygote.map(|zygote| inner.life_word(zygote.task));
        let made = record.pid.load(Ordering::Acquire);
        match record.state() {
            record::STARTED | record::DONE => return Ok(()),
            record::FAILED => {
                // Relaxed: written before `FAILED`, which was read with Acquire.
                let (code, detail) = (
                    record.code.load(Ordering::Relaxed),
                    record.detail.load(Ordering::Relaxed),
                );
                return Err(Unstarted::Refused(Attribute::error(code, detail)));
            }
            _ => {}
        }
        if made == 0 && matches!(zygote_life, Some(None)) {
            return Err(Unstarted::Unmade);
        }
        let state = futex::shared_word(&record.state, record::REQUESTED);
        let check = Some(Deadline::after(EXISTENCE_CHECK));
        let ended = match zygote_life.flatten() {
            Some((word, value)) => {
                futex::wait_many(&[state, futex::shared_word(word, value)], check)
            }
            None => futex::wait_many(&[state], check),
        };
        if ended != futex::Wait::TimedOut || made == 0 || record.state() != record::REQUESTED {
            continue;
        }
        if record.has_ended() && record.state() == record::REQUESTED {
            return Err(Unstarted::Refused(SpawnError::Died));
        }
        if patience.is_some_and(Deadline::has_passed) {
            let _ = process::kill_child(made);
            return Err(Unstarted::Refused(SpawnError::Stuck));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // In the child of a fork, all of this belongs to the parent.
        if self.creator != task::process_id() {
            return;
        }
        self.control.announce(record::CLOSED);
        if let Some(zygote) = self.zygote.get_mut().take()
            && !zygote.end()
        {
            // The zygote runs until it detects that this process has ended, and may use the records until then.
            return;
        }
        self.pool.get_mut().close();
        graveyard::tend_all();
        // Removes the zygote's task from the region.
        let _ = self.region.inner().sweep();
        self.chain.dissolve();
        // SAFETY: the zygote and the ready coprocs, the only other readers, are gone.
        unsafe { self.control.free() };
    }
}

impl fmt::Debug for Coprocs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Coprocs")
            .field("region", &self.shared.region)
            .finish_non_exhaustive()
    }
}
