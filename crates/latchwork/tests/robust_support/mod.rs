//! Robust locks of this library and of pthread behind one interface, and the thread's robust list.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each program uses its part")]

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::pin::Pin;
use core::ptr;
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};

/// The library of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ours,
    /// `PTHREAD_MUTEX_ROBUST`.
    Pthread,
    /// As above with `PTHREAD_PRIO_INHERIT`, which sets bit 0 of the links to it.
    PthreadInherit,
}

/// A robust lock that does not move, shared between processes if its memory is.
pub struct Lock {
    kind: Kind,
    ours: Mutex<u32, Robust>,
    /// The guard of the owner of `ours`; a dead owner's is never dropped.
    guard: UnsafeCell<MaybeUninit<RobustGuard<'static, u32>>>,
    pthread: UnsafeCell<MaybeUninit<libc::pthread_mutex_t>>,
}

// SAFETY: both are locks.
unsafe impl Sync for Lock {}

impl Lock {
    pub fn new(kind: Kind) -> Box<Self> {
        let lock = Box::new(Self::in_place(kind));
        lock.initialise();
        lock
    }

    /// To be [initialised](Self::initialise) where it will stay.
    pub fn in_place(kind: Kind) -> Self {
        let guard = UnsafeCell::new(MaybeUninit::uninit());
        Self {
            kind,
            ours: Mutex::robust(0),
            guard,
            pthread: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }

    pub fn initialise(&self) {
        let protocol = if self.kind == Kind::PthreadInherit {
            libc::PTHREAD_PRIO_INHERIT
        } else {
            libc::PTHREAD_PRIO_NONE
        };
        let mut attributes = MaybeUninit::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: attributes and mutex are ours, and initialised in this order.
        let results = unsafe {
            [
                libc::pthread_mutexattr_init(attributes),
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setprotocol(attributes, protocol),
                libc::pthread_mutex_init(self.pthread(), attributes),
                libc::pthread_mutexattr_destroy(attributes),
            ]
        };
        assert_eq!(results, [0; 6]);
    }

    fn pthread(&self) -> *mut libc::pthread_mutex_t {
        self.pthread.get().cast()
    }

    fn ours(&self) -> Pin<&'static Mutex<u32, Robust>> {
        // SAFETY: a `Lock` is boxed or mapped before its first use, never moved after it, and outlives
        // its guards: it keeps them.
        unsafe { Pin::new_unchecked(&*ptr::from_ref(&self.ours)) }
    }

    fn keep(&self, guard: RobustGuard<'static, u32>) {
        // SAFETY: touched by the holder only, which the caller is now.
        unsafe { (*self.guard.get()).write(guard) };
    }

    /// Takes the lock; whether it was clean. Not released unless by [`Self::unlock`].
    pub fn lock(&self) -> bool {
        match self.kind {
            Kind::Ours => match self.ours().lock() {
                Ok(guard) => {
                    self.keep(guard);
                    true
                }
                Err(LockError::OwnerDied(died)) => {
                    self.keep(died.make_consistent());
                    false
                }
                Err(error) => panic!("{error}"),
            },
            // SAFETY: initialised.
            _ => match unsafe { libc::pthread_mutex_lock(self.pthread()) } {
                0 => true,
                libc::EOWNERDEAD => {
                    // SAFETY: held by the caller.
                    assert_eq!(unsafe { libc::pthread_mutex_consistent(self.pthread()) }, 0);
                    false
                }
                error => panic!("pthread_mutex_lock: {error}"),
            },
        }
    }

    /// Releases the lock; the calling thread holds it.
    pub fn unlock(&self) {
        match self.kind {
            // SAFETY: the caller holds the lock, so the guard is its own, and is taken out once.
            Kind::Ours => drop(unsafe { (*self.guard.get()).assume_init_read() }),
            // SAFETY: held by the caller.
            _ => assert_eq!(unsafe { libc::pthread_mutex_unlock(self.pthread()) }, 0),
        }
    }

    /// Takes the lock from a dead owner and releases it; false if no death was reported.
    pub fn recover(&self) -> bool {
        let died = !self.lock();
        self.unlock();
        died
    }
}

/// The calling thread's `struct robust_list_head`.
fn head() -> *const [usize; 3] {
    let mut head: *const [usize; 3] = ptr::null();
    let mut length = 0_usize;
    // SAFETY: the kernel writes the two variables.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, 0, &raw mut head, &raw mut length) };
    assert_eq!(
        result,
        0,
        "get_robust_list: {}",
        std::io::Error::last_os_error()
    );
    if head.is_null() {
        // musl registers none until it is needed: that is an empty list.
        let empty = Box::leak(Box::new([0; 3]));
        empty[0] = ptr::from_mut(empty).expose_provenance();
        return empty;
    }
    head
}

/// Whether the calling thread has no robust lock on its list.
pub fn list_is_empty() -> bool {
    let head = head();
    // SAFETY: the thread's own head; only this thread changes it.
    unsafe { (*head)[0] == head.addr() }
}

/// What the calling thread's robust list leads to, front to back, and for each where its link back
/// leads. In a signal handler only the former is sure.
pub fn list() -> impl Iterator<Item = (usize, usize)> {
    let read = |place: usize| {
        let place = ptr::with_exposed_provenance::<usize>(place);
        // SAFETY: a link of the thread's own list, which only this thread changes.
        unsafe { ptr::read_volatile(place) & !1 }
    };
    let front = head().expose_provenance();
    core::iter::successors(Some(read(front)), move |link| Some(read(*link)))
        .take_while(move |link| *link != front)
        .map(move |link| (link, read(link - size_of::<usize>())))
}

/// Whether the backward links match the forward links, except for those of the last `tails` nodes, which have none.
pub fn list_is_whole(tails: usize) -> bool {
    let fronts = core::iter::once(head().expose_provenance());
    fronts
        .chain(list().map(|(link, _)| link))
        .zip(list())
        .take(list().count() - tails)
        .all(|(before, (_, back))| back == before)
}

/// What the calling thread has announced (`list_op_pending`).
pub fn announced() -> usize {
    // SAFETY: as above; volatile, since a signal handler reads it while it changes.
    unsafe { ptr::read_volatile(&raw const (*head())[2]) }
}
