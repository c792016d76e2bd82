//! Owners whose death the kernel does not mark, since it does not find their locks: a thread that calls `exec` and is not its
//! process's first one (the kernel finds the thread's new ID on its list, and the old one in the lock), and a process whose memory,
//! in which the list begins, was taken away before it ended. Waiters ask whether the owner exists.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::mem::forget;
use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::throughput::Uncounted;
use latchwork::mutex::{
    self, InRegion, Inherit, LockError, Mutex, Protect, RegionProtocol, Throughput, WaitWake,
    in_region,
};
use latchwork::region::{Region, RegionOptions, Shareable};
use latchwork::rwlock::{RegionRwLock, RobustRwLock, SeatLock};
use latchwork::sharing::Shared;
use latchwork_testkit::priority::{fifo, may_use_priorities};
use latchwork_testkit::{Child, Mapped, ThreadId, Trial};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;

mod robust_kinds;
use robust_kinds::Kind;

/// How long a wait with a time limit lasts.
const SHORT: Duration = Duration::from_millis(100);

/// A lock with an owner that dies.
trait Left: Sync {
    /// Acquires the lock for good.
    fn hold(&self);
    /// Acquires the lock, which must report the death: by one call, or by waits of this length.
    fn expect_death(&self, limit: Option<Duration>);
}

struct Robust<K: Kind>(Mapped<Mutex<u32, mutex::Robust<K>>>);

impl<K: Kind> Left for Robust<K> {
    fn hold(&self) {
        forget(self.0.pin().lock());
    }
    fn expect_death(&self, limit: Option<Duration>) {
        let lock = self.0.pin();
        let outcome = || match limit {
            Some(limit) => lock.lock_for(limit),
            None => lock.lock(),
        };
        loop {
            match outcome() {
                Err(LockError::TimedOut) if limit.is_some() => {}
                Err(LockError::OwnerDied(died)) => break drop(died.make_consistent()),
                other => panic!("{other:?}"),
            }
        }
        drop(lock.lock().unwrap());
    }
}

fn robust<K: Kind>() -> Robust<K> {
    Robust(Mapped::new(K::mutex(0)))
}

struct OfRegion<'r, P: RegionProtocol>(Pin<&'r Mutex<u32, InRegion<P>>>);

impl<P: RegionProtocol> Left for OfRegion<'_, P> {
    fn hold(&self) {
        forget(self.0.lock());
    }
    fn expect_death(&self, limit: Option<Duration>) {
        let outcome = || match limit {
            Some(limit) => self.0.lock_for(limit),
            None => self.0.lock(),
        };
        loop {
            match outcome() {
                Err(in_region::LockError::TimedOut) if limit.is_some() => {}
                Err(in_region::LockError::OwnerDied(died)) => break drop(died.make_consistent()),
                other => panic!("{other:?}"),
            }
        }
        drop(self.0.lock().unwrap());
    }
}

fn of_region<P: RegionProtocol + Shareable>(region: &Region) -> OfRegion<'_, P> {
    let lock = || Mutex::from_raw(InRegion::<P>::new(), 0);
    OfRegion(region.object("lock", lock).unwrap())
}

/// A reader, whose seat is the only one.
struct OfReaders<'r, K: SeatLock>(Pin<&'r RobustRwLock<u32, 1, Uncounted, K>>);

impl<K: SeatLock> Left for OfReaders<'_, K> {
    fn hold(&self) {
        forget(self.0.read());
    }
    /// Readers come and go, without a report.
    fn expect_death(&self, limit: Option<Duration>) {
        match limit {
            Some(limit) => while self.0.read_for(limit).is_err() {},
            None => drop(self.0.read().unwrap()),
        }
        drop(self.0.write().unwrap());
    }
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(8)
        .create_anonymous()
        .unwrap()
}

/// Calls `test` with a lock of each kind.
fn with_each_kind(name: &str, test: impl Fn(&dyn Left)) {
    test(&robust::<WaitWake<Shared>>());
    test(&robust::<Throughput<Shared>>());
    test(&robust::<Inherit<Shared>>());
    if may_use_priorities(name) {
        test(&robust::<Protect<Shared>>());
    }
    let region = region();
    test(&of_region::<WaitWake<Shared>>(&region));
    test(&of_region::<Throughput<Shared>>(&self::region()));
    let readers = region.object("readers", || RobustRwLock::new(0)).unwrap();
    test(&OfReaders::<mutex::Robust>(readers));
    let readers = region.object("region readers", || RegionRwLock::in_region(0));
    test(&OfReaders::<InRegion>(readers.unwrap()));
}

