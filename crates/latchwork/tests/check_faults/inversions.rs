//! Tasks whose priorities the region knows, and the kernel does not, wait for one another.

use crate::at;
use crate::kinds::plain;
use crate::objects::{CEILING, region};
use crate::run::{Row, fault, harmless, name_thread, thread};
use latchwork::check::{self, Checked, Rule};
use latchwork::mutex::{Protocol, WaitWake};
use latchwork::region::Region;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, Priority,
};
use latchwork::sharing::Shared;
use latchwork_testkit::Child;
use std::thread::scope;
use std::time::Duration;

/// Longer than a wait for a task of lower priority may last.
const LONG: Duration = Duration::from_millis(20);

fn region_with_inversions() -> Region {
    let region = region();
    check::set_inversion(Duration::from_millis(1));
    region
}

fn set_priority(region: &Region, priority: u8) {
    let me = region.task_id().unwrap();
    let priority = Priority::new(priority).unwrap();
    me.set_priority(region, priority).unwrap();
}

/// A task of one priority waits for one of another, and each may have another one by then.
fn meet(
    kind: &BinaryOptions,
    [low, high]: [u8; 2],
    meanwhile: impl Fn(&Region, latchwork::region::TaskId),
) {
    let region = region_with_inversions();
    let semaphore = BinarySemaphore::create(&region, "s", kind).unwrap();
    set_priority(&region, low);
    at!("s", semaphore.obtain()).unwrap().keep();
    scope(|scope| {
        let (to, from) = std::sync::mpsc::channel();
        let (region, semaphore) = (&region, &semaphore);
        thread(scope, "high", move || {
            set_priority(region, high);
            to.send(region.task_id().unwrap()).unwrap();
            drop(at!("s", semaphore.obtain()).unwrap());
        });
        let waiter = from.recv().unwrap();
        while semaphore.waiting() == 0 {
            std::thread::yield_now();
        }
        meanwhile(region, waiter);
        std::thread::sleep(LONG);
        semaphore.release().unwrap();
    });
}

pub fn rows() -> Vec<Row> {
    const TASKS: crate::run::Tasks = &[("high", "", "s"), ("main", "s", "")];
    const NONE: fn(&Region, latchwork::region::TaskId) = |_, _| {};
    let inversion = |name, body| fault(name, Rule::NoInversion, TASKS, body);
    vec![
        inversion(
            "a task waits for one of lower recorded priority, plain semaphore",
            || meet(&BinaryOptions::new(), [200, 10], NONE),
        ),
        inversion("a recorded priority is raised during the wait", || {
            meet(&BinaryOptions::new(), [200, 201], |region, waiter| {
                waiter.set_priority(region, Priority::HIGHEST).unwrap();
            });
        }),
        inversion("a recorded priority is lowered during the wait", || {
            meet(&BinaryOptions::new(), [10, 20], |region, _| {
                set_priority(region, 30);
            });
        }),
        fault(
            "a task waits for one of lower recorded priority, checked mutex",
            Rule::NoInversion,
            &[("high", "", "a"), ("main", "a", "")],
            || {
                let region = region_with_inversions();
                let a = plain("a");
                set_priority(&region, 200);
                let _ = at!("a", a.acquire());
                scope(|scope| {
                    thread(scope, "high", || {
                        set_priority(&region, 10);
                        at!("a", a.acquire()).is_ok()
                    });
                    std::thread::park();
                });
            },
        ),
        fault(
            "a task waits for one of lower recorded priority in another process",
            Rule::NoInversion,
            &[("high", "", "m"), ("low", "m", "")],
            || {
                name_thread("high");
                let region = region_with_inversions();
                let make = || Checked::<WaitWake<Shared>>::named("m", WaitWake::new());
                let mutex = region.object("mutex", make).unwrap();
                let ready = CountingSemaphore::create(&region, "ready", 0, Discipline::Fifo);
                let ready = ready.unwrap();
                set_priority(&region, 50);
                let mut other = Child::fork(|| {
                    name_thread("low");
                    set_priority(&region, 51);
                    let _ = at!("m", mutex.acquire());
                    ready.release().unwrap();
                    std::thread::park();
                });
                ready.obtain().unwrap();
                let _ = at!("m", mutex.acquire());
                other.wait();
            },
        ),
        harmless("a task waits for one of the same recorded priority", || {
            meet(&BinaryOptions::new(), [50, 50], NONE);
        }),
        harmless("a task waits for one that inherits its priority", || {
            meet(&BinaryOptions::new().inherit(), [200, 10], NONE);
        }),
        harmless("a task waits for one at a ceiling", || {
            meet(&BinaryOptions::new().ceiling(CEILING), [200, 60], NONE);
        }),
        harmless("a task waits for one of higher recorded priority", || {
            meet(&BinaryOptions::new(), [5, 10], NONE);
        }),
    ]
}
