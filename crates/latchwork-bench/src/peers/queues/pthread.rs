//! Queues as programs implement them with locks: a ring buffer under a mutex, with either two condition variables or two
//! semaphores; here with pthread's. Messages are copied under the mutex, as in the talk of 2007. The talk's mutexes are
//! robust: their users continue after an owner's death.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use super::super::{cvt, errno};
use super::{CAPACITY, MessageQueue, Receives, Sends};

/// Memory that forked children share.
struct Shared {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it is a mapping; the objects in it have their own requirements.
unsafe impl Send for Shared {}
// SAFETY: it is a mapping; the objects in it have their own requirements.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let address = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { address, bytes })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it with this size.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}

/// The data under the mutex.
#[derive(Default)]
struct Ring {
    sent: usize,
    received: usize,
}

/// A mutex, and how tasks wait that find no message, or no room.
pub(crate) trait Meeting: Send + Sync + 'static {
    /// # Safety
    /// The memory is zeroed and shared, and outlives all uses.
    unsafe fn settle(this: *mut Self) -> io::Result<()>;

    /// Runs `step` under the mutex until it returns true, and waits in between.
    fn exchange(&self, sends: bool, step: impl FnMut() -> bool);
}

#[repr(C, align(64))]
struct Head<M> {
    meeting: M,
    ring: UnsafeCell<Ring>,
}

pub(crate) struct Places<M> {
    memory: Shared,
    size: usize,
    meeting: std::marker::PhantomData<M>,
}

// SAFETY: the meeting's objects are for processes, and protect the other fields.
unsafe impl<M> Send for Places<M> {}
// SAFETY: as for `Send`.
unsafe impl<M> Sync for Places<M> {}

pub(crate) type MutexCond = Places<Conditions<false>>;
pub(crate) type MutexSem = Places<Semaphores<false>>;
pub(crate) type RobustMutexCond = Places<Conditions<true>>;
pub(crate) type RobustMutexSem = Places<Semaphores<true>>;

pub(crate) struct End<'a, M>(&'a Places<M>);

impl<M: Meeting> MessageQueue for Places<M> {
    type Sender<'a> = End<'a, M>;
    type Receiver<'a> = End<'a, M>;

    fn make(size: usize) -> io::Result<Self> {
        let memory = Shared::new(size_of::<Head<M>>() + CAPACITY * size)?;
        let head = memory.address.cast::<Head<M>>().as_ptr();
        // SAFETY: fresh zeroed memory, large enough and page-aligned.
        unsafe { M::settle(&raw mut (*head).meeting)? };
        Ok(Self {
            memory,
            size,
            meeting: std::marker::PhantomData,
        })
    }

    fn sender(&self) -> io::Result<End<'_, M>> {
        Ok(End(self))
    }

    fn receiver(&self) -> io::Result<End<'_, M>> {
        Ok(End(self))
    }
}

impl<M: Meeting> Places<M> {
    fn head(&self) -> &Head<M> {
        // SAFETY: `make` initialised it.
        unsafe { self.memory.address.cast().as_ref() }
    }

    #[cfg(test)]
    pub(super) fn meeting(&self) -> &M {
        &self.head().meeting
    }

    fn place(&self, index: usize) -> *mut u8 {
        let offset = size_of::<Head<M>>() + index % CAPACITY * self.size;
        // SAFETY: the offset lies within the mapping.
        unsafe { self.memory.address.add(offset).as_ptr() }
    }
}

impl<M: Meeting> Sends for End<'_, M> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        let head = self.0.head();
        for _ in 0..times {
            // SAFETY: the step runs under the mutex; the slot has room for a message of this size.
            unsafe {
                let ring = head.ring.get();
                head.meeting.exchange(true, || {
                    let room = (*ring).sent - (*ring).received < CAPACITY;
                    if room {
                        let place = self.0.place((*ring).sent);
                        place.copy_from_nonoverlapping(message.as_ptr(), message.len());
                        (*ring).sent += 1;
                    }
                    room
                });
            }
        }
        Ok(())
    }
}

impl<M: Meeting> Receives for End<'_, M> {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let head = self.0.head();
        for _ in 0..times {
            // SAFETY: the step runs under the mutex; the buffer has room for a message of this size.
            unsafe {
                let ring = head.ring.get();
                head.meeting.exchange(false, || {
                    let some = (*ring).sent > (*ring).received;
                    if some {
                        let place = self.0.place((*ring).received);
                        place.copy_to_nonoverlapping(buffer.as_mut_ptr(), self.0.size);
                        (*ring).received += 1;
                    }
                    some
                });
            }
        }
        Ok(())
    }
}

/// A mutex of pthread's, for processes.
struct Mutex<const ROBUST: bool>(UnsafeCell<libc::pthread_mutex_t>);