/// A process whose second thread becomes another program.
struct Execs {
    process: Child,
    may_go: Mapped<AtomicU32>,
}

impl Execs {
    /// Begins one in which that thread has called `hold`.
    fn start(trial: &Trial, hold: &(dyn Fn() + Sync)) -> Self {
        let [has_held, may_go] = [(); 2].map(|()| Mapped::new(AtomicU32::new(0)));
        let process = Child::fork(|| {
            thread::scope(|scope| {
                scope.spawn(|| {
                    hold();
                    has_held.store(1, SeqCst);
                    trial.wait_until(|| may_go.load(SeqCst) == 1);
                    let (path, end) = (c"/bin/true", core::ptr::null::<libc::c_char>());
                    // SAFETY: a path, and a list of arguments that ends with null.
                    unsafe { libc::execl(path.as_ptr(), path.as_ptr(), end) };
                    panic!("{}", io::Error::last_os_error());
                });
            });
        });
        trial.wait_until(|| has_held.load(SeqCst) == 1);
        Self { process, may_go }
    }

    /// Returns when that program has ended.
    fn vanish(self) {
        self.may_go.store(1, SeqCst);
        self.process.succeed();
    }
}

#[test]
fn a_waiter_gets_the_lock_of_a_thread_that_called_exec() {
    let name = "a_waiter_gets_the_lock_of_a_thread_that_called_exec";
    let trial = Trial::begin(name);
    with_each_kind(name, |lock| {
        for waits in [false, true] {
            let owner = Execs::start(&trial, &|| lock.hold());
            if waits {
                let id = ThreadId::default();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        id.set();
                        lock.expect_death(None);
                    });
                    trial.wait_until(|| id.is_in_futex());
                    owner.vanish();
                });
            } else {
                owner.vanish();
                lock.expect_death(Some(SHORT));
            }
            trial.progress();
        }
    });
}

/// All waits are too short to pass the gate, at which a task is stopped: nobody but those who give up there asks.
#[test]
fn short_waits_behind_a_stopped_waiter_get_the_lock_of_a_vanished_owner() {
    let trial =
        Trial::begin("short_waits_behind_a_stopped_waiter_get_the_lock_of_a_vanished_owner");
    let region = region();
    let (robust, of_region) = (
        robust::<Throughput<Shared>>(),
        of_region::<Throughput<Shared>>(&region),
    );
    let locks: [&dyn Left; 2] = [&robust, &of_region];
    for lock in locks {
        let owner = Execs::start(&trial, &|| lock.hold());
        let mut waiter = Child::fork(|| lock.hold());
        trial.wait_until(|| waiter.is_in_futex() || waiter.is_in_region_sleep());
        waiter.signal(libc::SIGSTOP);
        trial.wait_until(|| waiter.is_stopped());
        owner.vanish();
        lock.expect_death(Some(Duration::from_millis(10)));
        waiter.kill();
        trial.progress();
    }
}

/// A waiter for a seat naps on all of them, not only on its favourite one.
#[test]
fn a_reader_gets_the_seat_of_a_vanished_one_whichever_it_is() {
    let trial = Trial::begin("a_reader_gets_the_seat_of_a_vanished_one_whichever_it_is");
    let region = region();
    let lock: Pin<&RegionRwLock<u32, 2>> = region
        .object("readers", || RegionRwLock::in_region(0))
        .unwrap();
    let slot = || region.task_id().unwrap().slot();
    // The favourite seat of this task, and of the reader that lives, is the first one.
    assert_eq!(slot() % 2, 0);
    let gone = Execs::start(&trial, &|| {
        assert_eq!(slot() % 2, 1);
        forget(lock.read().unwrap());
    });
    let is_inside = Mapped::new(AtomicU32::new(0));
    let mut lives = Child::fork(|| {
        assert_eq!(slot() % 2, 0);
        forget(lock.read().unwrap());
        is_inside.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    trial.wait_until(|| is_inside.load(SeqCst) == 1);
    gone.vanish();
    drop(lock.read().unwrap());
    lives.kill();
    drop(lock.write().unwrap());
}

/// Signals that come more often than once a second keep no waiter from asking.
#[test]
fn an_interruptible_waiter_asks_before_it_gives_up() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: a handler that does nothing.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        let installed = libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut());
        assert_eq!(installed, 0);
    }
    let trial = Trial::begin("an_interruptible_waiter_asks_before_it_gives_up");
    let region = region();
    let lock = of_region::<WaitWake<Shared>>(&region);
    let owner = Execs::start(&trial, &|| lock.hold());
    let (id, has_it) = (ThreadId::default(), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            id.set();
            loop {
                match lock.0.lock_interruptible(None) {
                    Err(in_region::LockError::Interrupted) => {}
                    Err(in_region::LockError::OwnerDied(died)) => {
                        break drop(died.make_consistent());
                    }
                    other => panic!("{other:?}"),
                }
            }
            has_it.store(1, SeqCst);
            // Signals go to it until then.
            trial.wait_until(|| has_it.load(SeqCst) == 2);
        });
        trial.wait_until(|| id.is_in_futex());
        owner.vanish();
        while has_it.load(SeqCst) == 0 {
            id.signal(libc::SIGUSR1);
            thread::sleep(SHORT);
        }
        has_it.store(2, SeqCst);
    });
}

