//! With the feature `check` all locks of a program are checked, whatever their types say.
#![allow(unsafe_code)]

use latchwork::check::{self, Finding, Rule};
use latchwork::condvar::Condvar;
use latchwork::mutex::{Inherit, Mutex, Robust, Throughput};
use latchwork::region::RegionOptions;
use latchwork::rwlock::RwLock;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore};
use std::pin::Pin;
use std::sync::Mutex as StdMutex;

static FOUND: StdMutex<Vec<(Rule, String)>> = StdMutex::new(Vec::new());

fn note(finding: &Finding) {
    FOUND
        .lock()
        .unwrap()
        .push((finding.rule, finding.summary.to_string()));
}

/// What was found since the last call.
fn found() -> Vec<Rule> {
    FOUND
        .lock()
        .unwrap()
        .drain(..)
        .map(|(rule, summary)| {
            println!("{summary}");
            rule
        })
        .collect()
}

/// Both orders, one after the other, by two tasks.
fn both_orders(first: impl Fn() + Send, second: impl Fn() + Send) {
    std::thread::scope(|scope| scope.spawn(first).join().unwrap());
    std::thread::scope(|scope| scope.spawn(second).join().unwrap());
}

static EARLY: Mutex<u32> = Mutex::new(0);
static EARLY_TOO: Mutex<u32> = Mutex::new(0);

/// A constructor of the program, which locks.
extern "C" fn before_main() {
    drop((EARLY.lock(), EARLY_TOO.lock()));
}

// SAFETY: a section of pointers to such functions.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// One test, since findings are the process's.
#[test]
fn locks_of_all_kinds_are_checked_without_being_told() {
    check::set_text(false);
    check::set_reporter(Some(note));

    // What a constructor locks is seen: it has made the other order.
    drop((EARLY_TOO.lock(), EARLY.lock()));
    assert_eq!(found(), [Rule::OneOrder]);

    static A: Mutex<u32> = Mutex::new(0);
    static B: Mutex<u32, Throughput> = Mutex::throughput(0);
    both_orders(|| drop((A.lock(), B.lock())), || drop((B.lock(), A.lock())));
    assert_eq!(found(), [Rule::OneOrder]);

    static I: Mutex<u32, Inherit> = Mutex::inherit(0);
    static W: RwLock<u32> = RwLock::new(0);
    both_orders(
        || drop((I.lock(), W.write())),
        || drop((W.write(), I.lock())),
    );
    assert_eq!(found(), [Rule::OneOrder]);

    static R: Mutex<u32, Robust> = Mutex::robust(0);
    static S: Mutex<u32, Robust> = Mutex::robust(0);
    let lock = |lock: &'static Mutex<u32, Robust>| Pin::static_ref(lock).lock().unwrap();
    both_orders(|| drop((lock(&R), lock(&S))), || drop((lock(&S), lock(&R))));
    assert_eq!(found(), [Rule::OneOrder]);
    let held = lock(&R);
    assert!(Pin::static_ref(&R).lock().is_err());
    drop(held);
    assert_eq!(found(), [Rule::NoRecursion]);

    std::thread::spawn(|| std::mem::forget(A.lock()))
        .join()
        .unwrap();
    assert_eq!(found(), [Rule::NoExitHolding]);

    let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous();
    let region = region.unwrap();
    let semaphore = BinarySemaphore::create(&region, "semaphore", &BinaryOptions::new());
    let semaphore = semaphore.unwrap();
    static N: Mutex<u32> = Mutex::new(0);
    both_orders(
        || drop((semaphore.obtain().unwrap(), N.lock())),
        || drop((N.lock(), semaphore.obtain().unwrap())),
    );
    assert_eq!(found(), [Rule::OneOrder]);
    assert!(semaphore.release().is_err());
    assert_eq!(found(), [Rule::NoDoubleUnlock]);

    // One task so far; then another takes part.
    static C: Mutex<u32> = Mutex::new(0);
    static D: Mutex<u32> = Mutex::new(0);
    drop((C.lock(), D.lock()));
    drop((D.lock(), C.lock()));
    assert_eq!(found(), [Rule::OneTaskOrder]);
    std::thread::spawn(|| drop((D.lock(), C.lock())))
        .join()
        .unwrap();
    assert_eq!(found(), [Rule::OneOrder]);

    // Each task waits for a condition with a lock of its own held.
    static COMMON: Mutex<u32> = Mutex::new(0);
    static ALL_WAIT: Condvar = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let own = Mutex::new(());
                let mut waiting = COMMON.lock();
                *waiting += 1;
                let held = own.lock();
                if *waiting == 3 {
                    ALL_WAIT.notify_all();
                }
                drop(ALL_WAIT.wait_while(waiting, |waiting| *waiting < 3));
                drop(held);
            });
        }
    });
    assert_eq!(found(), []);

    // Who was notified waits no more, even if it has not come back.
    static OTHER: Mutex<()> = Mutex::new(());
    static WAITS: Mutex<u32> = Mutex::new(0);
    static DONE: Condvar = Condvar::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut waits = WAITS.lock();
            *waits = 1;
            drop(DONE.wait_while(waits, |waits| *waits == 1));
        });
        let mut waits = loop {
            let waits = WAITS.lock();
            if *waits == 1 {
                break waits;
            }
        };
        *waits = 2;
        DONE.notify_all();
        let short = std::time::Duration::from_millis(1);
        drop(DONE.wait_for(OTHER.lock(), short));
    });
    assert_eq!(found(), []);

    // A traced lock reports what any other lock call reports.
    static T: Mutex<u32, Throughput> = Mutex::throughput(0);
    static U: Mutex<u32> = Mutex::new(0);
    drop(T.lock_traced());
    drop(T.lock());
    drop(T.lock_traced());
    assert_eq!(found(), []);
    both_orders(
        || drop((T.lock_traced(), U.lock())),
        || drop((U.lock(), T.lock_traced())),
    );
    assert_eq!(found(), [Rule::OneOrder]);
    // Its wait is reported, too: with the one below it makes a cycle, which ends at a deadline.
    let (held, _) = T.lock_traced();
    let mut rules = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = U.lock();
            drop((T.lock_traced(), other));
        });
        // Until the other task has U and waits, however late it starts.
        let _watchdog = latchwork_testkit::Watchdog::start("the cycle of T and U".into());
        while rules.is_empty() {
            drop(U.lock_for(std::time::Duration::from_millis(1)));
            rules.extend(found());
        }
        drop(held);
    });
    assert_eq!(rules, [Rule::NoDeadlock]);
    assert_eq!(found(), []);

    static M: Mutex<bool> = Mutex::new(false);
    static CHANGED: Condvar = Condvar::new();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(CHANGED.wait_while(M.lock(), |done| !*done)));
        *M.lock() = true;
        CHANGED.notify_all();
    });
    let reading = (W.read(), W.read());
    drop(reading);
    assert_eq!(found(), []);
}
