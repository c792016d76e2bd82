//! Latchwork's semaphores, used as locks. They lie in one region of the process, and are reused.
#![allow(unsafe_code)]

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

use latchwork::region::{Region, RegionOptions};
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, MrspSemaphore, ObtainError,
    Priority, TaskPriority as _,
};
use latchwork::time::Deadline;

use super::{CEILING, RawLock, broken};

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Counting,
    Binary,
    Inherit,
    Ceiling,
    Mrsp,
    /// The kernel knows the priorities, and enforces them.
    MirroredInherit,
    MirroredCeiling,
    MirroredMrsp,
}

/// The ceiling of mirrored semaphores: one better than the priority of any task that uses them. (99 to 1 in the kernel
/// are 1 to 99 here.)
fn mirrored_ceiling() -> Priority {
    Priority::new((99 - CEILING) as u8).unwrap_or(Priority::HIGHEST)
}

fn region() -> io::Result<&'static Region> {
    static REGION: OnceLock<Region> = OnceLock::new();
    if let Some(region) = REGION.get() {
        return Ok(region);
    }
    let region = RegionOptions::new()
        .max_bytes(16 << 20)
        .label("bench semaphores")
        .create_anonymous()
        .map_err(io::Error::other)?;
    Ok(REGION.get_or_init(|| region))
}

/// Names that are unused at present.
static FREE: Mutex<(Vec<u32>, u32)> = Mutex::new((Vec::new(), 0));

struct Name(u32);

impl Name {
    fn new() -> Self {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let (again, fresh) = &mut *free;
        Self(again.pop().unwrap_or_else(|| {
            *fresh += 1;
            *fresh
        }))
    }

    fn text(&self) -> String {
        self.0.to_string()
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.0.push(self.0);
    }
}

/// A counting semaphore of one unit.
pub(crate) struct Counting {
    semaphore: CountingSemaphore<'static>,
    _name: Name,
}

impl Counting {
    pub(crate) fn new() -> io::Result<Self> {
        let name = Name::new();
        let semaphore = CountingSemaphore::create(region()?, &name.text(), 1, Discipline::Fifo)
            .map_err(io::Error::other)?;
        Ok(Self {
            semaphore,
            _name: name,
        })
    }
}

// SAFETY: there is one unit, so one holder.
unsafe impl RawLock for Counting {
    const BYTES: usize = CountingSemaphore::BYTES;

    #[inline]
    unsafe fn lock(&self) {
        if let Err(error) = self.semaphore.obtain() {
            broken(&error)
        }
    }

    #[inline]
    unsafe fn unlock(&self) {
        if let Err(error) = self.semaphore.release() {
            broken(&error)
        }
    }

    unsafe fn lock_until(&self, deadline: Deadline) -> io::Result<bool> {
        match self.semaphore.obtain_until(deadline) {
            Ok(()) => Ok(true),
            Err(ObtainError::TimedOut) => Ok(false),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.semaphore.delete();
    }
}

/// Semaphores with an owner, used as locks.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident: $semaphore:ident) => {
        $(#[$doc])*
        pub(crate) struct $name {
            semaphore: $semaphore<'static>,
            _name: Name,
        }

        // SAFETY: it has one owner at a time.
        unsafe impl RawLock for $name {
            const BYTES: usize = $semaphore::BYTES;

            #[inline]
            unsafe fn lock(&self) {
                match self.semaphore.obtain() {
                    Ok(held) => held.keep(),
                    Err(error) => broken(&error),
                }
            }

            #[inline]
            unsafe fn unlock(&self) {
                if let Err(error) = self.semaphore.release() {
                    broken(&error)
                }
            }

            unsafe fn lock_until(&self, deadline: Deadline) -> io::Result<bool> {
                match self.semaphore.obtain_until(deadline) {
                    Ok(held) => {
                        held.keep();
                        Ok(true)
                    }
                    Err(ObtainError::TimedOut) => Ok(false),
                    Err(error) => Err(io::Error::other(error)),
                }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                let _ = self.semaphore.delete();
            }
        }
    };
}

owned! {
    /// A binary semaphore.
    Owned: BinarySemaphore
}

impl Owned {
    pub(crate) fn new(kind: Kind) -> io::Result<Self> {
        let name = Name::new();
        let options = BinaryOptions::new();
        let options = match kind {
            Kind::Inherit | Kind::MirroredInherit => options.inherit(),
            Kind::Ceiling => options.ceiling(Priority::HIGHEST),
            Kind::MirroredCeiling => options.ceiling(mirrored_ceiling()),
            Kind::Binary | Kind::Counting | Kind::Mrsp | Kind::MirroredMrsp => options,
        };
        let semaphore = BinarySemaphore::create(region()?, &name.text(), &options);
        Ok(Self {
            semaphore: semaphore.map_err(io::Error::other)?,
            _name: name,
        })
    }
}

owned! {
    /// A MrsP semaphore.
    Mrsp: MrspSemaphore
}

impl Mrsp {
    pub(crate) fn new(kind: Kind) -> io::Result<Self> {
        let name = Name::new();
        // A name is bound to objects of one type.
        let text = format!("mrsp {}", name.text());
        let ceiling = match kind {
            Kind::MirroredMrsp => mirrored_ceiling(),
            _ => Priority::HIGHEST,
        };
        let semaphore = MrspSemaphore::create(region()?, &text, ceiling);
        Ok(Self {
            semaphore: semaphore.map_err(io::Error::other)?,
            _name: name,
        })
    }
}

/// A semaphore whose users' priorities are mirrored in the kernel.
pub(crate) struct Mirrored<R>(pub(crate) R);

// SAFETY: as the semaphore.
unsafe impl<R: RawLock> RawLock for Mirrored<R> {
    const BYTES: usize = R::BYTES;

    fn enlist() -> io::Result<()> {
        let region = region()?;
        let task = region.task_id().map_err(io::Error::other)?;
        task.mirror(region, true).map_err(io::Error::other)
    }

    #[inline]
    unsafe fn lock(&self) {
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.lock() }
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.unlock() }
    }

    unsafe fn lock_until(&self, deadline: Deadline) -> io::Result<bool> {
        // SAFETY: the caller keeps the contract.
        unsafe { self.0.lock_until(deadline) }
    }
}