/// The next owner may change what decides whether the dead task's allocations have taken effect.
#[test]
fn what_a_vanished_owner_had_begun_is_settled_before_its_robust_lock_is_used() {
    let name = "what_a_vanished_owner_had_begun_is_settled_before_its_robust_lock_is_used";
    let trial = Trial::begin(name);
    let region = region();
    let make = || <WaitWake<Shared> as Kind>::mutex(0);
    let lock: Pin<&Mutex<u32, mutex::Robust>> = region.object("lock", make).unwrap();
    let private = || region.heap_stats().private_blocks;
    assert_eq!(private(), 0);
    let owner = Execs::start(&trial, &|| {
        forget(latchwork::region::Box::new_in(7_u32, &region).unwrap());
        forget(lock.lock().unwrap());
    });
    assert_eq!(private(), 1);
    owner.vanish();
    match lock.lock() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{other:?}"),
    }
    assert_eq!(private(), 0);
}

/// A process that is killed, and whose memory the kernel takes away before the process has run again.
#[test]
fn a_waiter_gets_the_lock_of_a_process_whose_memory_was_taken_away() {
    let name = "a_waiter_gets_the_lock_of_a_process_whose_memory_was_taken_away";
    if !may_use_priorities(name) {
        return;
    }
    let [own, other, ..] = *processors() else {
        println!("skipped: {name} needs two processors");
        return;
    };
    let trial = Trial::begin(name);
    with_each_kind(name, |lock| {
        let started = Mapped::new(AtomicU32::new(0));
        let start = |number: u32, prepare: &dyn Fn()| {
            let child = Child::fork(|| {
                run_on(other);
                prepare();
                started.store(number, SeqCst);
                loop {
                    thread::yield_now();
                }
            });
            trial.wait_until(|| started.load(SeqCst) == number);
            child
        };
        let mut victim = start(1, &|| lock.hold());
        // Above the ceiling at which an owner may run, and below the kernel's threads for timers (ci/kernels/init).
        let mut spins = start(2, &|| fifo(90).give(0));
        thread::scope(|scope| {
            let kills = scope.spawn(|| {
                run_on(own);
                kill_and_take_memory(victim.pid())
            });
            if let Err(error) = kills.join().unwrap() {
                println!("skipped: {name}: {error}: its process ends in the ordinary way");
            }
        });
        spins.kill();
        victim.wait();
        lock.expect_death(Some(SHORT));
        trial.progress();
    });
}

/// As the kernel does it itself where memory is short. (`process_mrelease`, Linux 5.15.)
fn kill_and_take_memory(process: i32) -> io::Result<()> {
    const SYS_PROCESS_MRELEASE: libc::c_long = 448;
    let succeeded = |result: libc::c_long| match result {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    };
    // SAFETY: system calls with numbers alone; the process is a child that was not waited for.
    let file = unsafe {
        let file = succeeded(libc::syscall(libc::SYS_pidfd_open, process, 0));
        libc::kill(process, libc::SIGKILL);
        OwnedFd::from_raw_fd(file? as i32)
    };
    // SAFETY: as above.
    succeeded(unsafe { libc::syscall(SYS_PROCESS_MRELEASE, file.as_raw_fd(), 0) })?;
    Ok(())
}

/// The processors on which this thread may run.
fn processors() -> Vec<usize> {
    // SAFETY: zeros are a valid set, which the call fills in.
    let set = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    let all = 0..libc::CPU_SETSIZE as usize;
    // SAFETY: each number is one of the set's.
    all.filter(|processor| unsafe { libc::CPU_ISSET(*processor, &set) })
        .collect()
}

/// Puts the calling thread on one processor.
fn run_on(processor: usize) {
    // SAFETY: zeros are a valid set; the number is one of those that the kernel has named.
    let result = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    assert_eq!(result, 0);
}
