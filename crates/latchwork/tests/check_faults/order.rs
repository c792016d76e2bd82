//! Orders that never hang, and would in another order of events.
#![allow(unsafe_code)]

use crate::kinds::{Make, plain};
use crate::misuse::rwlock;
use crate::run::{Row, Tasks, fault, suspected, thread};
use crate::{at, each};
use latchwork::check::{Checked, Rule};
use latchwork::mutex::{Protocol, WaitWake};
use std::thread::scope;

/// Runs one after the other, each on a thread of its own.
pub fn in_turn(bodies: &[(&str, &(dyn Fn() + Sync))]) {
    for (name, body) in bodies {
        scope(|scope| thread(scope, name, body).join().unwrap());
    }
}

/// Takes both, in this order, and releases them.
pub fn nest<P: Make>(first: &Checked<P>, second: &Checked<P>, names: [&str; 2]) {
    crate::run::mark(names[0], line!() + 1);
    let _ = first.acquire();
    crate::run::mark(names[1], line!() + 1);
    let _ = second.acquire();
    // SAFETY: taken.
    unsafe {
        second.release();
        first.release();
    }
}

/// The same while the gate is held.
fn gated(
    gate: &Checked<WaitWake>,
    first: &Checked<WaitWake>,
    second: &Checked<WaitWake>,
    names: [&str; 2],
) {
    let _ = gate.acquire();
    nest(first, second, names);
    // SAFETY: taken.
    unsafe { gate.release() };
}

/// Takes each by itself.
pub fn touch(locks: &[&Checked<WaitWake>]) {
    for lock in locks {
        let _ = lock.acquire();
        // SAFETY: taken.
        unsafe { lock.release() };
    }
}

pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    each!(rows, two_orders);
    rows.extend(single_rows());
    rows
}

const TWO: Tasks = &[("one", "a", "b"), ("two", "b", "a")];

fn two_orders<P: Make>() -> Row {
    fn body<P: Make>() {
        let (a, b) = (P::checked("a"), P::checked("b"));
        in_turn(&[
            ("one", &|| nest(&a, &b, ["a", "b"])),
            ("two", &|| nest(&b, &a, ["b", "a"])),
        ]);
    }
    let name = format!("two orders, {}", P::NAME);
    fault(name, Rule::OneOrder, TWO, body::<P>)
}

