//! What a thread holds when it ends in good order stays its process's: a reference that it has leaked may be another
//! thread's by then. Only the death of the process hands it on.
#![cfg(not(loom))]

use core::pin::Pin;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use latchwork::mutex::{Inherit, LockError, Mutex, Protect, Robust, RobustGuard, Throughput};
use latchwork::queue::spsc::{ClaimError, Place, Sender, Spsc};
use latchwork::queue::{Message, Queue, QueueOptions, ReceiveError, Reservation, Wait};
use latchwork::region::{Region, RegionOptions};
use latchwork::rwlock::{self, RobustReadGuard, RobustRwLock, RobustWriteGuard};
use latchwork::sharing::Shared;
use latchwork_testkit::priority::may_use_priorities;
use latchwork_testkit::{Child, Exit, Mapped, Trial, in_dying_thread};
use std::thread;

/// A wait that must fail: long enough for a lock that is free to be taken.
const SHORT: Duration = Duration::from_millis(30);

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .label("keeper")
        .create_anonymous()
        .unwrap()
}

/// Runs `body` in a thread that ends in good order.
fn in_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(body).join().unwrap())
}

/// Runs `body` in a child process, and kills that when `body` has ended.
fn in_killed_process(trial: &Trial, body: impl FnOnce()) {
    let ended = Mapped::new(AtomicU32::new(0));
    let mut child = Child::fork(|| {
        body();
        ended.store(1, SeqCst);
        loop {
            thread::park();
        }
    });
    while ended.load(SeqCst) == 0 {
        assert_eq!(child.try_wait(), None, "the child ended");
        thread::yield_now();
    }
    assert_eq!(child.kill(), Exit::Signal(9));
    trial.progress();
}

/// The names of this process's threads.
fn threads() -> Vec<String> {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim().into())
        .collect()
}

/// How many of them are the keeper.
fn keepers() -> usize {
    threads()
        .iter()
        .filter(|name| *name == "latchwork-keep")
        .count()
}

#[test]
fn a_leaked_read_guard_keeps_writers_out() {
    let _trial = Trial::begin("a_leaked_read_guard_keeps_writers_out");
    static LOCK: RobustRwLock<String> = RobustRwLock::new(String::new());
    let lock = Pin::static_ref(&LOCK);
    lock.write()
        .unwrap()
        .push_str("on the heap, and beyond any short form");
    let text: &'static str = in_thread(|| {
        let guard: &'static RobustReadGuard<'static, String> =
            Box::leak(Box::new(lock.read().unwrap()));
        guard.as_str()
    });
    assert!(matches!(
        lock.try_write(),
        Err(rwlock::LockError::WouldBlock)
    ));
    assert!(matches!(
        lock.write_for(SHORT),
        Err(rwlock::LockError::TimedOut)
    ));
    assert_eq!(*lock.read().unwrap(), text);
    assert_eq!(keepers(), 1);
}

#[test]
fn a_leaked_write_guard_keeps_all_out() {
    let _trial = Trial::begin("a_leaked_write_guard_keeps_all_out");
    static LOCK: RobustRwLock<Vec<u64>> = RobustRwLock::new(Vec::new());
    let lock = Pin::static_ref(&LOCK);
    let data: &'static mut Vec<u64> = in_thread(|| {
        let guard: &'static mut RobustWriteGuard<'static, Vec<u64>> =
            Box::leak(Box::new(lock.write().unwrap()));
        &mut **guard
    });
    assert!(matches!(
        lock.try_write(),
        Err(rwlock::LockError::WouldBlock)
    ));
    assert!(matches!(
        lock.read_for(SHORT),
        Err(rwlock::LockError::TimedOut)
    ));
    data.push(1);
    assert_eq!(data.len(), 1);
}

#[test]
fn a_leaked_guard_keeps_its_mutex_locked() {
    let _trial = Trial::begin("a_leaked_guard_keeps_its_mutex_locked");
    static MUTEX: Mutex<Vec<u64>, Robust> = Mutex::robust(Vec::new());
    let mutex = Pin::static_ref(&MUTEX);
    let data: &'static mut Vec<u64> = in_thread(|| {
        let guard: &'static mut RobustGuard<'static, Vec<u64>> =
            Box::leak(Box::new(mutex.lock().unwrap()));
        &mut **guard
    });
    assert!(matches!(mutex.try_lock(), Err(LockError::WouldBlock)));
    assert!(matches!(mutex.lock_for(SHORT), Err(LockError::TimedOut)));
    data.push(1);
    assert_eq!(*data, [1]);
}

