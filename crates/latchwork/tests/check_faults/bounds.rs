//! Faults and harmless programs at the bounds of the checker's tables, and at places that are used again.
#![allow(unsafe_code)]

use crate::at;
use crate::kinds::plain;
use crate::misuse::rwlock;
use crate::run::{Row, Tasks, fault, harmless, thread, unreported};
use latchwork::check::hook::{self, Kind, Lock, Site};
use latchwork::check::{BoardReader, Checked, Refused, Refuses, Rule};
use latchwork::condvar::Condvar;
use latchwork::mutex::{Mutex, Protocol, WaitWake};
use latchwork_testkit::{Child, Watchdog};
use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};
use std::thread::scope;
use std::time::Duration;

type Plain = Checked<WaitWake>;

pub fn rows() -> Vec<Row> {
    let mut rows = fault_rows();
    rows.extend(harmless_rows());
    rows
}

/// How many threads of this process say that they wait.
pub fn waiting() -> usize {
    waiting_for(|_| true)
}

/// How many of them say that they wait for an object that is selected.
fn waiting_for(is_it: impl Fn(Lock) -> bool) -> usize {
    // None as long as nobody has used a lock.
    let board = BoardReader::of(std::process::id());
    let tasks = board.map_or(Vec::new(), |board| board.tasks());
    let wants = tasks.iter().filter_map(|task| task.view.wants);
    wants.filter(|wants| is_it(wants.lock)).count()
}

pub fn until_so_many_wait(count: usize) {
    while waiting() < count {
        std::thread::yield_now();
    }
}

/// As [`until_so_many_wait`], for a condition: waiters that come at the same time wait for their mutex before that.
pub fn until_so_many_wait_for_a_condition(count: usize) {
    while waiting_for(|lock| lock.kind == Kind::Condvar) < count {
        std::thread::yield_now();
    }
}

