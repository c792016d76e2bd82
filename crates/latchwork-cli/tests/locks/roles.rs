//! The roles of inspected programs: each creates its situation, prints "ready", and stays until it is dropped.

use super::actor::{NAME, ROLE};
use latchwork::check::{self, Checked, CheckedRwLock, hook, set_on};
use latchwork::coproc::{Attributes, Coprocs};
use latchwork::event::{EventSet, Events};
use latchwork::mutex::{Inherit, Mutex, Robust, Throughput, WaitWake};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::{RawRwLock, RegionRwLock};
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{
    BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline, Priority, PriorityMutex,
    PriorityMutexOptions,
};
use latchwork::sharing::Shared;
use std::io::Read;
use std::pin::Pin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

/// No test: what an [`Actor`] plays.
#[test]
fn role() {
    let (Ok(role), Ok(name)) = (std::env::var(ROLE), std::env::var(NAME)) else {
        return;
    };
    match role.as_str() {
        "own" => own(),
        "limited" => limited(),
        "checked" => checked(),
        "reported" => reported(),
        "readers" => readers(),
        "module" => super::traps::module(&name),
        "board" => super::traps::board(),
        "region" => region(&name),
        "region-mutexes" => mutexes(&name),
        "region-deaths" => deaths(&name),
        "busy" => busy(&name),
        "crowd" => crowd(&name),
        other => panic!("no such part: {other}"),
    }
}

pub fn until_the_end() {
    println!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // Threads that wait for ever are left alone.
    std::process::exit(0);
}

pub fn task(name: &'static str, body: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .unwrap();
}

static PLAIN: Mutex<u32> = Mutex::new(0);
static THROUGHPUT: Mutex<u32, Throughput> = Mutex::throughput(0);
static INHERIT: Mutex<u32, Inherit> = Mutex::inherit(0);
static ROBUST: Mutex<u32, Robust> = Mutex::robust(0);
static ROBUST_PI: Mutex<u32, Robust<Inherit<Shared>>> = Mutex::robust_inherit(0);
static UNWANTED: Mutex<u32, Robust> = Mutex::robust(0);

