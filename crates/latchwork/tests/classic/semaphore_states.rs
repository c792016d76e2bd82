//! The semaphore manager: what obtain and release do in each state of a semaphore.

use super::semaphore_support::{until, watched};
use super::*;
use latchwork::classic::{NO_TIMEOUT, NO_WAIT, WAIT};
use std::thread;

/// How the semaphore is when a directive comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Its count is 1, or nobody owns it.
    Free,
    /// The calling task owns it.
    Own,
    /// Its count is 0, or another task owns it.
    Taken,
}

/// Runs `directive` on a new semaphore in this state, by a task of priority 100.
fn in_state(attributes: u32, ceiling: u32, state: State, directive: impl FnOnce(Classic<'_>, Id)) {
    let region = region();
    let rtems = classic(&region, 4);
    at(rtems, 100);
    let id = create(rtems, 1, attributes, ceiling);
    let (taken, done) = (AtomicU32::new(0), AtomicU32::new(0));
    match state {
        State::Free => directive(rtems, id),
        State::Own => {
            assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Successful);
            directive(rtems, id);
            while rtems.semaphore_release(id) == Status::Successful && has_owner(attributes) {}
        }
        State::Taken => thread::scope(|scope| {
            let (taken, done) = (&taken, &done);
            scope.spawn(move || {
                at(rtems, 200);
                assert_eq!(rtems.semaphore_obtain(id, NO_WAIT, 0), Status::Successful);
                taken.store(1, SeqCst);
                until(|| done.load(SeqCst) == 1);
                rtems.semaphore_release(id);
            });
            until(|| taken.load(SeqCst) == 1);
            struct Done<'a>(&'a AtomicU32);
            impl Drop for Done<'_> {
                fn drop(&mut self) {
                    self.0.store(1, SeqCst);
                }
            }
            let _done = Done(done);
            directive(rtems, id);
        }),
    }
}

#[test]
fn mrsp_does_what_the_specification_says_in_each_state() {
    let _watchdog = watched("mrsp_does_what_the_specification_says_in_each_state");
    const MRSP: u32 = BINARY_SEMAPHORE | MULTIPROCESSOR_RESOURCE_SHARING | PRIORITY;
    let obtains = [(NO_WAIT, NO_TIMEOUT), (WAIT, NO_TIMEOUT), (WAIT, 1)];
    for (ceiling, state) in [50, 100, 200]
        .into_iter()
        .flat_map(|ceiling| [State::Free, State::Own, State::Taken].map(|state| (ceiling, state)))
        .filter(|case| *case != (200, State::Own))
    {
        for (options, ticks) in obtains {
            let is_above = ceiling == 200;
            // It would wait for ever.
            if state == State::Taken && (options, ticks) == (WAIT, NO_TIMEOUT) && !is_above {
                continue;
            }
            let expected = match state {
                State::Own => Status::IncorrectState,
                State::Taken if options == NO_WAIT => Status::Unsatisfied,
                _ if is_above => Status::InvalidPriority,
                State::Free => Status::Successful,
                State::Taken => Status::Timeout,
            };
            in_state(MRSP, ceiling, state, |rtems, id| {
                let what =
                    format!("ceiling {ceiling}, {state:?}, options {options}, {ticks} ticks");
                assert_eq!(
                    rtems.semaphore_obtain(id, options, ticks),
                    expected,
                    "{what}"
                );
                if state == State::Free && expected == Status::Successful {
                    assert_eq!(current(rtems, SELF), ceiling, "{what}");
                    assert_eq!(rtems.semaphore_release(id), Status::Successful);
                    assert_eq!(current(rtems, SELF), 100, "{what}");
                }
            });
        }
        in_state(MRSP, ceiling, state, |rtems, id| {
            assert_eq!(rtems.semaphore_flush(id), Status::NotDefined);
            let before = current(rtems, SELF);
            let mut old = 0;
            let set = rtems.semaphore_set_priority(id, SCHEDULER, 40, Some(&mut old));
            assert_eq!((set, old), (Status::Successful, ceiling));
            assert_eq!(
                (ceiling_of(rtems, id), current(rtems, SELF)),
                (Ok(40), before)
            );
            if state != State::Free {
                assert_eq!(rtems.semaphore_delete(id), Status::ResourceInUse);
            }
            let released = if state == State::Own {
                Status::Successful
            } else {
                Status::NotOwnerOfResource
            };
            assert_eq!(rtems.semaphore_release(id), released);
        });
    }
}

#[test]
fn obtain_does_what_the_specification_says_in_each_state() {
    let _watchdog = watched("obtain_does_what_the_specification_says_in_each_state");
    for attributes in ALL {
        let ceilings: &[u32] = if attributes & PRIORITY_CEILING != 0 {
            &[50, 100, 255]
        } else {
            &[0]
        };
        for ceiling in ceilings {
            for state in [State::Free, State::Own, State::Taken] {
                let above = *ceiling > 100;
                if state == State::Own && (above || !has_owner(attributes)) {
                    continue;
                }
                for (options, timeout) in [(NO_WAIT, 0), (NO_WAIT, 5), (WAIT, 3)] {
                    if above && state == State::Taken {
                        // The other task's priority is 200.
                        continue;
                    }
                    in_state(attributes, *ceiling, state, |rtems, id| {
                        let status = rtems.semaphore_obtain(id, options, timeout);
                        let expected = match state {
                            State::Free if above => Status::InvalidPriority,
                            State::Free | State::Own => Status::Successful,
                            State::Taken if options == NO_WAIT => Status::Unsatisfied,
                            State::Taken => Status::Timeout,
                        };
                        assert_eq!(status, expected, "{attributes:#x}, {ceiling}, {state:?}");
                        let raised =
                            expected == Status::Successful && attributes & PRIORITY_CEILING != 0;
                        let own = if raised { *ceiling.min(&100) } else { 100 };
                        assert_eq!(current(rtems, SELF), own);
                        if status == Status::Successful {
                            assert_eq!(rtems.semaphore_release(id), Status::Successful);
                        }
                    });
                }
            }
        }
    }
}

#[test]
fn release_does_what_the_specification_says_in_each_state() {
    let _watchdog = watched("release_does_what_the_specification_says_in_each_state");
    for attributes in ALL {
        for state in [State::Free, State::Own, State::Taken] {
            in_state(attributes, 50, state, |rtems, id| {
                let expected = match state {
                    _ if !has_owner(attributes) => Status::Successful,
                    State::Own => Status::Successful,
                    State::Free | State::Taken => Status::NotOwnerOfResource,
                };
                assert_eq!(
                    rtems.semaphore_release(id),
                    expected,
                    "{attributes:#x}, {state:?}"
                );
                if state == State::Own {
                    assert_eq!(current(rtems, SELF), 100);
                }
            });
        }
    }
    let region = region();
    let rtems = classic(&region, 1);
    let full = create(rtems, u32::MAX, 0, 0);
    assert_eq!(rtems.semaphore_release(full), Status::Unsatisfied);
}
