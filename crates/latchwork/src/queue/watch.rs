//! A file descriptor that is readable while messages are there, for poll, epoll and what is built on them.
//!
//! An eventfd belongs to a process, and a sender in another process cannot signal it. So this process has a thread that
//! sleeps until a message comes, and writes to the descriptor. The thread registers as a watcher, which each sender
//! notifies as it does a sleeping receiver (`sleepers.rs`, `ring.rs`).
//!
//! *No message is missed:* the thread registers, and then checks the queue. It signals for a message that was there; a
//! later message advances the ticket on which it sleeps. [`Watch::clear`] first empties the descriptor and then checks
//! the queue: for a message that came before the check it signals by itself, for a later one the thread does.
#![allow(unsafe_code)]

use super::{Queue, error::Failure, locked::Side, sleepers::Sleepers, spsc::Spsc};
use crate::atomic::{AtomicU32, Ordering};
use crate::region::{AttachError, Region, Task};
use crate::sys::futex::{self, Sharing};
use crate::sys::process_mark::ProcessMark;
use crate::sys::{event_fd, signals};
use core::fmt;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use std::sync::{Arc, mpsc::SyncSender};
use std::{io, thread::JoinHandle};

/// The reason why a queue is not watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The system returns no descriptor.
    #[error("the system gives no event descriptor: {0}")]
    Descriptor(Errno),
    /// The system creates no thread.
    #[error("the system gives no thread: {0}")]
    Thread(io::Error),
    /// The calling thread, or the one that watches, cannot become a task of the region.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// A file descriptor that becomes readable when the queue has messages, or is deleted.
///
/// When it is readable, [clear](Self::clear) it, then receive the messages that are there, without waiting. (Another
/// receiver may have been faster; then there is none.)
///
/// *Cost:* a thread of this process, which is a task of the region. While it waits, each message costs its sender a
/// system call, and the thread a wake-up and a system call; messages that come while it runs cost nothing. Tasks that
/// can wait in [`Queue::receive`] should do that.
///
/// *Fork:* the child has the descriptor, which the parent's thread signals, and no thread: create another watch there.
/// Dropping it there does nothing.
///
/// ```
/// use latchwork::queue::{Queue, QueueOptions};
/// use latchwork::region::RegionOptions;
/// use rustix::event::{PollFd, PollFlags, poll};
///
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let jobs = Queue::create(&region, "jobs", &QueueOptions::new(8, 16))?;
/// let watch = jobs.watch()?;
/// jobs.send(b"paint")?;
/// let mut descriptors = [PollFd::new(&watch, PollFlags::IN)];
/// assert_eq!(poll(&mut descriptors, None)?, 1);
/// watch.clear();
/// let mut buffer = [0; 16];
/// while let Ok(bytes) = jobs.try_receive(&mut buffer) {
///     assert_eq!(&buffer[..bytes], b"paint");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread.
    made_by: ProcessMark,
}

struct Shared {
    counter: OwnedFd,
    /// Not 0: the thread must end.
    stop: AtomicU32,
    /// Not 0: the thread watches no more. The descriptor stays readable.
    ended: AtomicU32,
    region: Region,
    token: Token,
}

/// The watched object: the exposed address of its head, and its life.
#[derive(Clone, Copy)]
enum Token {
    Queue(usize, u32),
    Ring(usize, u32),
}

/// The watched object.
enum Watched<'r> {
    Queue(Queue<'r>),
    Ring(Spsc<'r>),
}

impl Queue<'_> {
    /// Watches the queue; see [`Watch`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn watch(&self) -> Result<Watch, WatchError> {
        let head = core::ptr::from_ref(self.cells.core).expose_provenance();
        Watch::start(self.region, Token::Queue(head, self.life))
    }
}

impl Spsc<'_> {
    /// Watches the ring; see [`Watch`].
    ///
    /// # Errors
    /// See [`WatchError`].
    pub fn watch(&self) -> Result<Watch, WatchError> {
        let head = core::ptr::from_ref(self.core).expose_provenance();
        Watch::start(self.region(), Token::Ring(head, self.life))
    }
}

impl Watched<'_> {
    fn is_empty(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_empty(),
            Self::Ring(ring) => ring.is_empty(),
        }
    }

    fn is_alive(&self) -> bool {
        match self {
            Self::Queue(queue) => queue.is_alive(),
            Self::Ring(ring) => ring.is_alive(),
        }
    }

    fn watchers(&self) -> &Sleepers {
        match self {
            Self::Queue(queue) => &queue.cells.core.fixed.watchers,
            Self::Ring(ring) => ring.core.ring.watchers(),
        }
    }

    /// Registers a watcher, and then checks the object: returns the ticket, and whether there is a message.
    fn register(&self, task: Task<'_>, deaths: u32) -> Result<(u32, bool), Failure> {
        match self {
            Self::Queue(queue) => {
                let locked = queue.lock(Side::Receivers, task, deaths)?;
                queue.check_life()?;
                let ticket = self.watchers().register();
                Ok((ticket, locked.cells.peek().is_some()))
            }
            Self::Ring(ring) => {
                let ticket = self.watchers().register();
                let there = || (ticket, !ring.is_empty());
                ring.is_alive().then(there).ok_or(Failure::Deleted)
            }
        }
    }
}