fn own() {
    let (held, all_held) = mpsc::channel();
    task("holder", move || {
        let _plain = PLAIN.lock();
        let _throughput = THROUGHPUT.lock();
        let _inherit = INHERIT.lock().unwrap();
        let _robust = Pin::static_ref(&ROBUST).lock().unwrap();
        let _robust_pi = Pin::static_ref(&ROBUST_PI).lock().unwrap();
        let _unwanted = Pin::static_ref(&UNWANTED).lock().unwrap();
        held.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    all_held.recv().unwrap();
    task("for plain", || drop(PLAIN.lock()));
    task("for throughput", || drop(THROUGHPUT.lock()));
    task("for inherit", || drop(INHERIT.lock().unwrap()));
    task("for robust", || {
        drop(Pin::static_ref(&ROBUST).lock().unwrap())
    });
    task("for robust-pi", || {
        drop(Pin::static_ref(&ROBUST_PI).lock().unwrap())
    });
    until_the_end();
}

/// Waits and sleeps with a limit that no test lives to see.
fn limited() {
    const LONG: std::time::Duration = std::time::Duration::from_secs(86_400);
    let (held, is_held) = mpsc::channel();
    task("holder", move || {
        let _plain = PLAIN.lock();
        held.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    is_held.recv().unwrap();
    task("limited", || drop(PLAIN.lock_for(LONG)));
    // Its arguments are those of a wait for a shared word, too.
    task("sleeper", || {
        let time = libc::timespec {
            tv_sec: LONG.as_secs() as i64,
            tv_nsec: 0,
        };
        // SAFETY: the call reads the time, and is asked for no rest of it.
        #[allow(unsafe_code)]
        unsafe {
            libc::syscall(
                libc::SYS_nanosleep,
                &raw const time,
                std::ptr::null_mut::<libc::timespec>(),
                0,
                &raw const time,
            )
        };
    });
    until_the_end();
}

/// A program that reports its locking to the checker.
fn checked() {
    set_on(true);
    let address = std::ptr::from_ref(&PLAIN).addr();
    let lock = hook::Lock::new(address, hook::Kind::Mutex);
    hook::initialised(lock, Some("the ledger"), hook::Site::caller());
    let (held, is_held) = mpsc::channel();
    task("holder", move || {
        let _plain = PLAIN.lock();
        hook::taken(
            lock,
            hook::Mode::Exclusive,
            hook::How::Locked,
            hook::Site::caller(),
        );
        held.send(()).unwrap();
        loop {
            std::thread::park();
        }
    });
    is_held.recv().unwrap();
    task("wanting", move || {
        let _ = hook::wants(lock, hook::Mode::Exclusive, false, hook::Site::caller());
        drop(PLAIN.lock());
    });
    until_the_end();
}

fn region(name: &str) {
    let region: &'static Region = Box::leak(Box::new(
        RegionOptions::new()
            .max_bytes(4 << 20)
            .create_named(name)
            .unwrap(),
    ));
    region.join("first").unwrap();
    let by_priority = BinaryOptions::new().by_priority();
    let bus = BinarySemaphore::create(region, "bus", &by_priority).unwrap();
    let _bus = bus.obtain().unwrap();
    let options = PriorityMutexOptions::new();
    let plan = PriorityMutex::create(region, "plan", &options, || 0_u64).unwrap();
    let _plan = plan.lock().unwrap();
    let spare = PriorityMutex::create(region, "spare", &options, || [0_u8; 3]);
    drop(spare.unwrap().lock().unwrap());
    let slots = CountingSemaphore::create(region, "slots", 0, Discipline::Fifo).unwrap();
    let empty = Queue::create(region, "empty", &QueueOptions::new(2, 8)).unwrap();
    let full = Queue::create(region, "full", &QueueOptions::new(2, 8)).unwrap();
    full.send(b"one").unwrap();
    full.send(b"two").unwrap();
    let table = region.object("table", || Mutex::robust(0u64)).unwrap();
    let _table = table.lock().unwrap();
    let member = |name: &'static str, body: Box<dyn FnOnce() + Send>| {
        let (joined, wait) = mpsc::channel();
        task(name, move || {
            region.join(name).unwrap();
            joined.send(region.task_id().unwrap()).unwrap();
            body();
        });
        wait.recv().unwrap()
    };
    member("patient", Box::new(move || drop(bus.obtain())));
    member(
        "urgent",
        Box::new(move || {
            let me = region.task_id().unwrap();
            me.set_priority(region, Priority::new(7).unwrap()).unwrap();
            drop(bus.obtain());
        }),
    );
    member("planner", Box::new(move || drop(plan.lock())));
    member("counter", Box::new(move || drop(slots.obtain())));
    member(
        "receiver",
        Box::new(move || drop(empty.receive(&mut [0; 8]))),
    );
    member("sender", Box::new(move || drop(full.send(b"three"))));
    member("writer", Box::new(move || drop(table.lock())));
    let listener = member(
        "listener",
        Box::new(move || {
            drop(Events::new(region).receive_all(EventSet::event(1) | EventSet::event(2)))
        }),
    );
    Events::new(region)
        .send(listener, EventSet::event(1))
        .unwrap();
    until_the_end();
}

/// Two tasks that wait for each other's region lock; one that waits for a lock that nobody else wants; three that wait for a
/// throughput lock, of which one is the top waiter; and one that waits for the writer of a table.
fn mutexes(name: &str) {
    let region: &'static Region = Box::leak(Box::new(
        RegionOptions::new()
            .max_bytes(4 << 20)
            .create_named(name)
            .unwrap(),
    ));
    let mutex = |name| {
        let made = region.object(name, || Mutex::in_region(0u64));
        made.unwrap().get_ref()
    };
    let (left, right, own) = (mutex("left"), mutex("right"), mutex("own"));
    let both: &'static Barrier = Box::leak(Box::new(Barrier::new(3)));
    for (name, first, second) in [("ada", left, right), ("bob", right, left)] {
        task(name, move || {
            region.join(name).unwrap();
            let _first = first.lock().unwrap();
            both.wait();
            drop(second.lock());
        });
    }
    region.join("first").unwrap();
    let _own = own.lock().unwrap();
    let make = || RegionRwLock::<_>::in_region(0u64);
    let table = region.object("table", make).unwrap();
    let _writing = table.write().unwrap();
    task("reader", move || {
        region.join("reader").unwrap();
        drop(table.read());
    });
    both.wait();
    task("waiter", move || {
        region.join("waiter").unwrap();
        drop(own.lock());
    });
    let crowded = region.object("crowded", || Mutex::in_region_throughput(0u64));
    let crowded = crowded.unwrap().get_ref();
    let _crowded = crowded.lock().unwrap();
    for name in ["ann", "ben", "cat"] {
        task(name, move || {
            region.join(name).unwrap();
            drop(crowded.lock());
        });
    }
    until_the_end();
}

