//! The handle on a runtime: starting it, and starting coprocs.
#![allow(unsafe_code)]

use super::record::{Call, Run, VALUE_BYTES};
use super::{Attributes, Chain, Coproc, Ref, Request, SpawnError, StartError, Zygote};
use super::{child, pool::Pool, runtime::Runtime, zygote::system};
use crate::mutex::Mutex;
use crate::region::{Region, Shareable};
use crate::sys::process_mark::ProcessMark;
use crate::sys::{proc_file, thread};
use crate::time::Deadline;
use core::fmt;
use core::mem::ManuallyDrop;
use core::time::Duration;
use std::sync::Arc;

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

/// How often [`Coprocs::fill`] counts the ready coprocs.
const FILL_CHECK: Duration = Duration::from_millis(1);

/// The runtime that makes coprocs for one region. An example: the [module](super).
///
/// Clones refer to the same runtime. When the last one is dropped, the server process and the ready coprocs end (one that was
/// stopped is killed after a second); coprocs that run go on, and their handles stay valid. A coproc may make a runtime of its own. In the child of a fork
/// the parent's runtime fails with [`SpawnError::OtherProcess`] or [`StartError::OtherProcess`], and the child makes its own.
#[derive(Clone)]
pub struct Coprocs {
    runtime: Arc<Runtime>,
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
        let made_by = ProcessMark::own().map_err(system("mmap"))?;
        let creator = thread::process_id();
        let several_processors =
            std::thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
        let control = Ref::new(region, Request::without_call(creator, false))?;
        let zygote = Zygote::start(&control).inspect_err(|_| {
            // SAFETY: the zygote, if there ever was one, is gone.
            unsafe { control.free() };
        })?;
        let coprocs = Self {
            runtime: Arc::new(Runtime {
                chain: Chain::new(&control),
                region: region.clone(),
                made_by,
                creator,
                arguments: proc_file::stat().map_or(0..0, |stat| stat.arguments),
                control,
                zygote: Mutex::new(Some(Arc::clone(&zygote))),
                pool: Mutex::new(Pool::new(options.pool, several_processors)),
                has_pool: options.pool > 0,
                several_processors,
            }),
        };
        coprocs.runtime.refill(&zygote);
        Ok(coprocs)
    }

    /// The region that the coprocs of this runtime share.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.runtime.region
    }

    /// Fills the pool, and waits until all of it is ready or `deadline` has passed. Use it before a burst of spawns
    /// that must not wait for clean starts.
    ///
    /// Returns how many coprocs are ready. That is fewer than the pool's size if the time, the region's memory, its
    /// task table or the system's limits did not suffice.
    ///
    /// # Errors
    /// [`StartError::OtherProcess`]; others only if the server process has died.
    pub fn fill(&self, deadline: Deadline) -> Result<usize, StartError> {
        if !self.runtime.made_by.is_own() {
            return Err(StartError::OtherProcess);
        }
        let mut asked = None;
        loop {
            let zygote = self.runtime.zygote()?;
            if self.runtime.region.inner().life_word(zygote.task).is_none() {
                self.runtime.replace(&zygote);
                continue;
            }
            let mut pool = self.runtime.pool.lock();
            let mut counts = pool.count();
            if asked.replace(zygote.pid) != Some(zygote.pid) {
                self.runtime.top_up(&mut pool, &zygote);
                counts = pool.count();
            }
            drop(pool);
            let (ready, coming) = counts;
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
    /// Returns once all attributes are set (or, from a pool, at once). May be called by several threads at a time.
    ///
    /// # Errors
    /// [`SpawnError::Attribute`] names the attribute that could not be set; see [`SpawnError`].
    pub fn spawn<A: Shareable>(
        &self,
        entry: fn(&Region, &A) -> i32,
        argument: &A,
        attributes: &Attributes,
    ) -> Result<Coproc, SpawnError> {
        if !self.runtime.region.is_object(argument) {
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
        let mut request = self.request(run::<A>, entry as usize, 0);
        // SAFETY: the value's storage is large and aligned enough for `A`, as asserted above.
        unsafe { request.value.as_mut_ptr().cast::<A>().write(argument) };
        self.runtime.start(request, attributes)
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
        let request = self.request(run::<A>, entry as usize, argument);
        self.runtime.start(request, attributes)
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
        let request = self.request(run::<F>, 0, argument);
        // SAFETY: the contract of `Attributes::snapshot` is part of this function's, which the caller keeps.
        let attributes = unsafe { attributes.clone().snapshot() };
        let started = self.runtime.start(request, &attributes);
        drop(ManuallyDrop::into_inner(body));
        started
    }

    fn request(&self, run: Run, entry: usize, argument: usize) -> Request {
        let call = Call {
            run,
            entry,
            argument,
        };
        Request {
            call: Some(call),
            ..Request::without_call(self.runtime.creator, false)
        }
    }
}

/// Refuses a snapshot while the thread holds locks or messages: a guard in a thread-local would exist twice after it.
fn refuse_copies_of_guards(attributes: &Attributes) -> Result<(), SpawnError> {
    if attributes.sharing().is_some() && child::holds_locks_or_messages() {
        return Err(SpawnError::Holding);
    }
    Ok(())
}

impl fmt::Debug for Coprocs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Coprocs")
            .field("region", &self.runtime.region)
            .finish_non_exhaustive()
    }
}