/// A thread that does what it is sent, one thing after the other.
fn on_call<'s>(scope: &'s std::thread::Scope<'s, '_>, name: &str) -> impl Fn(Job<'s>) {
    let (jobs, todo) = channel::<(Job<'s>, Sender<()>)>();
    thread(scope, name, move || {
        for (job, done) in todo {
            job();
            let _ = done.send(());
        }
    });
    move |job| {
        let (done, is_done) = channel();
        jobs.send((job, done)).expect("the thread lives");
        is_done.recv().expect("the job ends");
    }
}

type Job<'s> = Box<dyn FnOnce() + Send + 's>;

/// Takes the first and then the second, and releases both.
fn nest(first: (&Plain, &str), second: (&Plain, &str)) {
    crate::run::mark(first.1, line!() + 1);
    let _ = first.0.acquire();
    crate::run::mark(second.1, line!() + 1);
    let _ = second.0.acquire();
    // SAFETY: taken.
    unsafe {
        second.0.release();
        first.0.release();
    }
}

const RING: usize = 40;

/// The one that closes the ring, and as many behind it as a finding has room for.
fn ring_tasks() -> Tasks {
    let name = |kind: &str, number: usize| &*format!("{kind}{}", number % RING).leak();
    let tasks = (RING - 1..RING + 15).map(|at| (name("t", at), name("l", at), name("l", at + 1)));
    Vec::leak(tasks.collect())
}

fn ring() {
    let locks: Vec<_> = (0..RING).map(|at| plain(&format!("l{at}"))).collect();
    let all = Barrier::new(RING);
    scope(|scope| {
        for at in 0..RING {
            let (locks, all) = (&locks, &all);
            thread(scope, &format!("t{at}"), move || {
                let next = (at + 1) % RING;
                crate::run::mark(&format!("l{at}"), line!() + 1);
                let _ = locks[at].acquire();
                all.wait();
                if next == 0 {
                    until_so_many_wait(RING - 1);
                }
                crate::run::mark(&format!("l{next}"), line!() + 1);
                let _ = locks[next].acquire();
            });
        }
    });
}

/// Makes the next thread get this number, if no other process creates one first and the caller is permitted to.
fn wish_for_number(number: u32) -> bool {
    let last = (number - 1).to_string();
    std::fs::write("/proc/sys/kernel/ns_last_pid", last).is_ok()
}

fn thread_number() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Two tasks, of which the later has the number that the earlier had.
fn two_of_one_number() {
    let (a, b) = (plain("a"), plain("b"));
    let run = |name: &str, body: &(dyn Fn() -> u32 + Sync)| {
        scope(|scope| thread(scope, name, body).join().unwrap())
    };
    let first = run("one", &|| {
        nest((&a, "a"), (&b, "b"));
        thread_number()
    });
    for attempt in 0..1000 {
        // Without the right, or if somebody else has the number, any two will do.
        let is_last = attempt == 999 || !wish_for_number(first);
        let second = run("two", &|| {
            let number = thread_number();
            if number == first || is_last {
                nest((&b, "b"), (&a, "a"));
            }
            number
        });
        if second == first || is_last {
            return;
        }
    }
}

fn fault_rows() -> Vec<Row> {
    vec![
        fault(
            "two orders of two tasks of one number",
            Rule::OneOrder,
            &[("one", "a", "b"), ("two", "b", "a")],
            two_of_one_number,
        ),
        fault(
            "two orders, of which two tasks have taken the first one",
            Rule::OneOrder,
            &[("one", "b", "a"), ("two", "a", "b")],
            || {
                let [a, b] = ["a", "b"].map(plain);
                let (a, b) = (&a, &b);
                scope(|scope| {
                    let one = on_call(scope, "one");
                    one(Box::new(|| nest((a, "a"), (b, "b"))));
                    let two = on_call(scope, "two");
                    two(Box::new(|| nest((a, "a"), (b, "b"))));
                    one(Box::new(|| nest((b, "b"), (a, "a"))));
                });
            },
        ),
        fault("cycle of forty", Rule::NoDeadlock, ring_tasks(), ring),
        fault(
            "one of three hundred readers is in the way",
            Rule::NoDeadlock,
            &[("one", "a", "b"), ("two", "b", "a")],
            || {
                const CROWD: usize = 300;
                let (a, b) = (rwlock("a"), plain("b"));
                let (crowd, both) = (Barrier::new(CROWD + 1), Barrier::new(2));
                scope(|scope| {
                    for _ in 0..CROWD {
                        thread(scope, "bystander", || {
                            let _a = a.read();
                            crowd.wait();
                            std::thread::park();
                        });
                    }
                    crowd.wait();
                    thread(scope, "one", || {
                        let _a = at!("a", a.read());
                        both.wait();
                        let _ = at!("b", b.acquire());
                    });
                    thread(scope, "two", || {
                        let _ = at!("b", b.acquire());
                        both.wait();
                        until_so_many_wait(1);
                        let _a = at!("a", a.write());
                    });
                });
            },
        ),
        fault(
            "two orders, the one seen before two of its class were held at once",
            Rule::OneOrder,
            &[("one", "node", "c"), ("two", "c", "node")],
            || {
                let [first, second] = ["node", "node"].map(plain);
                let c = plain("c");
                let (first, second, c) = (&first, &second, &c);
                scope(|scope| {
                    let one = on_call(scope, "one");
                    one(Box::new(|| nest((first, "node"), (c, "c"))));
                    nest((first, "node"), (second, "node"));
                    on_call(scope, "two")(Box::new(|| nest((c, "c"), (first, "node"))));
                    one(Box::new(|| nest((first, "node"), (c, "c"))));
                });
            },
        ),
        fault(
            "two orders, the one seen before at an address that another lock had",
            Rule::OneOrder,
            &[("one", "a", "new"), ("two", "new", "a")],
            || {
                let a = plain("a");
                let mut place = MaybeUninit::<Plain>::uninit();
                let at = place.as_mut_ptr().expose_provenance();
                // SAFETY: where a lock was written before.
                let other = move || unsafe { &*std::ptr::with_exposed_provenance::<Plain>(at) };
                place.write(plain("old"));
                scope(|scope| {
                    let one = on_call(scope, "one");
                    one(Box::new(|| nest((&a, "a"), (other(), "old"))));
                    // SAFETY: written above; nobody uses it.
                    unsafe { place.assume_init_drop() };
                    place.write(plain("new"));
                    on_call(scope, "two")(Box::new(|| nest((other(), "new"), (&a, "a"))));
                    one(Box::new(|| nest((&a, "a"), (other(), "new"))));
                });
            },
        ),
        fault(
            "a lock whose name speaks to the terminal",
            Rule::NoRecursion,
            &[("main", "a?[31m?b", "a?[31m?b")],
            || {
                let lock = plain("a\x1b[31m\nb");
                let _ = at!("a?[31m?b", lock.acquire());
                let _ = at!("a?[31m?b", lock.acquire());
            },
        ),
    ]
}

fn harmless_rows() -> Vec<Row> {
    const DEEP: usize = 5000;
    vec![
        harmless("a reader that reads five thousand times over", || {
            let lock = rwlock("a");
            let held: Vec<_> = (0..DEEP).map(|_| lock.read()).collect();
            drop(held);
            scope(|scope| {
                thread(scope, "other", || drop(lock.write()))
                    .join()
                    .unwrap()
            });
        }),
        harmless("more threads than there is room for", || {
            const THREADS: usize = latchwork::check::layout::PLACES + 8;
            let lock = &plain("a");
            let touch = || {
                let _ = lock.acquire();
                // SAFETY: taken.
                unsafe { lock.release() };
            };
            let all = Barrier::new(THREADS + 1);
            let begin = std::thread::Builder::new;
            scope(|scope| {
                for _ in 0..THREADS {
                    let body = || {
                        touch();
                        all.wait();
                        all.wait();
                    };
                    let small = begin().stack_size(128 << 10);
                    small.spawn_scoped(scope, body).expect("a thread");
                }
                all.wait();
                let (to, is_free) = channel();
                let last = begin().spawn_scoped(scope, move || {
                    let _ = lock.acquire();
                    // There is room again by then.
                    is_free.recv().expect("the others end");
                    // SAFETY: taken.
                    unsafe { lock.release() };
                    let _ = lock.acquire();
                    // SAFETY: as above.
                    unsafe { lock.release() };
                });
                all.wait();
                let is_alone = || std::fs::read_dir("/proc/self/task").unwrap().count() == 2;
                while !is_alone() {
                    std::thread::yield_now();
                }
                to.send(()).unwrap();
                last.unwrap().join().unwrap();
            });
        }),
        harmless(
            "the place of a thread that ended with many locks held",
            || {
                let mut places = [const { MaybeUninit::<Plain>::uninit() }; 20];
                unreported(|| {
                    let places = &mut places;
                    let takes_all = || {
                        for place in places {
                            let _ = place.write(plain("old")).acquire();
                        }
                    };
                    scope(|scope| thread(scope, "first", takes_all).join().unwrap());
                });
                let own = &plain("own");
                scope(|scope| {
                    let heir = on_call(scope, "heir");
                    heir(Box::new(move || {
                        let _ = own.acquire();
                    }));
                    unreported(|| {
                        for place in &mut places {
                            // SAFETY: written above; nobody uses it.
                            unsafe { place.assume_init_drop() };
                        }
                    });
                    for place in &mut places {
                        let new = place.write(plain("new"));
                        let _ = new.acquire();
                        // SAFETY: taken.
                        unsafe { new.release() };
                        // SAFETY: written above.
                        unsafe { place.assume_init_drop() };
                    }
                    heir(Box::new(move || {
                        // SAFETY: taken.
                        unsafe { own.release() };
                    }));
                });
            },
        ),
        harmless("a condition made anew before the last one has left", || {
            let [condition, a, b] = [(64, Kind::Condvar), (128, Kind::Mutex), (192, Kind::Mutex)]
                .map(|(at, kind)| Lock::new(at, kind));
            let site = Site::UNKNOWN;
            let take = |mutex| hook::taken(mutex, hook::Mode::Exclusive, hook::How::Locked, site);
            let wait = |mutex| {
                take(mutex);
                let _ = hook::condvar_begins(condition, mutex, false, site);
            };
            hook::initialised(condition, None, site);
            wait(a);
            // Woken, and on its way: the standard allows it.
            hook::destroyed(condition, site);
            hook::initialised(condition, None, site);
            hook::condvar_ends(condition, a, true, site);
            let _ = hook::releasing(a, site);
            scope(|scope| {
                thread(scope, "other", || {
                    wait(b);
                    hook::condvar_ends(condition, b, true, site);
                    let _ = hook::releasing(b, site);
                });
            });
        }),
    ]
}

/// The waiter needs the mutex after the deadline, too, so the deadline does not end the deadlock.
#[test]
fn the_deadline_of_a_condition_ends_no_cycle_through_its_mutex() {
    let _watchdog = Watchdog::start("a refusing lock waits".into());
    Child::fork(|| {
        latchwork::check::set_text(false);
        let b = Checked::<WaitWake, Refuses>::named("b", WaitWake::new());
        let m = Mutex::from_raw(plain("m"), ());
        let condition = Condvar::new();
        scope(|scope| {
            thread(scope, "one", || {
                b.acquire().unwrap();
                drop(condition.wait_for(m.lock(), Duration::from_secs(3600)));
                // SAFETY: taken.
                unsafe { b.release() };
            });
            until_so_many_wait(1);
            let guard = m.lock();
            assert_eq!(b.acquire(), Err(Refused::Deadlock));
            drop(guard);
            condition.notify_all();
        });
    })
    .succeed();
}