/// A waiter that sleeps when the thread ends goes on sleeping.
#[test]
fn a_waiter_is_not_disturbed() {
    let _trial = Trial::begin("a_waiter_is_not_disturbed");
    static MUTEX: Mutex<u64, Robust<Throughput<Shared>>> = Mutex::robust_throughput(0);
    let mutex = Pin::static_ref(&MUTEX);
    let barrier = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            core::mem::forget(mutex.lock().unwrap());
            barrier.wait();
            thread::sleep(SHORT);
        });
        barrier.wait();
        assert!(matches!(
            mutex.lock_for(SHORT * 3),
            Err(LockError::TimedOut)
        ));
        owner.join().unwrap();
    });
    assert!(matches!(mutex.try_lock(), Err(LockError::WouldBlock)));
}

/// The kernel alone knows who owns such a lock.
#[test]
fn a_lock_with_inheritance_is_lost() {
    let _trial = Trial::begin("a_lock_with_inheritance_is_lost");
    static MUTEX: Mutex<Vec<u64>, Robust<Inherit<Shared>>> = Mutex::robust_inherit(Vec::new());
    let mutex = Pin::static_ref(&MUTEX);
    in_thread(|| core::mem::forget(mutex.lock().unwrap()));
    for _ in 0..2 {
        assert!(matches!(mutex.lock(), Err(LockError::NotRecoverable)));
        assert!(matches!(mutex.try_lock(), Err(LockError::NotRecoverable)));
    }
}

