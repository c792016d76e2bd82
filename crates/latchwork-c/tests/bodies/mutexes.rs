//! Mutexes.
#![allow(unsafe_code)]

use super::*;

use core::marker::PhantomData;
use latchwork_testkit::bodies::mutex::{Contestant, Halves};

pub(super) struct Of<L, const KIND: usize, const SHARED: bool> {
    mutex: Place<8>,
    data: UnsafeCell<Halves>,
    language: PhantomData<L>,
}

// SAFETY: the data is looked at under the mutex.
unsafe impl<L, const KIND: usize, const SHARED: bool> Sync for Of<L, KIND, SHARED> {}

impl<L: Language, const KIND: usize, const SHARED: bool> Of<L, KIND, SHARED> {
    /// The mutex is taken.
    fn inside<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        // SAFETY: it is released once, here.
        let _unlocked = Finally(|| unsafe {
            assert_eq!((L::mutex(KIND).unlock)(self.mutex.address()), 0);
        });
        // SAFETY: the mutex is taken.
        body(unsafe { &mut *self.data.get() })
    }
}

impl<L: Language, const KIND: usize, const SHARED: bool> Contestant for Of<L, KIND, SHARED> {
    const SHARED: bool = SHARED;
    const TIMED: bool = true;
    fn is_permitted(test: &str) -> bool {
        is_permitted::<L>(KIND, test)
    }
    fn make() -> Self {
        let mutex = Place::zeroed();
        assert!(L::mutex(KIND).size <= size_of_val(&mutex));
        // SAFETY: there is room.
        unsafe { (L::mutex(KIND).make)(mutex.address()) };
        Self {
            mutex,
            data: UnsafeCell::new(Halves::default()),
            language: PhantomData,
        }
    }
    fn lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> R {
        // SAFETY: a mutex of this kind, here and below.
        assert_eq!(unsafe { (L::mutex(KIND).lock)(self.mutex.address()) }, 0);
        self.inside(body)
    }
    fn try_lock<R>(&self, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        // SAFETY: as above.
        let answer = unsafe { (L::mutex(KIND).try_lock)(self.mutex.address()) };
        got(answer, EBUSY).then(|| self.inside(body))
    }
    fn lock_until<R>(&self, deadline: Deadline, body: impl FnOnce(&mut Halves) -> R) -> Option<R> {
        let until = timespec_of(deadline);
        // SAFETY: as above.
        let answer =
            unsafe { (L::mutex(KIND).lock_until)(self.mutex.address(), ptr::from_ref(&until)) };
        got(answer, ETIMEDOUT).then(|| self.inside(body))
    }
}

latchwork_testkit::mutex_conformance! {
    c_mutex: Of<C, 0, false>;
    c_shared_mutex: Of<C, 1, true>;
    c_tp_mutex: Of<C, 2, false>;
    c_shared_tp_mutex: Of<C, 3, true>;
    c_pi_mutex: Of<C, 4, false>;
    c_shared_pi_mutex: Of<C, 5, true>;
    c_plain_pi_mutex: Of<C, 6, false>;
    c_shared_plain_pi_mutex: Of<C, 7, true>;
    c_pp_mutex: Of<C, 8, false>;
    c_shared_pp_mutex: Of<C, 9, true>;
    c_recursive_mutex: Of<C, 10, false>;
    c_robust_mutex: Of<C, 11, true>;
    c_robust_tp_mutex: Of<C, 12, true>;
    c_robust_pi_mutex: Of<C, 13, true>;
    c_robust_pp_mutex: Of<C, 14, true>;
    c_region_mutex: Of<C, 15, true>;
    c_region_tp_mutex: Of<C, 16, true>;
    cpp_mutex: Of<Cpp, 0, false>;
    cpp_shared_mutex: Of<Cpp, 1, true>;
    cpp_tp_mutex: Of<Cpp, 2, false>;
    cpp_shared_tp_mutex: Of<Cpp, 3, true>;
    cpp_pi_mutex: Of<Cpp, 4, false>;
    cpp_shared_pi_mutex: Of<Cpp, 5, true>;
    cpp_plain_pi_mutex: Of<Cpp, 6, false>;
    cpp_shared_plain_pi_mutex: Of<Cpp, 7, true>;
    cpp_pp_mutex: Of<Cpp, 8, false>;
    cpp_shared_pp_mutex: Of<Cpp, 9, true>;
    cpp_recursive_mutex: Of<Cpp, 10, false>;
    cpp_robust_mutex: Of<Cpp, 11, true>;
    cpp_robust_tp_mutex: Of<Cpp, 12, true>;
    cpp_robust_pi_mutex: Of<Cpp, 13, true>;
    cpp_robust_pp_mutex: Of<Cpp, 14, true>;
    cpp_region_mutex: Of<Cpp, 15, true>;
    cpp_region_tp_mutex: Of<Cpp, 16, true>;
}
