//! A task that waits for a writer of a reader/writer lock polls on while the writer runs, and sleeps while it does not.
#![cfg(not(loom))]
#![allow(unsafe_code)]

use core::time::Duration;
use latchwork::rwlock::{Acquisition, Entry, Preference, RwLock, WriteGuard};
use latchwork::sharing::Private;
use latchwork_testkit::{ThreadId, Watchdog};
use std::sync::mpsc;
use std::thread;

/// No waiter starves.
struct Patient;
impl Preference for Patient {
    const READERS_FIRST: bool = false;
    const STARVES_AFTER: Duration = Duration::from_secs(3600);
}

type Lock = RwLock<u64, Private, Patient>;

/// The processor time that a thread of this process has used.
fn cpu_time(thread: &ThreadId) -> Duration {
    let clock = !thread.number() << 3 | 6;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes the time, or refuses.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processors that this process may use.
fn processors() -> Vec<usize> {
    // SAFETY: the set is plain data, and as large as its type says.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect()
    }
}

/// Binds the calling thread to a processor, if one is given.
fn bind(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    // SAFETY: as above.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
}

/// Has a thread enter to write that had to wait, so that the lock knows it. It stays inside until `inside` returns, which
/// gets the thread that waits then, and returns how that one entered.
fn with_a_known_writer(
    lock: &Lock,
    reads: bool,
    cpus: [Option<usize>; 2],
    inside: impl FnOnce(&ThreadId) + Send,
) -> Acquisition {
    let (writer, waiter) = (ThreadId::default(), ThreadId::default());
    let (is_inside, begin) = mpsc::channel();
    thread::scope(|scope| {
        let held = lock.write();
        scope.spawn(|| {
            bind(cpus[0]);
            writer.set();
            let held = lock.write();
            is_inside.send(()).unwrap();
            while !waiter.is_set() {
                thread::yield_now();
            }
            inside(&waiter);
            drop(held);
        });
        writer.wait_until_in_futex();
        drop(held);
        begin.recv().unwrap();
        let waits = scope.spawn(|| {
            bind(cpus[1]);
            waiter.set();
            if reads {
                lock.read_traced().1
            } else {
                let (held, how) = lock.write_traced();
                WriteGuard::unlock_traced(held);
                how
            }
        });
        waits.join().unwrap()
    })
}

/// More than the polls that each wait makes take, on any processor.
const LONG: Duration = Duration::from_micros(50);

#[test]
fn a_waiter_polls_on_while_the_writer_runs() {
    let _watchdog = Watchdog::start("polls on".into());
    let [first, second, ..] = processors()[..] else {
        println!("skipped: a writer that runs while another task polls needs two processors");
        return;
    };
    // Each on its own processor: the scheduler may keep both on one, if a program spins on the other.
    let cpus = [Some(first), Some(second)];
    for reads in [false, true] {
        // On a busy machine the writer is preempted in most of the attempts, and the waiter sleeps.
        loop {
            let lock = Lock::new_in(0);
            let mut polled = Duration::ZERO;
            let how = with_a_known_writer(&lock, reads, cpus, |waiter| {
                let before = cpu_time(waiter);
                while polled < LONG && !waiter.is_in_futex() {
                    polled = cpu_time(waiter) - before;
                }
            });
            if how.entry == Entry::Polled && polled >= LONG {
                break;
            }
        }
    }
}

#[test]
fn a_waiter_sleeps_while_the_writer_does() {
    let _watchdog = Watchdog::start("sleeps".into());
    for reads in [false, true] {
        let lock = Lock::new_in(0);
        let how = with_a_known_writer(&lock, reads, [None; 2], |waiter| {
            while !waiter.is_in_futex() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        assert_eq!(how.entry, Entry::Woken);
    }
}