/// A semaphore whose owner is killed while no task sweeps the region.
fn deaths(name: &str) {
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_named(name)
        .unwrap();
    let bus = BinarySemaphore::create(&region, "bus", &BinaryOptions::new()).unwrap();
    latchwork_testkit::Child::fork(|| {
        region.join("victim").unwrap();
        bus.obtain().unwrap().keep();
        std::process::abort();
    })
    .wait();
    until_the_end();
}

/// One of two readers waits for the writer, which waits for both.
fn readers() {
    static TABLE: CheckedRwLock<()> =
        CheckedRwLock::const_new(Checked::named("table", RawRwLock::new()), ());
    static LEDGER: Mutex<(), Checked<WaitWake>> =
        Mutex::from_raw(Checked::named("ledger", WaitWake::new()), ());
    check::set_text(false);
    static ALL: Barrier = Barrier::new(4);
    for (name, wants_more) in [("reader", false), ("greedy", true)] {
        task(name, move || {
            let _table = TABLE.read();
            ALL.wait();
            let _ledger = wants_more.then(|| LEDGER.lock());
            loop {
                std::thread::park();
            }
        });
    }
    task("writer", || {
        let _ledger = LEDGER.lock();
        ALL.wait();
        drop(TABLE.write());
    });
    ALL.wait();
    until_the_end();
}

/// Locks, allocates and sends, until its standard input is closed. Its locks are checked, without findings.
fn busy(name: &str) {
    static ROUNDS: AtomicU64 = AtomicU64::new(0);
    // However slow the machine is.
    check::set_long_wait(std::time::Duration::ZERO);
    let checked = ["outer", "inner"].map(|name| {
        let lock = Checked::<WaitWake>::named(name, WaitWake::new());
        Mutex::from_raw(lock, 0u64)
    });
    let nest = || {
        let mut outer = checked[0].lock();
        *outer += 1;
        *checked[1].lock() = *outer;
    };
    let is_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_ended.load(Ordering::Relaxed) {
                    nest();
                }
            });
        }
        busy_with(name, || {
            nest();
            ROUNDS.fetch_add(1, Ordering::Relaxed);
        });
        is_ended.store(true, Ordering::Relaxed);
    });
    assert!(ROUNDS.load(Ordering::Relaxed) <= *checked[1].lock());
    assert_eq!(check::totals().findings, 0);
}

fn busy_with(name: &str, nest: impl Fn()) {
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .create_named(name)
        .unwrap();
    region.join("busy").unwrap();
    let table = region.object("table", || Mutex::robust(0u64)).unwrap();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, 8)).unwrap();
    let (ended, end) = mpsc::channel::<()>();
    task("stdin", move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    println!("ready");
    while end.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
        *table.lock().unwrap() += 1;
        queue.send(b"x").unwrap();
        assert_eq!(queue.receive(&mut [0; 8]).unwrap(), 1);
        nest();
    }
}