fn single_rows() -> Vec<Row> {
    vec![
        fault(
            "three orders",
            Rule::OneOrder,
            &[("one", "a", "b"), ("two", "b", "c"), ("three", "c", "a")],
            || {
                let [a, b, c] = ["a", "b", "c"].map(plain);
                in_turn(&[
                    ("one", &|| nest(&a, &b, ["a", "b"])),
                    ("two", &|| nest(&b, &c, ["b", "c"])),
                    ("three", &|| nest(&c, &a, ["c", "a"])),
                ]);
            },
        ),
        suspected(
            "two orders of classes, with different locks of them",
            TWO,
            || {
                let [a, b] = ["a", "b"].map(plain);
                let [other_a, other_b] = ["a", "b"].map(plain);
                let each = || touch(&[&a, &b, &other_a, &other_b]);
                in_turn(&[
                    ("one", &each),
                    ("two", &each),
                    ("one", &|| nest(&a, &b, ["a", "b"])),
                    ("two", &|| nest(&other_b, &other_a, ["b", "a"])),
                ]);
            },
        ),
        fault(
            "two orders of two locks of one class",
            Rule::OneOrder,
            &[("one", "n", "n"), ("two", "n", "n")],
            || {
                let [a, b] = ["n", "n"].map(plain);
                in_turn(&[
                    ("one", &|| nest(&a, &b, ["n", "n"])),
                    ("two", &|| nest(&b, &a, ["n", "n"])),
                ]);
            },
        ),
        fault(
            "two orders, gates that are not the same",
            Rule::OneOrder,
            TWO,
            || {
                let [a, b, g, h] = ["a", "b", "g", "h"].map(plain);
                in_turn(&[
                    ("one", &|| gated(&g, &a, &b, ["a", "b"])),
                    ("two", &|| gated(&h, &b, &a, ["b", "a"])),
                ]);
            },
        ),
        fault(
            "two orders, gates that were at one address one after the other",
            Rule::OneOrder,
            TWO,
            || {
                let [a, b, mut gate] = ["a", "b", "g"].map(plain);
                for (name, first, second, names) in
                    [("one", &a, &b, ["a", "b"]), ("two", &b, &a, ["b", "a"])]
                {
                    in_turn(&[(name, &|| gated(&gate, first, second, names))]);
                    gate = plain("h");
                }
            },
        ),
        fault(
            "two orders, one of them under more gates than are kept",
            Rule::OneOrder,
            TWO,
            || {
                let [a, b] = ["a", "b"].map(plain);
                let many: [_; 12] = std::array::from_fn(|_| plain("g"));
                in_turn(&[
                    ("one", &|| {
                        many.iter().for_each(|gate| _ = gate.acquire());
                        nest(&a, &b, ["a", "b"]);
                        // SAFETY: taken.
                        many.iter().for_each(|gate| unsafe { gate.release() });
                    }),
                    ("two", &|| nest(&b, &a, ["b", "a"])),
                ]);
            },
        ),
        fault(
            "two orders, one of them with the gate and then without",
            Rule::OneOrder,
            TWO,
            || {
                let [a, b, g] = ["a", "b", "g"].map(plain);
                let gated = |first, second, names| {
                    let _ = g.acquire();
                    nest(first, second, names);
                    // SAFETY: taken.
                    unsafe { g.release() };
                };
                in_turn(&[
                    ("one", &|| gated(&a, &b, ["a", "b"])),
                    ("two", &|| gated(&b, &a, ["b", "a"])),
                    ("one", &|| nest(&a, &b, ["a", "b"])),
                    ("two", &|| nest(&b, &a, ["b", "a"])),
                ]);
            },
        ),
        fault(
            "two orders of readers and writers",
            Rule::OneOrder,
            TWO,
            || {
                let (a, b) = (rwlock("a"), rwlock("b"));
                in_turn(&[
                    ("one", &|| {
                        let _a = at!("a", a.read());
                        let _b = at!("b", b.write());
                    }),
                    ("two", &|| {
                        let _b = at!("b", b.read());
                        let _a = at!("a", a.write());
                    }),
                ]);
            },
        ),
        fault(
            "two orders, one by a timed call",
            Rule::OneOrder,
            TWO,
            || {
                let [a, b] = ["a", "b"].map(plain);
                in_turn(&[
                    ("one", &|| nest(&a, &b, ["a", "b"])),
                    ("two", &|| {
                        let _ = at!("b", b.acquire());
                        let deadline =
                            latchwork::time::Deadline::after(std::time::Duration::from_secs(9));
                        let _ = at!("a", a.acquire_until(deadline));
                        // SAFETY: taken.
                        unsafe {
                            a.release();
                            b.release();
                        }
                    }),
                ]);
            },
        ),
        fault(
            "two orders, the first lock by a call that never waits",
            Rule::OneOrder,
            TWO,
            || {
                let [a, b] = ["a", "b"].map(plain);
                let tried =
                    |first: &Checked<WaitWake>, second: &Checked<WaitWake>, names: [&str; 2]| {
                        crate::run::mark(names[0], line!() + 1);
                        assert!(first.try_acquire().unwrap());
                        crate::run::mark(names[1], line!() + 1);
                        let _ = second.acquire();
                        // SAFETY: taken.
                        unsafe {
                            second.release();
                            first.release();
                        }
                    };
                in_turn(&[
                    ("one", &|| tried(&a, &b, ["a", "b"])),
                    ("two", &|| tried(&b, &a, ["b", "a"])),
                ]);
            },
        ),
    ]
}
