//! The same queues, with robust mutexes, condition variables and completions of ours.
#![allow(unsafe_code)]

use std::io;
use std::pin::Pin;

use latchwork::completion::Completion;
use latchwork::condvar::Condvar;
use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::sharing::Shared;

use super::CAPACITY;
use super::pthread::{Meeting, Places};

pub(crate) type OurMutexCond = Places<OurConditions>;
pub(crate) type OurMutexSem = Places<OurSemaphores>;

type Lock = Mutex<(), Robust>;
type Guard<'a> = RobustGuard<'a, ()>;

/// The guard of a lock that was taken. A dead owner leaves the ring as it was before or after a step, which is one store:
/// there is nothing to repair.
fn taken<'a>(locked: Result<Guard<'a>, LockError<'a, ()>>) -> Guard<'a> {
    match locked {
        Ok(guard) => guard,
        Err(LockError::OwnerDied(died)) => died.make_consistent(),
        Err(error) => panic!("a lock of the benchmark cannot be taken: {error}"),
    }
}

/// One condition for messages, one for room.
pub(crate) struct OurConditions {
    mutex: Lock,
    conditions: [Condvar<Shared>; 2],
}

impl Meeting for OurConditions {
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        // SAFETY: by the contract; the value does not move from there.
        unsafe {
            this.write(Self {
                mutex: Mutex::robust(()),
                conditions: [Condvar::new_in(), Condvar::new_in()],
            });
        }
        Ok(())
    }

    fn exchange(&self, sends: bool, mut step: impl FnMut() -> bool) {
        let (mine, others) = (usize::from(sends), usize::from(!sends));
        // SAFETY: `settle` has put it in its place for good.
        let mutex = unsafe { Pin::new_unchecked(&self.mutex) };
        let mut guard = taken(mutex.lock());
        while !step() {
            guard = taken(self.conditions[mine].wait_robust(guard));
        }
        self.conditions[others].notify_all();
        drop(guard);
    }
}

/// One completion counts messages, one counts room. A task that is killed between its two calls takes a place with it.
pub(crate) struct OurSemaphores {
    mutex: Lock,
    tokens: [Completion<Shared>; 2],
}

impl Meeting for OurSemaphores {
    unsafe fn settle(this: *mut Self) -> io::Result<()> {
        let room = Completion::new_in();
        (0..CAPACITY).for_each(|_| room.complete());
        // SAFETY: by the contract; the value does not move from there.
        unsafe {
            this.write(Self {
                mutex: Mutex::robust(()),
                tokens: [Completion::new_in(), room],
            });
        }
        Ok(())
    }

    fn exchange(&self, sends: bool, mut step: impl FnMut() -> bool) {
        let (mine, others) = (usize::from(sends), usize::from(!sends));
        self.tokens[mine].wait();
        // SAFETY: `settle` has put it in its place for good.
        let guard = taken(unsafe { Pin::new_unchecked(&self.mutex) }.lock());
        let done = step();
        drop(guard);
        debug_assert!(done);
        self.tokens[others].complete();
    }
}

#[cfg(test)]
mod tests {
    use super::super::pthread::{Conditions, Semaphores};
    use super::super::{MessageQueue, Receives, Sends};
    use super::*;
    use crate::peers::process::Child;

    /// A sender is killed in its step, under the mutex; others continue.
    fn continues_after_a_death<M: Meeting>() {
        let queue = Places::<M>::make(64).unwrap();
        let send = |byte: u8| queue.sender().unwrap().send(&[byte; 64], 1).unwrap();
        send(1);
        let victim = Child::fork(|| {
            queue.meeting().exchange(true, || {
                // SAFETY: ends this process.
                unsafe { libc::raise(libc::SIGKILL) };
                true
            });
            0
        });
        assert!(crate::peers::process::wait_all(vec![victim.unwrap()]).is_err());
        send(2);
        let mut buffer = [0; 64];
        for byte in [1, 2] {
            queue.receiver().unwrap().receive(&mut buffer, 1).unwrap();
            assert_eq!(buffer, [byte; 64]);
        }
    }

    #[test]
    fn queues_with_robust_locks_continue_after_a_death() {
        continues_after_a_death::<OurConditions>();
        continues_after_a_death::<OurSemaphores>();
        continues_after_a_death::<Conditions<true>>();
        continues_after_a_death::<Semaphores<true>>();
    }
}