/// Has reported two orders of locks, and then a release of nothing.
fn reported() {
    check::set_text(false);
    type Lock = Mutex<(), Checked<WaitWake>>;
    static LEFT: Lock = Mutex::from_raw(Checked::named("left", WaitWake::new()), ());
    static RIGHT: Lock = Mutex::from_raw(Checked::named("right", WaitWake::new()), ());
    let in_turn = |name: &str, first: &'static Lock, second: &'static Lock| {
        let thread = std::thread::Builder::new().name(name.into());
        let nest = || drop((first.lock(), second.lock()));
        thread.spawn(nest).unwrap().join().unwrap();
    };
    in_turn("one", &LEFT, &RIGHT);
    in_turn("two", &RIGHT, &LEFT);
    let nothing = 0_u64;
    let address = std::ptr::from_ref(&nothing).addr();
    let lock = hook::Lock::new(address, hook::Kind::Mutex);
    let site = hook::Site::caller();
    hook::initialised(lock, Some("no\x1b[31mthing"), site);
    assert_eq!(hook::releasing(lock, site), hook::Verdict::NotHeld);
    until_the_end();
}

/// A hundred tasks and a thousand locks, held, waited for, with a cycle among them, queues of all depths, coprocs.
fn crowd(name: &str) {
    const TASKS: usize = 100;
    const LOCKS: usize = 1000;
    let region: &'static Region = Box::leak(Box::new(
        RegionOptions::new()
            .max_bytes(16 << 20)
            .create_named(name)
            .unwrap(),
    ));
    // SAFETY: no static owns anything in the region, or a descriptor that a coproc uses.
    #[allow(unsafe_code)]
    let coprocs = unsafe { Coprocs::new(region) }.unwrap();
    region.join("crowd").unwrap();
    for depth in 0..8u32 {
        let options = QueueOptions::new(7, 16);
        let queue = Queue::create(region, &format!("queue {depth}"), &options).unwrap();
        for _ in 0..depth {
            queue.send(b"a message").unwrap();
        }
    }
    let locks: Vec<_> = (0..LOCKS)
        .map(|index| {
            region
                .object(&format!("lock {index:03}"), || Mutex::robust(index as u64))
                .unwrap()
        })
        .collect();
    let locks: &'static [Pin<&Mutex<u64, Robust>>] = Vec::leak(locks);
    let bus = BinarySemaphore::create(region, "bus", &BinaryOptions::new().by_priority()).unwrap();
    let _bus = bus.obtain().unwrap();
    let all_hold = std::sync::Arc::new(Barrier::new(TASKS + 1));
    for index in 0..TASKS {
        let all_hold = std::sync::Arc::clone(&all_hold);
        let joined = format!("task {index:02}");
        std::thread::Builder::new()
            .name(format!("worker-{index:02}"))
            .spawn(move || {
                region.join(&joined).unwrap();
                let own = index * LOCKS / TASKS..(index + 1) * LOCKS / TASKS;
                let _held: Vec<_> = locks[own].iter().map(|lock| lock.lock().unwrap()).collect();
                all_hold.wait();
                match index {
                    // A cycle of three.
                    0..3 => drop(locks[(index + 1) % 3 * 10].lock()),
                    // One that many want, and chains.
                    3..40 => drop(locks[400].lock()),
                    40..60 => drop(locks[(index + 20) * 10 + 3].lock()),
                    60..64 => drop(bus.obtain()),
                    64..80 => {
                        let queue = Queue::open(region, "queue 0").unwrap();
                        drop(queue.receive(&mut [0; 16]));
                    }
                    80..84 => {
                        let queue = Queue::open(region, "queue 7").unwrap();
                        drop(queue.send(b"one more"));
                    }
                    _ => loop {
                        std::thread::park();
                    },
                }
            })
            .unwrap();
    }
    all_hold.wait();
    for index in 0..3 {
        let attributes = Attributes::new()
            .name(&format!("coproc {index}"))
            .die_with_parent();
        let queue = region.object("wake up", || AtomicU64::new(0)).unwrap();
        let coproc = coprocs.spawn(coproc, &queue, &attributes).unwrap();
        // It lives as long as this process.
        std::mem::forget(coproc);
    }
    until_the_end();
}

fn coproc(region: &Region, _: &AtomicU64) -> i32 {
    let queue = Queue::open(region, "queue 0").unwrap();
    drop(queue.receive(&mut [0; 16]));
    0
}
