//! POSIX and System V semaphores, used as locks.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;

use libc::{c_int, c_short, sem_t, sembuf};

use super::{FreeLock, Line, cvt};

#[repr(C)]
struct SemAndDatum {
    semaphore: UnsafeCell<sem_t>,
    datum: UnsafeCell<u64>,
}

/// A `sem_t` of one unit.
pub(crate) struct Posix(Box<Line<SemAndDatum>>);

// SAFETY: a semaphore is made for many threads, and `datum` is touched by the holder of its one
// unit only.
unsafe impl Sync for Posix {}
// SAFETY: the box, and so the semaphore, stays where it is when its owner moves between threads.
unsafe impl Send for Posix {}

impl Posix {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: all zeros is a value of this plain C type; `sem_init` gives it its meaning.
        let semaphore = UnsafeCell::new(unsafe { std::mem::zeroed() });
        let datum = UnsafeCell::new(0);
        let semaphore = Self(Box::new(Line(SemAndDatum { semaphore, datum })));
        // SAFETY: the semaphore is in its final place.
        cvt(unsafe { libc::sem_init(semaphore.0.0.semaphore.get(), 0, 1) })?;
        Ok(semaphore)
    }
}

impl FreeLock for Posix {
    #[inline]
    fn increment(&self) {
        // SAFETY: the semaphore was initialised by `new`; its one unit protects the datum.
        unsafe {
            libc::sem_wait(self.0.0.semaphore.get());
            *self.0.0.datum.get() += 1;
            libc::sem_post(self.0.0.semaphore.get());
        }
    }
}

impl Drop for Posix {
    fn drop(&mut self) {
        // SAFETY: nobody can wait any more, since every increment borrows it.
        unsafe { libc::sem_destroy(self.0.0.semaphore.get()) };
    }
}

/// A System V semaphore of one unit, with or without SEM_UNDO.
pub(crate) struct SysV {
    id: c_int,
    flags: c_short,
    datum: UnsafeCell<u64>,
}

// SAFETY: `datum` is touched by the holder of the semaphore's one unit only.
unsafe impl Sync for SysV {}

impl SysV {
    pub(crate) fn new(undo: bool) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let id = cvt(unsafe { libc::semget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o600) })?;
        let semaphore = Self {
            id,
            flags: if undo { libc::SEM_UNDO as c_short } else { 0 },
            datum: UnsafeCell::new(0),
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

impl FreeLock for SysV {
    #[inline]
    fn increment(&self) {
        self.change(-1);
        // SAFETY: the semaphore's one unit protects the datum.
        unsafe { *self.datum.get() += 1 };
        self.change(1);
    }

    fn check(&self) -> io::Result<()> {
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
