//! The runtime: its state, the ways in which a coproc starts, and its end.
//!
//! | a coproc that starts | is made by | in |
//! | --- | --- | --- |
//! | ready, from the pool | the zygote, earlier | `take_ready` |
//! | clean | the zygote, now | `start_clean` |
//! | as a snapshot | the calling thread | `start_snapshot` |
//!
//! A zygote that has died is replaced by the spawn that detects it.
#![allow(unsafe_code)]

use super::child::{self, CloneContext};
use super::zygote::EXISTENCE_CHECK;
use super::{Attribute, Attributes, Chain, Coproc, Ref, Request, SpawnError, StartError, Zygote};
use super::{clone, pool::Pool, reap, record};
use crate::atomic::Ordering::{Acquire, Relaxed};
use crate::mutex::Mutex;
use crate::region::Region;
use crate::sys::futex;
use crate::sys::process::{self, Sharing, Stack};
use crate::sys::process_mark::ProcessMark;
use crate::time::Deadline;
use core::ops::Range;
use core::time::Duration;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::Arc;

/// How many times a spawn makes a new zygote, if the last one died during the spawn.
const MAX_ZYGOTES: usize = 3;
/// How long a snapshot may take to start. It takes about a millisecond, and longer only if it hangs on a lock of
/// another thread, or if the machine is very busy.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
/// The state of a runtime, which all handles on it share.
pub(super) struct Runtime {
    pub(super) region: Region,
    pub(super) made_by: ProcessMark,
    /// The ID of that process, for the coprocs.
    pub(super) creator: u32,
    pub(super) arguments: Range<usize>,
    /// Announces to the zygote when to end. The zygote reports in it that it is ready.
    pub(super) control: Ref,
    /// All other records.
    pub(super) chain: Arc<Chain>,
    pub(super) zygote: Mutex<Option<Arc<Zygote>>>,
    pub(super) pool: Mutex<Pool>,
    pub(super) has_pool: bool,
    /// Whether the machine had several processors when the runtime started.
    pub(super) several_processors: bool,
}

impl Runtime {
    pub(super) fn start(
        &self,
        mut request: Request,
        attributes: &Attributes,
    ) -> Result<Coproc, SpawnError> {
        if !self.made_by.is_own() {
            return Err(SpawnError::OtherProcess);
        }
        request.settings = attributes.settings()?;
        let ready = match attributes.sharing() {
            None if attributes.fit_for_pool() => self.take_ready(&mut request),
            _ => None,
        };
        let pooled = ready.is_some();
        let record = match (ready, attributes.sharing()) {
            (Some(record), _) => record,
            (None, Some(sharing)) => self.start_snapshot(request, attributes, sharing)?,
            (None, None) => self.start_clean(request, attributes)?,
        };
        reap::reap_some();
        let spins = pooled && self.several_processors;
        Ok(Coproc::new(record, attributes, self.made_by, pooled, spins))
    }