#[test]
fn many_locks_of_many_threads_have_one_keeper() {
    let _trial = Trial::begin("many_locks_of_many_threads_have_one_keeper");
    static LOCKS: [Mutex<u64, Robust>; 64] = [const { Mutex::robust(0) }; 64];
    let locks = || LOCKS.iter().map(Pin::static_ref);
    thread::scope(|scope| {
        let threads = [0, 1].map(|half| {
            scope.spawn(move || {
                for lock in locks().skip(half).step_by(2) {
                    core::mem::forget(lock.lock().unwrap());
                }
            })
        });
        // Until the threads have ended; the scope waits for less.
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
    for lock in locks() {
        assert!(matches!(lock.try_lock(), Err(LockError::WouldBlock)));
    }
    assert_eq!(keepers(), 1);
}

/// More than the kernel walks: nobody gets the data of those beyond.
#[test]
fn locks_beyond_the_keepers_list_are_lost() {
    let _trial = Trial::begin("locks_beyond_the_keepers_list_are_lost");
    const MANY: usize = 3000;
    Child::fork(|| {
        static LOCKS: [Mutex<u64, Robust>; MANY] = [const { Mutex::robust(0) }; MANY];
        let locks = || LOCKS.iter().map(Pin::static_ref);
        for part in 0..3 {
            in_thread(|| {
                for lock in locks().skip(part).step_by(3) {
                    core::mem::forget(lock.lock().unwrap());
                }
            });
        }
        let lost = locks()
            .filter(|lock| match lock.try_lock() {
                Err(LockError::WouldBlock) => false,
                Err(LockError::NotRecoverable) => true,
                other => panic!("{other:?}"),
            })
            .count();
        assert!(lost > 0 && lost < MANY, "{lost} of {MANY}");
    })
    .succeed();
}

#[test]
fn a_guard_that_a_destructor_drops_is_released() {
    let _trial = Trial::begin("a_guard_that_a_destructor_drops_is_released");
    static MUTEX: Mutex<u64, Robust> = Mutex::robust(0);
    thread_local! {
        static GUARD: std::cell::RefCell<Option<RobustGuard<'static, u64>>> =
            const { std::cell::RefCell::new(None) };
    }
    let mutex = Pin::static_ref(&MUTEX);
    in_thread(|| GUARD.with(|guard| *guard.borrow_mut() = Some(mutex.lock().unwrap())));
    assert_eq!(*mutex.lock().unwrap(), 0);
}

#[test]
fn a_child_of_a_fork_has_a_keeper_of_its_own() {
    let _trial = Trial::begin("a_child_of_a_fork_has_a_keeper_of_its_own");
    let locks = Mapped::new([const { Mutex::robust(0_u64) }; 2]);
    let [ours, theirs] = locks.each();
    in_thread(|| core::mem::forget(ours.lock().unwrap()));
    Child::fork(|| {
        assert_eq!(keepers(), 0);
        in_thread(|| core::mem::forget(theirs.lock().unwrap()));
        assert_eq!(keepers(), 1);
        assert!(matches!(theirs.try_lock(), Err(LockError::WouldBlock)));
    })
    .succeed();
    assert!(matches!(ours.try_lock(), Err(LockError::WouldBlock)));
    match theirs.lock() {
        Err(LockError::OwnerDied(died)) => drop(died.make_consistent()),
        other => panic!("{other:?}"),
    };
    core::mem::forget(locks);
}

#[test]
fn the_death_of_the_process_hands_locks_on() {
    let trial = Trial::begin("the_death_of_the_process_hands_locks_on");
    let plain = Mapped::new(Mutex::robust(0_u64));
    let queued = Mapped::new(Mutex::robust_throughput(0_u64));
    let with_ceiling = may_use_priorities("a lock with a ceiling").then(|| {
        Mapped::new(Mutex::from_raw(
            Robust::<Protect<Shared>>::with_ceiling(1),
            0_u64,
        ))
    });
    let readers = Mapped::new(RobustRwLock::<u64, 4>::new(0));
    let written = Mapped::new(RobustRwLock::<u64, 4>::new(0));
    in_killed_process(&trial, || {
        in_thread(|| {
            core::mem::forget(plain.pin().lock().unwrap());
            core::mem::forget(queued.pin().lock().unwrap());
            if let Some(lock) = &with_ceiling {
                core::mem::forget(lock.pin().lock().unwrap());
            }
            core::mem::forget(readers.pin().read().unwrap());
            core::mem::forget(written.pin().write().unwrap());
        });
        assert!(matches!(plain.pin().try_lock(), Err(LockError::WouldBlock)));
        if let Some(lock) = &with_ceiling {
            assert!(matches!(lock.pin().try_lock(), Err(LockError::WouldBlock)));
        }
    });
    assert!(matches!(plain.pin().lock(), Err(LockError::OwnerDied(_))));
    assert!(matches!(queued.pin().lock(), Err(LockError::OwnerDied(_))));
    if let Some(lock) = &with_ceiling {
        assert!(matches!(lock.pin().lock(), Err(LockError::OwnerDied(_))));
    }
    assert!(
        readers.pin().write().is_ok(),
        "a dead reader's seat is free"
    );
    assert!(matches!(
        written.pin().read(),
        Err(rwlock::LockError::OwnerDied(_))
    ));
}

/// A thread that dies without its end in good order: only unsafe code can do that.
#[test]
fn the_death_of_a_thread_hands_locks_on() {
    let _trial = Trial::begin("the_death_of_a_thread_hands_locks_on");
    static MUTEX: Mutex<u64, Robust> = Mutex::robust(0);
    let mutex = Pin::static_ref(&MUTEX);
    in_dying_thread(|| core::mem::forget(mutex.lock().unwrap()));
    assert!(matches!(mutex.lock(), Err(LockError::OwnerDied(_))));
}

#[test]
fn a_leaked_message_is_not_delivered_again() {
    let _trial = Trial::begin("a_leaked_message_is_not_delivered_again");
    let region = region();
    let queue = Queue::create(&region, "q", &QueueOptions::new(1, 64)).unwrap();
    queue.send(&[1; 64]).unwrap();
    let bytes: &[u8] = in_thread(|| {
        let message: &Message<'_> = Box::leak(Box::new(queue.receive_held().unwrap()));
        &**message
    });
    assert!(region.sweep().unwrap().dead.is_empty());
    assert!(matches!(queue.try_receive_held(), Err(ReceiveError::Empty)));
    // Whatever room there is: the message's cell is no part of it.
    for _ in 0..8 {
        if queue.try_send(&[2; 64]).is_ok() {
            queue.receive_held().unwrap().done();
        }
    }
    assert_eq!(bytes, [1; 64]);
}

#[test]
fn the_death_of_the_process_delivers_messages_again() {
    let trial = Trial::begin("the_death_of_the_process_delivers_messages_again");
    let region = region();
    let queue = Queue::create(&region, "q", &QueueOptions::new(4, 64)).unwrap();
    queue.send(&[1; 64]).unwrap();
    in_killed_process(&trial, || {
        in_thread(|| {
            core::mem::forget(queue.receive_held().unwrap());
            core::mem::forget(queue.reserve(Wait::Forever).unwrap());
        });
        assert!(matches!(queue.try_receive_held(), Err(ReceiveError::Empty)));
    });
    let message = queue.receive_held().unwrap();
    assert_eq!((&*message, message.deliveries()), (&[1; 64][..], 2));
    message.done();
    for _ in 0..4 {
        queue.try_send(b"all places are free").unwrap();
    }
}

#[test]
fn a_leaked_reservation_keeps_its_place() {
    let _trial = Trial::begin("a_leaked_reservation_keeps_its_place");
    let region = region();
    let queue = Queue::create(&region, "q", &QueueOptions::new(2, 64)).unwrap();
    let bytes: &mut [u8] = in_thread(|| {
        let place: &mut Reservation<'_> =
            Box::leak(Box::new(queue.reserve(Wait::Forever).unwrap()));
        &mut **place
    });
    bytes.fill(1);
    assert!(region.sweep().unwrap().dead.is_empty());
    let mut free = Vec::new();
    while let Ok(mut place) = queue.reserve(Wait::Not) {
        assert_ne!(
            place.as_ptr(),
            bytes.as_ptr(),
            "two references to one place"
        );
        place.fill(2);
        free.push(place);
    }
    assert_eq!(free.len(), 1);
    assert_eq!(bytes[0], 1);
}

#[test]
fn a_leaked_place_keeps_the_end_of_its_ring() {
    let trial = Trial::begin("a_leaked_place_keeps_the_end_of_its_ring");
    let region = region();
    let ring = Spsc::create(&region, "r", &QueueOptions::new(4, 64)).unwrap();
    let bytes: &mut [u8] = in_thread(|| {
        let sender: &mut Sender<'_> = Box::leak(Box::new(ring.sender().unwrap()));
        let place: &mut Place<'_, '_> = Box::leak(Box::new(sender.reserve(Wait::Forever).unwrap()));
        &mut **place
    });
    bytes.fill(1);
    assert!(region.sweep().unwrap().dead.is_empty());
    assert!(matches!(ring.sender(), Err(ClaimError::Taken)));
    assert_eq!(bytes[0], 1);
    let other = Spsc::create(&region, "other", &QueueOptions::new(4, 64)).unwrap();
    in_killed_process(&trial, || {
        in_thread(|| core::mem::forget(other.sender().unwrap()));
        assert!(matches!(other.sender(), Err(ClaimError::Taken)));
    });
    other.sender().unwrap().send(b"free again").unwrap();
}

/// A lock in a region keeps its thread's slot, too: after the death of the process the slot is swept before the lock's
/// next owner gets the data.
#[test]
fn a_leaked_guard_keeps_its_slot() {
    let trial = Trial::begin("a_leaked_guard_keeps_its_slot");
    let region = region();
    let mutex = region.object("m", || Mutex::robust(0_u64)).unwrap();

    in_killed_process(&trial, || {
        in_thread(|| core::mem::forget(mutex.lock().unwrap()));
        assert!(region.sweep().unwrap().dead.is_empty());
        assert!(matches!(mutex.try_lock(), Err(LockError::WouldBlock)));
    });
    let died = match mutex.lock() {
        Err(LockError::OwnerDied(died)) => died,
        other => panic!("{other:?}"),
    };
    assert!(
        region.sweep().unwrap().dead.is_empty(),
        "it was swept before"
    );
    drop(died.make_consistent());
}
