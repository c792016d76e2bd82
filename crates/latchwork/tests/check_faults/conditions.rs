//! Conditions with one mutex after another: until when a notification leaves waiters bound to theirs.

use crate::kinds::plain;
use crate::run::{Row, fault, harmless, thread};
use latchwork::check::{Checked, Rule};
use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, WaitWake};
use std::thread::scope;
use std::time::Duration;

/// So many threads wait with one mutex. The thread that has that mutex notifies them, so that none of them returns, and
/// waits with another.
fn wait_with_another(waiters: usize, notify: impl Fn(&Condvar)) {
    let a: Mutex<bool, Checked<WaitWake>> = Mutex::from_raw(plain("a"), false);
    let b = Mutex::from_raw(plain("b"), ());
    let changed = Condvar::new();
    scope(|scope| {
        for _ in 0..waiters {
            thread(scope, "waiter", || {
                drop(changed.wait_while(a.lock(), |done| !*done));
            });
        }
        crate::bounds::until_so_many_wait_for_a_condition(waiters);
        let mut done = a.lock();
        *done = true;
        notify(&changed);
        drop(changed.wait_for(b.lock(), Duration::from_millis(1)));
        drop(done);
        changed.notify_all();
    });
    // All have left: none is counted any more, nor too few.
    drop(changed.wait_for(b.lock(), Duration::from_millis(1)));
    drop(changed.wait_for(a.lock(), Duration::from_millis(1)));
}

pub fn rows() -> Vec<Row> {
    vec![
        harmless("another mutex after a notification of all", || {
            wait_with_another(3, Condvar::notify_all)
        }),
        harmless("another mutex after a notification of the only one", || {
            wait_with_another(1, Condvar::notify_one)
        }),
        harmless(
            "another mutex after as many notifications as waiters",
            || {
                wait_with_another(2, |changed| {
                    changed.notify_one();
                    changed.notify_one();
                })
            },
        ),
        fault(
            "another mutex after a notification of one of two",
            Rule::OneMutexPerCondition,
            &[("main", "", "?")],
            || wait_with_another(2, Condvar::notify_one),
        ),
        fault(
            "another mutex while those wait who came after a notification of all",
            Rule::OneMutexPerCondition,
            &[("main", "", "?")],
            || {
                wait_with_another(2, |changed| {
                    changed.notify_all();
                    let again: Mutex<(), Checked<WaitWake>> = Mutex::from_raw(plain("again"), ());
                    scope(|scope| {
                        let late = thread(scope, "late", || {
                            drop(changed.wait_for(again.lock(), Duration::from_secs(60)));
                        });
                        crate::bounds::until_so_many_wait(3);
                        let b = Mutex::from_raw(plain("b"), ());
                        drop(changed.wait_for(b.lock(), Duration::from_millis(1)));
                        changed.notify_all();
                        late.join().unwrap();
                    });
                })
            },
        ),
    ]
}
