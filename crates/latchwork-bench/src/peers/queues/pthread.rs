//! Queues as programs implement them with pthread: a ring buffer under a mutex, with either two condition variables or
//! two semaphores. Messages are copied under the mutex, as in the talk of 2007.
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

/// How tasks wait that find no message, or no room.
pub(crate) trait Waits: Sized + 'static {
    /// # Safety
    /// The memory is zeroed and shared, and outlives all uses.
    unsafe fn settle(this: *mut Self) -> io::Result<()>;
    /// # Safety
    /// `settle` was called on it; `mutex` is initialised.
    unsafe fn exchange(
        &self,
        mutex: *mut libc::pthread_mutex_t,
        sends: bool,
        step: impl FnMut() -> bool,
    );
}

#[repr(C, align(64))]
struct Head<W> {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    waits: W,
    ring: UnsafeCell<Ring>,
}

pub(crate) struct Places<W> {
    memory: Shared,
    size: usize,
    waits: std::marker::PhantomData<W>,
}

// SAFETY: pthread's objects are process-shared, and protect the other fields.
unsafe impl<W> Send for Places<W> {}
// SAFETY: pthread's objects are process-shared, and protect the other fields.
unsafe impl<W> Sync for Places<W> {}

pub(crate) type MutexCond = Places<Conditions>;
pub(crate) type MutexSem = Places<Semaphores>;

pub(crate) struct End<'a, W>(&'a Places<W>);

impl<W: Waits> MessageQueue for Places<W> {
    type Sender<'a> = End<'a, W>;
    type Receiver<'a> = End<'a, W>;

    fn make(size: usize) -> io::Result<Self> {
        let memory = Shared::new(size_of::<Head<W>>() + CAPACITY * size)?;
        let head = memory.address.cast::<Head<W>>().as_ptr();
        // SAFETY: fresh zeroed memory, large enough and page-aligned.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            errno(libc::pthread_mutexattr_init(attributes.as_mut_ptr()))?;
            errno(libc::pthread_mutexattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            ))?;
            let mutex = (&raw mut (*head).mutex).cast();
            errno(libc::pthread_mutex_init(mutex, attributes.as_ptr()))?;
            W::settle(&raw mut (*head).waits)?;
        }
        Ok(Self {
            memory,
            size,
            waits: std::marker::PhantomData,
        })
    }

    fn sender(&self) -> io::Result<End<'_, W>> {
        Ok(End(self))
    }

    fn receiver(&self) -> io::Result<End<'_, W>> {
        Ok(End(self))
    }
}

impl<W: Waits> Places<W> {
    fn head(&self) -> &Head<W> {
        // SAFETY: `make` initialised it.
        unsafe { self.memory.address.cast().as_ref() }
    }

    fn place(&self, index: usize) -> *mut u8 {
        let offset = size_of::<Head<W>>() + index % CAPACITY * self.size;
        // SAFETY: the offset lies within the mapping.
        unsafe { self.memory.address.add(offset).as_ptr() }
    }
}

impl<W: Waits> Sends for End<'_, W> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        let head = self.0.head();
        for _ in 0..times {
            // SAFETY: the step runs under the mutex; the slot has room for a message of this size.
            unsafe {
                let ring = head.ring.get();
                head.waits.exchange(head.mutex.get(), true, || {
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

impl<W: Waits> Receives for End<'_, W> {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let head = self.0.head();
        for _ in 0..times {
            // SAFETY: the step runs under the mutex; the buffer has room for a message of this size.
            unsafe {
                let ring = head.ring.get();
                head.waits.exchange(head.mutex.get(), false, || {
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

/// One condition for messages, one for room.
pub(crate) struct Conditions([UnsafeCell<libc::pthread_cond_t>; 2]);

impl Waits for Conditions {
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        // SAFETY: by the contract the memory is zeroed and shared.
        unsafe {
            let mut attributes = MaybeUninit::uninit();
            errno(libc::pthread_condattr_init(attributes.as_mut_ptr()))?;
            errno(libc::pthread_condattr_setpshared(
                attributes.as_mut_ptr(),
                libc::PTHREAD_PROCESS_SHARED,
            ))?;
            for index in 0..2 {
                let condition = (&raw mut (*this).0[index]).cast();
                errno(libc::pthread_cond_init(condition, attributes.as_ptr()))?;
            }
        }
        Ok(())
    }

    unsafe fn exchange(
        &self,
        mutex: *mut libc::pthread_mutex_t,
        sends: bool,
        mut step: impl FnMut() -> bool,
    ) {
        let (mine, others) = (usize::from(sends), usize::from(!sends));
        // SAFETY: by the contract; the only possible errors would be misuse.
        unsafe {
            libc::pthread_mutex_lock(mutex);
            while !step() {
                libc::pthread_cond_wait(self.0[mine].get(), mutex);
            }
            libc::pthread_cond_broadcast(self.0[others].get());
            libc::pthread_mutex_unlock(mutex);
        }
    }
}

/// One semaphore counts messages, one counts room.
pub(crate) struct Semaphores([UnsafeCell<libc::sem_t>; 2]);

impl Waits for Semaphores {
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        for (index, value) in [(0, 0), (1, CAPACITY as libc::c_uint)] {
            // SAFETY: by the contract the memory is zeroed and shared.
            unsafe { cvt(libc::sem_init((&raw mut (*this).0[index]).cast(), 1, value))? };
        }
        Ok(())
    }

    unsafe fn exchange(
        &self,
        mutex: *mut libc::pthread_mutex_t,
        sends: bool,
        mut step: impl FnMut() -> bool,
    ) {
        let (mine, others) = (usize::from(sends), usize::from(!sends));
        // SAFETY: by the contract `settle` was called and the mutex is initialised.
        unsafe {
            while libc::sem_wait(self.0[mine].get()) == -1 {}
            libc::pthread_mutex_lock(mutex);
            let done = step();
            libc::pthread_mutex_unlock(mutex);
            debug_assert!(done);
            libc::sem_post(self.0[others].get());
        }
    }
}
