//! POSIX and System V semaphores, used as locks.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;

use libc::{c_int, c_short, sem_t, sembuf};

use super::{RawLock, cvt};

/// A `sem_t` of one unit, for the threads of one process or for processes.
pub(crate) struct Posix<const SHARED: bool>(UnsafeCell<sem_t>);

// SAFETY: a semaphore is made for use by many threads.
unsafe impl<const SHARED: bool> Sync for Posix<SHARED> {}

impl<const SHARED: bool> Posix<SHARED> {
    pub(crate) fn new() -> Self {
        // SAFETY: all zeros is a value of this plain C type; `sem_init` initialises it later.
        Self(UnsafeCell::new(unsafe { std::mem::zeroed() }))
    }
}

// SAFETY: there is one unit, so one holder.
unsafe impl<const SHARED: bool> RawLock for Posix<SHARED> {
    unsafe fn settle(&self) -> io::Result<()> {
        // SAFETY: the semaphore is in its final place.
        cvt(unsafe { libc::sem_init(self.0.get(), c_int::from(SHARED), 1) }).map(drop)
    }

    #[inline]
    unsafe fn lock(&self) {
        // SAFETY: `settle` initialised it. No signal handler of this program interrupts the wait.
        unsafe { libc::sem_wait(self.0.get()) };
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: `settle` initialised it.
        unsafe { libc::sem_post(self.0.get()) };
    }
}

impl<const SHARED: bool> Drop for Posix<SHARED> {
    fn drop(&mut self) {
        // SAFETY: no task waits, since every guard borrows it.
        unsafe { libc::sem_destroy(self.0.get()) };
    }
}

/// A System V semaphore of one unit, with or without SEM_UNDO.
pub(crate) struct SysV {
    id: c_int,
    flags: c_short,
}

impl SysV {
    pub(crate) fn new(undo: bool) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let id = cvt(unsafe { libc::semget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o600) })?;
        let semaphore = Self {
            id,
            flags: if undo { libc::SEM_UNDO as c_short } else { 0 },
        };
        // SAFETY: SETVAL takes an int, and no pointers are passed.
        cvt(unsafe { libc::semctl(id, 0, libc::SETVAL, 1 as c_int) })?;
        Ok(semaphore)
    }

    #[inline]
    fn change(&self, by: c_short) -> c_int {
        let mut operation = sembuf {
            sem_num: 0,
            sem_op: by,
            sem_flg: self.flags,
        };
        // SAFETY: one operation is passed, as the count says.
        unsafe { libc::semop(self.id, &raw mut operation, 1) }
    }
}

// SAFETY: there is one unit, so one holder.
unsafe impl RawLock for SysV {
    /// The number of the kernel's object, which is all that the process stores.
    const BYTES: usize = size_of::<c_int>();

    #[inline]
    unsafe fn lock(&self) {
        self.change(-1);
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.change(1);
    }

    unsafe fn check(&self) -> io::Result<()> {
        cvt(self.change(-1))?;
        cvt(self.change(1)).map(drop)
    }
}

impl Drop for SysV {
    fn drop(&mut self) {
        // SAFETY: no pointers are passed.
        unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
    }
}
