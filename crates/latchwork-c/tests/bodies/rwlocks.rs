//! Reader/writer locks.
#![allow(unsafe_code)]

use super::*;

use core::marker::PhantomData;
use core::pin::Pin;
use latchwork_testkit::bodies::rwlock::{Contestant, Halves};

pub(super) struct Of<L, const KIND: usize> {
    lock: Place<136>,
    data: UnsafeCell<Halves>,
    language: PhantomData<L>,
}

// SAFETY: the data is looked at under the lock, and changed by who writes.
unsafe impl<L, const KIND: usize> Sync for Of<L, KIND> {}

impl<L: Language, const KIND: usize> Of<L, KIND> {
    /// Leaves again, if it was entered.
    fn is_entered(&self, answer: c_int, otherwise: c_int, writes: bool) -> bool {
        let kind = L::rwlock(KIND);
        let leave = if writes {
            kind.leave_write
        } else {
            kind.leave_read
        };
        let entered = got(answer, otherwise);
        if entered {
            // SAFETY: entered just before.
            assert_eq!(unsafe { leave(self.lock.address()) }, 0);
        }
        entered
    }
}

impl<L: Language, const KIND: usize> Contestant for Of<L, KIND> {
    fn make() -> Self {
        let lock = Place::zeroed();
        assert!(L::rwlock(KIND).size <= size_of_val(&lock));
        // SAFETY: there is room.
        unsafe { (L::rwlock(KIND).make)(lock.address()) };
        Self {
            lock,
            data: UnsafeCell::new(Halves::default()),
            language: PhantomData,
        }
    }
    fn read<R>(self: Pin<&Self>, body: impl FnOnce(&Halves) -> R) -> R {
        let (kind, lock) = (L::rwlock(KIND), self.lock.address());
        // SAFETY: a lock of this kind, here and below; it is left once.
        let _left = unsafe {
            assert_eq!((kind.read)(lock), 0);
            Finally(move || assert_eq!((kind.leave_read)(lock), 0))
        };
        // SAFETY: no task writes.
        body(unsafe { &*self.data.get() })
    }
    fn write<R>(self: Pin<&Self>, body: impl FnOnce(&mut Halves) -> R) -> R {
        let (kind, lock) = (L::rwlock(KIND), self.lock.address());
        // SAFETY: as above.
        let _left = unsafe {
            assert_eq!((kind.write)(lock), 0);
            Finally(move || assert_eq!((kind.leave_write)(lock), 0))
        };
        // SAFETY: no other task holds the lock.
        body(unsafe { &mut *self.data.get() })
    }
    fn try_read(self: Pin<&Self>) -> bool {
        // SAFETY: as above.
        let answer = unsafe { (L::rwlock(KIND).try_read)(self.lock.address()) };
        self.is_entered(answer, EBUSY, false)
    }
    fn try_write(self: Pin<&Self>) -> bool {
        // SAFETY: as above.
        let answer = unsafe { (L::rwlock(KIND).try_write)(self.lock.address()) };
        self.is_entered(answer, EBUSY, true)
    }
    fn read_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        let until = timespec_of(deadline);
        // SAFETY: as above.
        let answer =
            unsafe { (L::rwlock(KIND).read_until)(self.lock.address(), ptr::from_ref(&until)) };
        self.is_entered(answer, ETIMEDOUT, false)
    }
    fn write_until(self: Pin<&Self>, deadline: Deadline) -> bool {
        let until = timespec_of(deadline);
        // SAFETY: as above.
        let answer =
            unsafe { (L::rwlock(KIND).write_until)(self.lock.address(), ptr::from_ref(&until)) };
        self.is_entered(answer, ETIMEDOUT, true)
    }
}

latchwork_testkit::rwlock_conformance! {
    mod c_writers_first = Of<C, 0> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod c_readers_first = Of<C, 1> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod c_shared_writers_first = Of<C, 2> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
    }
    mod c_shared_readers_first = Of<C, 3> {
        a_writer_is_alone a_writer_gets_in_between_readers_that_overlap
    }
    mod c_robust = Of<C, 4> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
    mod c_of_a_region = Of<C, 5> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
    mod cpp_writers_first = Of<Cpp, 0> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap a_reader_gets_in_between_writers
    }
    mod cpp_readers_first = Of<Cpp, 1> {
        a_writer_is_alone a_holder_keeps_others_out
    }
    mod cpp_robust = Of<Cpp, 4> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
    mod cpp_of_a_region = Of<Cpp, 5> {
        a_writer_is_alone readers_are_inside_together a_holder_keeps_others_out
        readers_that_wait_for_a_writer_enter_when_it_gives_up
        a_writer_gets_in_between_readers_that_overlap
    }
}