impl Watch {
    fn start(region: &Region, token: Token) -> Result<Self, WatchError> {
        region.inner().task()?;
        let made_by = ProcessMark::own().map_err(|error| WatchError::Thread(error.into()))?;
        let shared = Arc::new(Shared {
            counter: event_fd::create().map_err(WatchError::Descriptor)?,
            stop: AtomicU32::new(0),
            ended: AtomicU32::new(0),
            region: region.clone(),
            token,
        });
        let (begun, begins) = std::sync::mpsc::sync_channel(1);
        let thread = {
            let shared = Arc::clone(&shared);
            // The process's signal handlers must run on other threads.
            let mask = signals::block_all();
            let thread = std::thread::Builder::new()
                .name("latchwork-watch".into())
                .spawn(move || shared.run(&begun));
            signals::restore(mask);
            thread.map_err(WatchError::Thread)?
        };
        let watch = Self {
            shared,
            thread: Some(thread),
            made_by,
        };
        // The thread sends, unless it panics, and then the descriptor stays readable.
        begins.recv().unwrap_or(Ok(()))?;
        Ok(watch)
    }

    /// Whether it watches in the calling process: false in the child of a fork.
    #[must_use]
    pub fn is_of_this_process(&self) -> bool {
        self.made_by.is_own()
    }

    /// Makes the descriptor unreadable, unless there are messages (or the queue is deleted); returns whether it was
    /// readable.
    pub fn clear(&self) -> bool {
        let was = event_fd::clear(&self.shared.counter);
        let watched = self.shared.watched();
        // Acquire: pairs with the Release in `run`, which signals after it.
        let has_ended = self.shared.ended.load(Ordering::Acquire) != 0;
        if has_ended || !watched.is_empty() || !watched.is_alive() {
            event_fd::signal(&self.shared.counter);
        }
        was
    }
}

impl Shared {
    fn watched(&self) -> Watched<'_> {
        let region = &self.region;
        match self.token {
            Token::Queue(head, life) => {
                // SAFETY: the address is of a queue's head in this region; a head stays as long as the region.
                let head = unsafe { &*core::ptr::with_exposed_provenance(head) };
                let mut queue = Queue::at(region, head);
                queue.life = life;
                Watched::Queue(queue)
            }
            Token::Ring(head, life) => {
                // SAFETY: as for a queue's head.
                let core = unsafe { &*core::ptr::with_exposed_provenance(head) };
                let mut ring = Spsc::at(region, core);
                ring.life = life;
                Watched::Ring(ring)
            }
        }
    }

    /// The thread's main function: runs until the watch is stopped, or the queue is deleted.
    fn run(&self, begun: &SyncSender<Result<(), AttachError>>) {
        // The creator waits for what is sent.
        match self.region.inner().task() {
            Ok(task) => {
                let _ = begun.send(Ok(()));
                let _ = self.watch(task, &self.watched());
            }
            Err(error) => {
                let _ = begun.send(Err(error));
            }
        }
        // Release: pairs with the Acquire in `clear`. A task that polls the descriptor gets the reason from the queue.
        self.ended.store(1, Ordering::Release);
        event_fd::signal(&self.counter);
    }

    fn watch(&self, task: Task<'_>, watched: &Watched<'_>) -> Result<(), Failure> {
        let inner = self.region.inner();
        let watchers = watched.watchers();
        // Acquire: pairs with the Release in `drop`.
        while self.stop.load(Ordering::Acquire) == 0 {
            // Read before the queue is checked: see `park`.
            let deaths = inner.deaths();
            let (ticket, there) = watched.register(task, deaths)?;
            if there {
                event_fd::signal(&self.counter);
            }
            let words = [(watchers.word(), ticket), (&self.stop, 0)];
            inner.park(task, &words, deaths, None);
            // A sender notifies all watchers at once, and takes all registrations.
            watchers.leave(ticket, false);
        }
        Ok(())
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.counter.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.shared.counter.as_raw_fd()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // The thread, and the memory that its handle points to, are the parent's.
            core::mem::forget(self.thread.take());
            return;
        }
        // Release: pairs with the Acquire in `watch`.
        self.shared.stop.store(1, Ordering::Release);
        futex::wake(&raw const self.shared.stop, 1, Sharing::Shared);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Watch")
            .field("descriptor", &self.shared.counter)
            .finish_non_exhaustive()
    }
}
