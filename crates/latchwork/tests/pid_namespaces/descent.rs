//! The first process of a namespace forks the first one of another. The child has its parent's ID, and a copy of all that its
//! parent had in memory, but is another process.

use latchwork::coproc::{
    Attributes, Coprocs, JoinError, KillError, Outcome, Signal, SpawnError, StartError, wait_any,
};
use latchwork::mutex::Mutex;
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::RobustRwLock;
use latchwork::time::Deadline;
use latchwork_testkit::{Child, Namespace, Trial};
use std::os::fd::{AsFd, BorrowedFd};

/// The copy of a guard that the child of a fork has.
fn copy_of<T>(guard: &T) -> T {
    // SAFETY: the child ends before it drops the other one.
    unsafe { core::ptr::read(guard) }
}

/// Runs `parent` as the first process of a namespace. It runs children by the function that it gets, which returns whether
/// the child has ended in good order.
fn descend(name: &'static str, parent: impl FnOnce(&dyn Fn(&mut dyn FnMut()) -> bool)) {
    if super::skips(name) {
        return;
    }
    let _trial = Trial::begin(name);
    let outer = Namespace::start(true, || {
        assert_eq!(std::process::id(), 1);
        parent(&|child| {
            let inner = Namespace::start(true, || {
                assert_eq!(std::process::id(), 1);
                child();
            });
            inner.has_succeeded()
        });
    });
    outer.succeed();
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(8 << 20)
        .create_anonymous()
        .unwrap()
}

fn waits(region: &Region, (): ()) -> i32 {
    let go = Queue::open(region, "go").unwrap();
    let mut byte = [0];
    go.receive(&mut byte).unwrap();
    byte[0].into()
}

#[test]
fn coprocs_belong_to_the_process_that_started_them() {
    descend(
        "coprocs_belong_to_the_process_that_started_them",
        |in_child| {
            let region = region();
            let go = Queue::create(&region, "go", &QueueOptions::new(1, 1)).unwrap();
            // SAFETY: the coprocs use the region, and no copied object.
            let coprocs = unsafe { Coprocs::new(&region) }.unwrap();
            let attributes = Attributes::new();
            let coproc = coprocs.spawn_value(waits, (), &attributes).unwrap();
            let mut copies = Some((coprocs, coproc));
            let child = in_child(&mut || {
                let (coprocs, coproc) = copies.take().unwrap();
                let spawned = coprocs.spawn_value(waits, (), &attributes);
                assert!(matches!(spawned, Err(SpawnError::OtherProcess)));
                assert!(!coproc.is_alive());
                let any = wait_any(&[&coproc], None);
                assert!(matches!(any, Err(JoinError::OtherProcess)));
                let filled = coprocs.fill(Deadline::from_nanoseconds(0));
                assert!(matches!(filled, Err(StartError::OtherProcess)));
                assert_eq!(coproc.kill(Signal::KILL), Err(KillError::OtherProcess));
                assert!(matches!(coproc.join(), Err(JoinError::OtherProcess)));
                // Neither ends here.
                drop(coprocs);
                latchwork::coproc::reap_ended();
            });
            assert!(child);
            let (coprocs, coproc) = copies.take().unwrap();
            go.send(&[7]).unwrap();
            assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
            let more = coprocs.spawn_value(waits, (), &attributes).unwrap();
            go.send(&[8]).unwrap();
            assert_eq!(more.join().unwrap().outcome, Outcome::Returned(8));
        },
    );
}

fn is_readable(descriptor: BorrowedFd<'_>, timeout: i32) -> bool {
    use std::os::fd::AsRawFd as _;
    let mut poll = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry.
    unsafe { libc::poll(&raw mut poll, 1, timeout) == 1 }
}

#[test]
fn a_watch_belongs_to_the_process_that_made_it() {
    descend("a_watch_belongs_to_the_process_that_made_it", |in_child| {
        let region = region();
        let queue = Queue::create(&region, "queue", &QueueOptions::new(1, 1)).unwrap();
        let mut watch = Some(queue.watch().unwrap());
        // The thread that it would wait for is the parent's.
        assert!(in_child(&mut || drop(watch.take())));
        let watch = watch.unwrap();
        queue.send(&[1]).unwrap();
        assert!(is_readable(watch.as_fd(), -1));
    });
}

/// The child's thread has the ID that the locks' words name.
#[test]
fn robust_guards_belong_to_the_process_that_acquired_the_lock() {
    let name = "robust_guards_belong_to_the_process_that_acquired_the_lock";
    descend(name, |in_child| {
        let region = region();
        let mutex = region.object("mutex", || Mutex::robust(0_u64)).unwrap();
        let limits = region.object("limits", || RobustRwLock::<u64>::new(0));
        let limits = limits.unwrap();
        let is_free = || {
            let mutex = mutex.try_lock().is_ok();
            let limits = limits.try_write().is_ok();
            assert_eq!(mutex, limits);
            mutex
        };

        let guard = mutex.lock().unwrap();
        let reader = limits.read().unwrap();
        assert!(!in_child(&mut || drop(copy_of(&guard))));
        assert!(!in_child(&mut || drop(copy_of(&reader))));
        Child::fork(|| assert!(!is_free())).succeed();
        drop((guard, reader));
        Child::fork(|| assert!(is_free())).succeed();

        let guard = mutex.lock().unwrap();
        let writer = limits.write().unwrap();
        assert!(!in_child(&mut || drop(copy_of(&writer))));
        Child::fork(|| assert!(!is_free())).succeed();
        drop((guard, writer));
        Child::fork(|| assert!(is_free())).succeed();
    });
}
