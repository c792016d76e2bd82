//! The cost of a new lock order, in visited edges and nodes, and for how many orders there is room.
#![allow(unsafe_code)]

use latchwork::check::hook::{self, How, Kind, Lock, Mode, Site};
use latchwork::check::{self, Finding, Rule};
use latchwork_testkit::{Child, Exit, Seed, Watchdog};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Findings by [`Rule::OneOrder`], by [`Rule::OneTaskOrder`], and by others.
static FOUND: [AtomicU32; 3] = [const { AtomicU32::new(0) }; 3];

fn count(finding: &Finding) {
    let which = match finding.rule {
        Rule::OneOrder => 0,
        Rule::OneTaskOrder => 1,
        _ => 2,
    };
    FOUND[which].fetch_add(1, Ordering::Relaxed);
}

fn found() -> [u32; 3] {
    FOUND.each_ref().map(|count| count.load(Ordering::Relaxed))
}

/// One of very many locks; all are first taken in one place.
fn lock(number: usize) -> Lock {
    Lock::new((1 << 40) + 64 * number, Kind::Mutex)
}

fn nest_at(first: usize, second: usize, site: Site) {
    for number in [first, second] {
        hook::taken(lock(number), Mode::Exclusive, How::Locked, site);
    }
    for number in [second, first] {
        let _ = hook::releasing(lock(number), site);
    }
}

fn nest(first: usize, second: usize) {
    nest_at(first, second, Site::from_return_address(0x1000));
}

/// In a process of its own.
fn apart(body: impl FnOnce()) {
    let _watchdog = Watchdog::start("very many orders of locks".into());
    Child::fork(|| {
        check::set_text(false);
        check::set_reporter(Some(count));
        body();
    })
    .succeed();
}

/// Each lock before the five that follow it.
fn orders_that_agree(locks: usize) {
    apart(|| {
        for first in 0..locks {
            (1..=5).for_each(|step| nest(first, first + step));
        }
        assert_eq!(check::totals().lost_orders, 0);
        // What is known of a lock and of an order is looked up, and nothing else.
        let work = check::order_work();
        assert!(work <= 4 * 5 * locks as u64, "{work}");
        assert_eq!(found(), [0, 0, 0]);
        // All of it is known still.
        std::thread::spawn(move || nest(locks, locks - 5))
            .join()
            .unwrap();
        assert_eq!(found(), [1, 0, 0]);
    });
}

#[test]
fn an_order_that_agrees_with_all_others_costs_the_same_among_20_000() {
    orders_that_agree(4_000);
}

#[test]
fn an_order_that_agrees_with_all_others_costs_the_same_among_80_000() {
    orders_that_agree(16_000);
}

/// The look-up of a class costs the same, however many there are.
#[test]
fn classes_of_locks_cost_the_same_among_10_000() {
    const LOCKS: usize = 10_000;
    apart(|| {
        for first in 0..LOCKS {
            nest_at(
                first,
                first + 1,
                Site::from_return_address(0x1000 + 16 * first),
            );
        }
        assert_eq!(check::totals().lost_orders, 0);
        let work = check::order_work();
        assert!(work <= 8 * LOCKS as u64, "{work}");
        assert_eq!(found(), [0, 0, 0]);
    });
}

/// A random order of all locks, of which random pairs are taken; in the end one against it.
#[test]
fn orders_that_come_as_they_may_are_put_in_order() {
    const LOCKS: usize = 4_000;
    apart(|| {
        let mut random = Seed::announced().rng(0);
        let mut place: Vec<usize> = (0..LOCKS).collect();
        for at in (1..LOCKS).rev() {
            place.swap(at, random.usize(..=at));
        }
        let mut last = (0, 0);
        for _ in 0..20_000 {
            let pair = [(); 2].map(|()| random.usize(..LOCKS));
            let (first, second) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
            if first != second {
                nest(place[first], place[second]);
                last = (place[first], place[second]);
            }
        }
        let work = check::order_work();
        println!("{work}");
        assert!(work <= 20 * 20_000, "{work}");
        assert_eq!(found(), [0, 0, 0]);
        std::thread::spawn(move || nest(last.1, last.0))
            .join()
            .unwrap();
        assert_eq!(found(), [1, 0, 0]);
    });
}

/// Both orders of random pairs: the number of visited edges is bounded, and so is the number of reports.
#[test]
fn orders_without_any_order_cost_a_bounded_amount() {
    const LOCKS: usize = 2_000;
    apart(|| {
        let mut random = Seed::announced().rng(0);
        for _ in 0..10_000 {
            let pair = [(); 2].map(|()| random.usize(..LOCKS));
            if pair[0] != pair[1] {
                nest(pair[0], pair[1]);
            }
        }
        let work = check::order_work();
        println!("{work}");
        assert!(work <= 400 * 10_000, "{work}");
        let [two, one, other] = found();
        assert!(two == 0 && (1..=64).contains(&one) && other == 0);
    });
}

