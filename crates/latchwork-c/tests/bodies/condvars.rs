//! Condition variables, with each kind of mutex.
#![allow(unsafe_code)]

use super::*;

use core::marker::PhantomData;
use latchwork_testkit::bodies::condvar::Contestant;

pub(super) struct Of<L, const KIND: usize, const SHARED: bool> {
    mutex: Place<8>,
    changed: Place<4>,
    number: UnsafeCell<u64>,
    language: PhantomData<L>,
}

// SAFETY: the number is looked at under the mutex.
unsafe impl<L, const KIND: usize, const SHARED: bool> Sync for Of<L, KIND, SHARED> {}

impl<L: Language, const KIND: usize, const SHARED: bool> Of<L, KIND, SHARED> {
    fn inside<R>(&self, body: impl FnOnce(&mut u64) -> R) -> R {
        let (kind, mutex) = (L::mutex(KIND), self.mutex.address());
        // SAFETY: a mutex of this kind; it is released once, here.
        let _unlocked = unsafe {
            assert_eq!((kind.lock)(mutex), 0);
            Finally(move || assert_eq!((kind.unlock)(mutex), 0))
        };
        // SAFETY: the mutex is taken.
        body(unsafe { &mut *self.number.get() })
    }
}

impl<L: Language, const KIND: usize, const SHARED: bool> Contestant for Of<L, KIND, SHARED> {
    const SHARED: bool = SHARED;
    fn is_permitted(test: &str) -> bool {
        is_permitted::<L>(KIND, test)
    }
    fn make() -> Self {
        let (mutex, changed) = (Place::zeroed(), Place::zeroed());
        assert!(L::mutex(KIND).size <= size_of_val(&mutex));
        assert!(L::mutex(KIND).cond_size <= size_of_val(&changed));
        // SAFETY: there is room; a condition variable is zeros.
        unsafe { (L::mutex(KIND).make)(mutex.address()) };
        Self {
            mutex,
            changed,
            number: UnsafeCell::new(0),
            language: PhantomData,
        }
    }
    fn change_and(&self, all: bool, change: impl FnOnce(&mut u64), rest: impl FnOnce()) {
        self.inside(|number| {
            change(number);
            // SAFETY: a condition variable of this kind.
            unsafe { (L::mutex(KIND).notify)(self.changed.address(), all.into()) };
            rest();
        });
    }
    fn wait_while(
        &self,
        deadline: Option<Deadline>,
        mut condition: impl FnMut(u64) -> bool,
        then: impl FnOnce(&mut u64),
    ) -> bool {
        let kind = L::mutex(KIND);
        let (mutex, changed) = (self.mutex.address(), self.changed.address());
        let until = deadline.map(timespec_of);
        self.inside(|number| {
            let number = ptr::from_mut(number);
            let mut in_time = true;
            // SAFETY: the mutex is held wherever the number is looked at; others change it during the waits.
            unsafe {
                while condition(number.read_volatile()) {
                    in_time = match &until {
                        None => got((kind.wait)(changed, mutex), 0),
                        Some(until) => got((kind.wait_until)(changed, mutex, until), ETIMEDOUT),
                    };
                    if !in_time {
                        in_time = !condition(number.read_volatile());
                        break;
                    }
                }
                if in_time {
                    then(&mut *number);
                }
            }
            in_time
        })
    }
}

latchwork_testkit::condvar_conformance! {
    c_mutex: Of<C, 0, false>;
    c_shared_mutex: Of<C, 1, true>;
    c_tp_mutex: Of<C, 2, false>;
    c_shared_tp_mutex: Of<C, 3, true>;
    c_pi_mutex: Of<C, 4, false>;
    c_plain_pi_mutex: Of<C, 6, false>;
    c_pp_mutex: Of<C, 8, false>;
    c_recursive_mutex: Of<C, 10, false>;
    c_robust_mutex: Of<C, 11, true>;
    c_robust_tp_mutex: Of<C, 12, true>;
    c_robust_pi_mutex: Of<C, 13, true>;
    c_region_mutex: Of<C, 15, true>;
    c_region_tp_mutex: Of<C, 16, true>;
    cpp_mutex: Of<Cpp, 0, false>;
    cpp_shared_mutex: Of<Cpp, 1, true>;
    cpp_tp_mutex: Of<Cpp, 2, false>;
    cpp_shared_tp_mutex: Of<Cpp, 3, true>;
    cpp_pi_mutex: Of<Cpp, 4, false>;
    cpp_recursive_mutex: Of<Cpp, 10, false>;
    cpp_robust_mutex: Of<Cpp, 11, true>;
    cpp_robust_tp_mutex: Of<Cpp, 12, true>;
    cpp_robust_pi_mutex: Of<Cpp, 13, true>;
    cpp_region_mutex: Of<Cpp, 15, true>;
    cpp_region_tp_mutex: Of<Cpp, 16, true>;
}