impl<const ROBUST: bool> Mutex<ROBUST> {
    /// # Safety
    /// The memory is zeroed and shared, and outlives all uses.
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        // SAFETY: by the contract.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            let attributes = attributes.as_mut_ptr();
            errno(libc::pthread_mutexattr_init(attributes))?;
            let shared = libc::PTHREAD_PROCESS_SHARED;
            errno(libc::pthread_mutexattr_setpshared(attributes, shared))?;
            if ROBUST {
                let robust = libc::PTHREAD_MUTEX_ROBUST;
                errno(libc::pthread_mutexattr_setrobust(attributes, robust))?;
            }
            errno(libc::pthread_mutex_init(
                (&raw mut (*this).0).cast(),
                attributes,
            ))
        }
    }

    fn lock(&self) {
        // SAFETY: `settle` was called.
        self.taken(unsafe { libc::pthread_mutex_lock(self.0.get()) });
    }

    /// The answer of a call that has taken the mutex. A dead owner leaves the ring as it was before or after a step,
    /// which is one store: there is nothing to repair.
    #[inline]
    fn taken(&self, answer: libc::c_int) {
        if ROBUST && answer == libc::EOWNERDEAD {
            // SAFETY: the caller holds the mutex.
            unsafe { libc::pthread_mutex_consistent(self.0.get()) };
        }
    }

    fn unlock(&self) {
        // SAFETY: the caller holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// One condition for messages, one for room.
pub(crate) struct Conditions<const ROBUST: bool> {
    mutex: Mutex<ROBUST>,
    conditions: [UnsafeCell<libc::pthread_cond_t>; 2],
}

// SAFETY: pthread's objects are for threads and processes.
unsafe impl<const ROBUST: bool> Send for Conditions<ROBUST> {}
// SAFETY: as for `Send`.
unsafe impl<const ROBUST: bool> Sync for Conditions<ROBUST> {}

impl<const ROBUST: bool> Meeting for Conditions<ROBUST> {
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        // SAFETY: by the contract the memory is zeroed and shared.
        unsafe {
            Mutex::settle(&raw mut (*this).mutex)?;
            let mut attributes = MaybeUninit::uninit();
            errno(libc::pthread_condattr_init(attributes.as_mut_ptr()))?;
            errno(libc::pthread_condattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            ))?;
            for index in 0..2 {
                let condition = (&raw mut (*this).conditions[index]).cast();
                errno(libc::pthread_cond_init(condition, attributes.as_ptr()))?;
            }
        }
        Ok(())
    }

    fn exchange(&self, sends: bool, mut step: impl FnMut() -> bool) {
        let (mine, others) = (usize::from(sends), usize::from(!sends));
        let conditions = self.conditions.each_ref().map(UnsafeCell::get);
        self.mutex.lock();
        while !step() {
            // SAFETY: `settle` was called, and this task holds the mutex.
            let answer = unsafe { libc::pthread_cond_wait(conditions[mine], self.mutex.0.get()) };
            self.mutex.taken(answer);
        }
        // SAFETY: `settle` was called.
        unsafe { libc::pthread_cond_broadcast(conditions[others]) };
        self.mutex.unlock();
    }
}

/// One semaphore counts messages, one counts room. A task that is killed between its two calls takes a place with it,
/// robust or not.
pub(crate) struct Semaphores<const ROBUST: bool> {
    mutex: Mutex<ROBUST>,
    semaphores: [UnsafeCell<libc::sem_t>; 2],
}

// SAFETY: these objects are for threads and processes.
unsafe impl<const ROBUST: bool> Send for Semaphores<ROBUST> {}
// SAFETY: as for `Send`.
unsafe impl<const ROBUST: bool> Sync for Semaphores<ROBUST> {}

impl<const ROBUST: bool> Meeting for Semaphores<ROBUST> {
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        // SAFETY: by the contract the memory is zeroed and shared.
        unsafe {
            Mutex::settle(&raw mut (*this).mutex)?;
            for (index, value) in [(0, 0), (1, CAPACITY as libc::c_uint)] {
                let semaphore = (&raw mut (*this).semaphores[index]).cast();
                cvt(libc::sem_init(semaphore, 1, value))?;
            }
        }
        Ok(())
    }

    fn exchange(&self, sends: bool, mut step: impl FnMut() -> bool) {
        let (mine, others) = (usize::from(sends), usize::from(!sends));
        let semaphores = self.semaphores.each_ref().map(UnsafeCell::get);
        // SAFETY: `settle` was called.
        while unsafe { libc::sem_wait(semaphores[mine]) } == -1 {}
        self.mutex.lock();
        let done = step();
        self.mutex.unlock();
        debug_assert!(done);
        // SAFETY: `settle` was called.
        unsafe { libc::sem_post(semaphores[others]) };
    }
}