/// A thread makes new orders while another forks; each child continues with the orders that it inherits.
#[test]
fn a_fork_in_the_midst_of_a_new_order_leaves_an_order() {
    const LOCKS: usize = 3_000;
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    let agreeing = |one: usize, other: usize| {
        if one != other {
            nest(one.min(other), one.max(other));
        }
    };
    apart(|| {
        let seed = Seed::announced();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = seed.rng(0);
                while !ENOUGH.load(Ordering::Relaxed) {
                    agreeing(random.usize(..LOCKS), random.usize(..LOCKS));
                }
            });
            // The thread ends whatever becomes of a child.
            let exits = [(); 20].map(|()| {
                let mut random = seed.rng(1);
                Child::fork(move || {
                    // A program and all that it forks report a finding once.
                    check::forget_reported();
                    for _ in 0..300 {
                        agreeing(random.usize(..LOCKS), random.usize(..LOCKS));
                    }
                    nest(LOCKS, LOCKS + 1);
                    assert_eq!(found(), [0, 0, 0]);
                    let back = || nest(LOCKS + 1, LOCKS);
                    std::thread::spawn(back).join().unwrap();
                    assert_eq!(found(), [1, 0, 0]);
                })
                .wait()
            });
            ENOUGH.store(true, Ordering::Relaxed);
            assert_eq!(exits, [(); 20].map(|()| Exit::Code(0)));
        });
    });
}

/// The kernel gives no more memory: orders that are known are still checked.
#[test]
fn without_memory_for_more_orders_those_that_are_known_count_still() {
    const LAST: usize = 20_000;
    apart(|| {
        nest(1, 2);
        nest(2, 1);
        assert_eq!(found(), [0, 1, 0]);
        let barrier = &Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nest(LAST + 1, LAST + 2);
                barrier.wait();
                barrier.wait();
                nest(2, 1);
            });
            barrier.wait();
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: reads the limit into a local variable.
            let read = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
            assert_eq!(read, 0);
            let usual = limit.rlim_cur;
            let mut set = |soft: libc::rlim_t| {
                limit.rlim_cur = soft;
                // SAFETY: a number for the child alone.
                assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
            };
            set(0);
            for first in 2..LAST {
                nest(first, first + 1);
            }
            assert!(check::totals().lost_orders > 0);
            assert_eq!(found(), [0, 1, 0]);
            // The other task now does what this one has done. (A report takes memory.)
            set(usual);
            barrier.wait();
        });
        assert_eq!(found(), [1, 1, 0]);
    });
}

/// Locks with nodes of their own are made and destroyed, more of them than there is room for.
#[test]
fn orders_of_destroyed_locks_are_recycled() {
    let _watchdog = Watchdog::start("very many locks".into());
    Child::fork(|| {
        check::set_text(false);
        static FOUND: AtomicU32 = AtomicU32::new(0);
        check::set_reporter(Some(|_| {
            FOUND.fetch_add(1, Ordering::Relaxed);
        }));
        let site = Site::caller();
        let exclusive = Mode::Exclusive;
        let take = |lock: Lock| hook::taken(lock, exclusive, How::Locked, site);
        let nest = |locks: &[Lock]| {
            locks.iter().for_each(|lock| take(*lock));
            for lock in locks.iter().rev() {
                let _ = hook::releasing(*lock, site);
            }
        };
        let lock = |number: usize| Lock::new((1 << 40) + 64 * number, Kind::Mutex);
        let made = |number: usize, name: &str| {
            hook::initialised(lock(number), Some(name), site);
            lock(number)
        };
        let [outer, inner] = [(10, "outer"), (11, "inner")].map(|(at, name)| made(at, name));
        let [one, other] = [1, 2].map(|number| made(number, "node"));
        nest(&[one, other]);
        // Known from now on, whichever locks are made and destroyed.
        nest(&[outer, inner]);
        for number in 100..80_000 {
            let node = made(number, "node");
            nest(&[outer, node, inner]);
            hook::destroyed(node, site);
        }
        assert_eq!(check::totals().lost_orders, 0);
        assert_eq!(FOUND.load(Ordering::Relaxed), 0);
        let in_turn = |locks: [Lock; 2]| {
            std::thread::scope(|scope| scope.spawn(|| nest(&locks)).join().unwrap());
        };
        in_turn([inner, outer]);
        assert_eq!(FOUND.load(Ordering::Relaxed), 1);
        let last = made(100, "node");
        nest(&[last, one]);
        in_turn([one, last]);
        assert_eq!(FOUND.load(Ordering::Relaxed), 2);
    })
    .succeed();
}