    /// Assigns the request to a ready coproc of the pool, if there is one.
    fn take_ready(&self, request: &mut Request) -> Option<Ref> {
        if !self.has_pool {
            return None;
        }
        request.pooled = true;
        let taken = self.pool.lock().take(request);
        request.pooled = taken.is_some();
        if taken.is_some()
            && let Some(zygote) = &*self.zygote.lock()
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
        let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(|fd| fd.as_fd()).collect();
        request.descriptor_count = descriptors.len();
        for _ in 0..MAX_ZYGOTES {
            let zygote = self.zygote()?;
            let record = self.chain.add(request.clone())?;
            let asked = zygote.request(core::slice::from_ref(&record), &descriptors);
            let started = match asked {
                Ok(()) => handshake(&record, Some(&zygote), None),
                Err(Errno::PIPE | Errno::CONNRESET) => Err(Unstarted::Unmade),
                Err(error) => Err(Unstarted::Refused(Attribute::Process.failed(error))),
            };
            match started {
                Ok(()) => {
                    if self.has_pool {
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
                    reap::abandon(record, true);
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
        for (place, descriptor) in request.descriptors.iter_mut().zip(&descriptors) {
            *place = descriptor.as_raw_fd();
            request.descriptor_count += 1;
        }
        let stack = Stack::map(request.settings.stack_bytes())
            .map_err(|error| Attribute::StackSize.failed(error))?;
        let record = self.chain.add(request)?;
        let context = CloneContext {
            record: &record,
            zygote: None,
            arguments: self.arguments.clone(),
            close: &[],
        };
        // The coproc would sweep otherwise, and allocate, if it found dead tasks.
        let _ = self.region.inner().sweep();
        // SAFETY: `begin` never returns. The contract of `snapshot` covers what it may use in a process with threads.
        let made =
            unsafe { clone::clone(false, &stack, sharing, child::begin, &context, &record.pid) };
        let started = match made {
            Ok(_) => handshake(&record, None, Some(Deadline::after(SNAPSHOT_TIMEOUT))),
            Err(error) => Err(Unstarted::Refused(Attribute::Process.failed(error))),
        };
        match started {
            Ok(()) => Ok(record),
            Err(Unstarted::Unmade) => Err(SpawnError::Died),
            Err(Unstarted::Refused(error)) => {
                reap::abandon(record, true);
                Err(error)
            }
        }
    }

    pub(super) fn zygote(&self) -> Result<Arc<Zygote>, StartError> {
        if let Some(zygote) = &*self.zygote.lock() {
            return Ok(Arc::clone(zygote));
        }
        // The start of a zygote locks standard output. Another thread may hold that lock and wait for the lock below,
        // so this thread takes standard output first.
        let _output = std::io::stdout().lock();
        let mut zygote = self.zygote.lock();
        if let Some(zygote) = &*zygote {
            return Ok(Arc::clone(zygote));
        }
        Ok(Arc::clone(zygote.insert(Zygote::start(&self.control)?)))
    }

    /// Forgets a zygote that has died.
    pub(super) fn replace(&self, dead: &Arc<Zygote>) {
        let mut zygote = self.zygote.lock();
        let is_current = |current: &mut _| Arc::ptr_eq(current, dead);
        if zygote.take_if(is_current).is_some() {
            dead.end();
            self.pool.lock().free_unmade();
            let _ = self.region.inner().sweep();
        }
    }

    /// Refills the pool if half of it or more is missing.
    pub(super) fn refill(&self, zygote: &Zygote) {
        let mut pool = self.pool.lock();
        if pool.is_low() {
            self.top_up(&mut pool, zygote);
        }
    }

    pub(super) fn top_up(&self, pool: &mut Pool, zygote: &Zygote) {
        pool.refill(zygote, self.creator, &self.chain);
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // In the child of a fork, all of this belongs to the parent.
        if !self.made_by.is_own() {
            return;
        }
        self.control.announce(record::CLOSED);
        // Before the zygote ends: if this process is killed here, the zygote or the coprocs do the rest.
        self.pool.get_mut().close();
        if let Some(zygote) = self.zygote.get_mut().take()
            && !zygote.end()
        {
            // The zygote runs until it detects that this process has ended, and may use the records until then.
            return;
        }
        self.pool.get_mut().give_up();
        reap::reap_all();
        // Removes the zygote's task from the region.
        let _ = self.region.inner().sweep();
        self.chain.dissolve();
        // SAFETY: the zygote, the only other reader, is gone.
        unsafe { self.control.free() };
    }
}

/// Why a coproc has not started.
enum Unstarted {
    /// The zygote died before it made the process.
    Unmade,
    Refused(SpawnError),
}

/// Waits until a new coproc runs, its attributes set, or is refused; kills it if that takes longer than `timeout`.
fn handshake(
    record: &Ref,
    zygote: Option<&Zygote>,
    timeout: Option<Deadline>,
) -> Result<(), Unstarted> {
    let inner = record.region.inner();
    let mut check = Deadline::after(EXISTENCE_CHECK);
    loop {
        let zygote_life = zygote.map(|zygote| inner.life_word(zygote.task));
        if let (Some(zygote), Some(None)) = (zygote, zygote_life) {
            inner.settle(zygote.task);
        }
        let made = record.pid.load(Acquire);
        match record.state() {
            record::STARTED | record::DONE => return Ok(()),
            record::FAILED => {
                // Relaxed: written before `FAILED`, which was read with Acquire.
                let [code, detail] = [&record.code, &record.detail].map(|word| word.load(Relaxed));
                return Err(Unstarted::Refused(Attribute::error(code, detail)));
            }
            _ => {}
        }
        if made == 0 && matches!(zygote_life, Some(None)) {
            return Err(Unstarted::Unmade);
        }
        let state = futex::shared_word(&record.state, record::REQUESTED);
        let life = zygote_life.flatten();
        let life = life.map(|(word, value)| futex::shared_word(word, value));
        let words: Vec<_> = [state].into_iter().chain(life).collect();
        futex::wait_many(&words, 0, Some(check));
        // Signal handlers may end each wait early.
        if !check.has_passed() {
            continue;
        }
        check = Deadline::after(EXISTENCE_CHECK);
        if made == 0 || record.state() != record::REQUESTED {
            continue;
        }
        if let Some(zygote) = zygote {
            inner.settle(zygote.task);
        }
        if record.ended_unstarted() {
            return Err(Unstarted::Refused(SpawnError::Died));
        }
        if timeout.is_some_and(Deadline::has_passed) {
            let _ = process::kill_child(made);
            return Err(Unstarted::Refused(SpawnError::Stuck));
        }
    }
}
