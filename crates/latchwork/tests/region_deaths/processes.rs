//! Processes with several tasks, of this PID namespace and of others; and processes that become other programs.

use super::{
    OWNER_DIED, SLOTS, VICTIM, WAITERS, blocks, options, region, sleeps_on, thread_id, word,
};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use latchwork::mutex::{InRegion, Mutex};
use latchwork::queue::spsc::Spsc;
use latchwork::queue::{Queue, QueueOptions, Wait};
use latchwork::region::{Box, Region};
use latchwork::semaphore::{BinaryOptions, BinarySemaphore};
use latchwork_testkit::step::AtEnd;
use latchwork_testkit::{Child, Leftover, Namespace, Page, Trial};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;

/// The threads of a process that is killed end one after the other. One that has not ended yet may have locks in a block of
/// one that has.
#[test]
fn a_sweep_waits_for_the_other_threads_of_a_process_that_is_being_killed() {
    let trial =
        Trial::begin("a_sweep_waits_for_the_other_threads_of_a_process_that_is_being_killed");
    let region = region();
    region.join("survivor").unwrap();
    let other = Page::<AtomicU32>::new();
    let process = Child::fork(|| have_two_tasks(&region, &other));
    trial.wait_until(|| other.load(SeqCst) != 0);
    sweep_between_two_deaths(&trial, &region, process.pid() as u32, &other, || {});
}

/// As with the option `hidepid`: nothing of the process can be read.
#[test]
fn a_sweep_waits_for_the_other_threads_of_a_process_that_proc_hides() {
    let name = "a_sweep_waits_for_the_other_threads_of_a_process_that_proc_hides";
    let trial = Trial::begin(name);
    let may_hide = std::thread::scope(|scope| scope.spawn(|| hide(std::process::id())).join());
    if let Err(error) = may_hide.unwrap() {
        println!("skipped: {name}: a process cannot be hidden here: {error}");
        return;
    }
    let region = region();
    region.join("survivor").unwrap();
    let other = Page::<AtomicU32>::new();
    let process = Child::fork(|| have_two_tasks(&region, &other));
    trial.wait_until(|| other.load(SeqCst) != 0);
    let id = process.pid() as u32;
    sweep_between_two_deaths(&trial, &region, id, &other, || hide(id).unwrap());
}

/// Hides a process from the calling thread, in a mount namespace of its own.
fn hide(process: u32) -> std::io::Result<()> {
    let place = std::ffi::CString::new(format!("/proc/{process}"))?;
    let succeeded = |result| match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: plain system calls, with strings that end in NUL or with null pointers.
    unsafe {
        succeeded(libc::unshare(libc::CLONE_NEWNS))?;
        let (root, none) = (c"/".as_ptr(), core::ptr::null());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        succeeded(libc::mount(none, root, none, private, none.cast()))?;
        let kind = c"tmpfs".as_ptr();
        succeeded(libc::mount(kind, place.as_ptr(), kind, 0, none.cast()))
    }
}

/// Nobody can ask whether a process of another PID namespace is being killed.
#[test]
fn a_sweep_waits_for_the_other_threads_of_a_dead_task_in_another_namespace() {
    let name = "a_sweep_waits_for_the_other_threads_of_a_dead_task_in_another_namespace";
    let Some((trial, region)) = begin_among_namespaces(name) else {
        return;
    };
    region.join("survivor").unwrap();
    let other = Page::<AtomicU32>::new();
    let mut namespace = Namespace::start(true, || have_two_tasks(&region, &other));
    trial.wait_until(|| other.load(SeqCst) != 0);
    sweep_between_two_deaths(&trial, &region, namespace.id(), &other, || {});
    namespace.end();
}

/// A region for any PID namespace; `None`: this machine lets the test make none.
fn begin_among_namespaces(name: &'static str) -> Option<(Trial, Region)> {
    if let Err(error) = Namespace::may_be_made() {
        println!("skipped: {name}: PID namespaces with a /proc cannot be made here: {error}");
        return None;
    }
    let region = options().any_pid_namespace(true).create_anonymous();
    Some((Trial::begin(name), region.unwrap()))
}

/// The first thread becomes one task, with a block of its own, and another thread the next one.
fn have_two_tasks(region: &Region, other: &AtomicU32) {
    region.join("victim").unwrap();
    core::mem::forget(Box::new_in([1u64; 100], region).unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            region.join("other").unwrap();
            other.store(thread_id(), SeqCst);
            loop {
                std::thread::park();
            }
        });
    });
}

/// Kills a process with two tasks, and returns when only the first one has ended; the other one's end is held. `other`: the ID of
/// the other one where it is. `None`: ends cannot be held here.
fn kill_the_first(
    trial: &Trial,
    region: &Region,
    process: u32,
    other: &AtomicU32,
) -> Option<AtEnd> {
    region.base().expose_provenance();
    let mut threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let thread = threads.find_map(|entry| {
        let id = entry.unwrap().file_name().to_str()?.parse().ok()?;
        (id != process).then_some(id)
    });
    let last = AtEnd::hold(thread.unwrap())?;
    // SAFETY: sends a signal to a process that the caller has started and not reaped.
    unsafe { libc::kill(process as i32, libc::SIGKILL) };
    last.wait();
    let life = |slot| word(region, slot, 0).load(SeqCst);
    trial.wait_until(|| life(VICTIM) == OWNER_DIED | WAITERS);
    assert_eq!(life(VICTIM + 1), other.load(SeqCst) | WAITERS);
    Some(last)
}

/// Kills a process with two tasks, and sweeps when only the first one has ended. `other`: as above. `prepare` runs in the thread
/// that sweeps.
fn sweep_between_two_deaths(
    trial: &Trial,
    region: &Region,
    process: u32,
    other: &AtomicU32,
    prepare: impl Fn() + Sync,
) {
    let Some(last) = kill_the_first(trial, region, process, other) else {
        return;
    };
    let sweeper = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| {
            prepare();
            sweeper.store(thread_id(), SeqCst);
            region.sweep().unwrap()
        });
        let of_last = word(region, VICTIM + 1, 0);
        trial.wait_until(|| sleeps_on(sweeper.load(SeqCst), of_last) || sweep.is_finished());
        assert_eq!(blocks(region), 1, "settled before all threads had ended");
        drop(last);
        // If this machine stood still for a second, the sweep lost its patience: another one sees the second death.
        let mut dead = sweep.join().unwrap().dead;
        trial.wait_until(|| {
            dead.append(&mut region.sweep().unwrap().dead);
            dead == ["victim", "other"]
        });
    });
    let stats = region.heap_stats();
    assert_eq!(stats.private_blocks, 0);
    assert!(stats.shared_blocks <= 1);
}

/// A sender may lend the place of its message to another thread, for which the kernel writes into it, also after the sender's end.
#[test]
fn a_dead_senders_place_is_used_again_when_all_threads_of_its_process_have_ended() {
    let trial = Trial::begin(
        "a_dead_senders_place_is_used_again_when_all_threads_of_its_process_have_ended",
    );
    let region = region();
    region.join("survivor").unwrap();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(1, 8)).unwrap();
    let ring = Spsc::create(&region, "ring", &QueueOptions::new(1, 8)).unwrap();
    let other = Page::<AtomicU32>::new();
    let mut process = Child::fork(|| {
        region.join("victim").unwrap();
        core::mem::forget(queue.reserve(Wait::Not).unwrap());
        core::mem::forget(ring.sender().unwrap());
        have_two_tasks(&region, &other)
    });
    trial.wait_until(|| other.load(SeqCst) != 0);
    let (sweeper, ids) = (AtomicU32::new(0), [const { AtomicU32::new(0) }; 2]);
    // A thread that joins sweeps, so these have joined before.
    let (joined, go) = (Barrier::new(3), Barrier::new(3));
    std::thread::scope(|scope| {
        let user = |id: usize, act: fn(&Region)| {
            let (ids, region, joined, go) = (&ids, &region, &joined, &go);
            scope.spawn(move || {
                region.join("user").unwrap();
                ids[id].store(thread_id(), SeqCst);
                joined.wait();
                go.wait();
                act(region);
            })
        };
        let users = [
            user(0, |region| {
                let queue = Queue::open(region, "queue").unwrap();
                queue.try_send(b"next").unwrap();
            }),
            user(1, |region| {
                let ring = Spsc::open(region, "ring").unwrap();
                drop(ring.sender().unwrap());
            }),
        ];
        joined.wait();
        let held = kill_the_first(&trial, &region, process.pid() as u32, &other);
        let Some(last) = held else {
            process.kill();
            go.wait();
            return;
        };
        // It has counted the death, and waits for the other thread.
        let sweeps = scope.spawn(|| {
            sweeper.store(thread_id(), SeqCst);
            region.sweep().unwrap()
        });
        let of_last = word(&region, VICTIM + 1, 0);
        trial.wait_until(|| sleeps_on(sweeper.load(SeqCst), of_last) || sweeps.is_finished());
        go.wait();
        for (user, id) in users.iter().zip(&ids) {
            let waits = || sleeps_in_header(id.load(SeqCst), &region);
            trial.wait_until(|| waits() || user.is_finished());
            // If this machine stood still for a second, the sweep lost its patience, and has settled the death.
            let is_early = user.is_finished() && word(&region, VICTIM, 0).load(SeqCst) != 0;
            assert!(
                !is_early,
                "used while a thread of the sender's process lived"
            );
        }
        drop(last);
    });
    process.wait();
    assert_eq!(queue.len(), 1);
}

/// Whether a thread sleeps on a word of the region's header, such as that of the lock of the sweeps.
fn sleeps_in_header(thread: u32, region: &Region) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    let call = call.unwrap_or_default();
    let mut fields = call.split(' ');
    let is_futex = fields.next() == Some(&libc::SYS_futex.to_string());
    let address = fields.next().and_then(|field| field.strip_prefix("0x"));
    let address = address.and_then(|digits| usize::from_str_radix(digits, 16).ok());
    let header = region.base().addr()..region.base().addr() + SLOTS;
    is_futex && address.is_some_and(|address| header.contains(&address))
}

/// A thread that ends with a semaphore is dead as a task, while its process lives on. Its blocks are not freed, so that nobody
/// need wait for the others.
#[test]
fn a_sweep_does_not_wait_for_the_process_of_a_thread_that_ended_in_another_namespace() {
    let name = "a_sweep_does_not_wait_for_the_process_of_a_thread_that_ended_in_another_namespace";
    let Some((trial, region)) = begin_among_namespaces(name) else {
        return;
    };
    region.base().expose_provenance();
    let obtained = Page::<AtomicU32>::new();
    let mut namespace = Namespace::start(true, || {
        region.join("victim").unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                region.join("other").unwrap();
                let semaphore = BinarySemaphore::create(&region, "held", &BinaryOptions::new());
                semaphore.unwrap().obtain().unwrap().keep();
            });
            other.join().unwrap();
            obtained.store(1, SeqCst);
            loop {
                std::thread::park();
            }
        });
    });
    trial.wait_until(|| obtained.load(SeqCst) == 1);
    let victim_lives = word(&region, 0, 0).load(SeqCst);
    trial.wait_until(|| word(&region, 1, 0).load(SeqCst) & OWNER_DIED != 0);
    let before = sleeps();
    assert_eq!(region.sweep().unwrap().dead, ["other"]);
    // It would look once a millisecond, for a second.
    let slept = sleeps() - before;
    assert!(slept < 50, "the sweep slept {slept} times");
    assert_eq!(word(&region, 0, 0).load(SeqCst), victim_lives);
    namespace.end();
}

/// If a thread ends by a bare system call, nothing says that its process lives on.
#[test]
fn the_blocks_of_a_thread_that_vanished_in_another_namespace_are_kept() {
    let name = "the_blocks_of_a_thread_that_vanished_in_another_namespace_are_kept";
    let Some((trial, region)) = begin_among_namespaces(name) else {
        return;
    };
    let mut namespace = Namespace::start(true, || {
        region.join("other").unwrap();
        let thread = std::thread::spawn({
            let region = region.clone();
            move || {
                region.join("victim").unwrap();
                core::mem::forget(Box::new_in([1u64; 100], &region).unwrap());
                // SAFETY: the thread's values are leaked.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            }
        });
        drop(thread);
        loop {
            std::thread::park();
        }
    });
    region.base().expose_provenance();
    trial.wait_until(|| word(&region, 1, 0).load(SeqCst) & OWNER_DIED != 0);
    assert_eq!(blocks(&region), 1);
    assert_eq!(region.sweep().unwrap().dead, ["victim"]);
    let stats = region.heap_stats();
    assert_eq!((stats.private_blocks, stats.shared_blocks), (0, 1));
    namespace.end();
}

/// How often the calling thread has waited for something.
fn sleeps() -> i64 {
    // SAFETY: plain numbers, which the call writes.
    unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// If a thread that is not its process's first one calls `exec`, the kernel marks nothing.
#[test]
fn a_task_that_becomes_another_program_is_dead_whichever_thread_does_it() {
    let trial =
        Trial::begin("a_task_that_becomes_another_program_is_dead_whichever_thread_does_it");
    for is_first in [true, false] {
        let region = region();
        region.base().expose_provenance();
        region.join("survivor").unwrap();
        let lock = region.object("lock", || Mutex::in_region(1u64)).unwrap();
        let before = blocks(&region);
        let begin = || {
            region.join("victim").unwrap();
            core::mem::forget(Box::new_in([1u64; 100], &region).unwrap());
            core::mem::forget(lock.lock().unwrap());
            let error = std::process::Command::new("true").exec();
            panic!("exec: {error}");
        };
        let other_program = Child::fork(|| match is_first {
            true => begin(),
            false => std::thread::scope(|scope| scope.spawn(begin).join().unwrap()),
        });
        other_program.succeed();
        assert_eq!(blocks(&region), before + 1);
        assert_eq!(region.sweep().unwrap().dead, ["victim"], "{is_first}");
        assert_eq!(blocks(&region), before);
        assert!(matches!(
            lock.lock(),
            Err(latchwork::mutex::in_region::LockError::OwnerDied(_))
        ));
        trial.progress();
    }
}

/// A process whose second thread becomes a task, and another program.
fn becomes_another_program(region: &Region) {
    Child::fork(|| {
        let begin = || {
            region.join("victim").unwrap();
            core::mem::forget(Box::new_in([1u64; 100], region).unwrap());
            let error = std::process::Command::new("true").exec();
            panic!("exec: {error}");
        };
        std::thread::scope(|scope| scope.spawn(begin).join().unwrap())
    })
    .succeed();
}

/// The file has no lock of a process, and the word of a task that seems to be alive.
#[test]
fn a_region_whose_last_task_became_another_program_is_attached_again() {
    let name = "a_region_whose_last_task_became_another_program_is_attached_again";
    let _trial = Trial::begin(name);
    let (name, _file) = Leftover::region("became another program");
    Child::fork(|| {
        let region = options().create_named(&name).unwrap();
        let lock = region.object("lock", || Mutex::in_region(1u64)).unwrap();
        std::thread::scope(|scope| {
            let begin = || {
                core::mem::forget(lock.lock().unwrap());
                let error = std::process::Command::new("true").exec();
                panic!("exec: {error}");
            };
            scope.spawn(begin).join().unwrap()
        })
    })
    .succeed();
    let region = options().attach(&name).unwrap();
    let lock = region.find::<Mutex<u64, InRegion>>("lock").unwrap();
    assert!(matches!(
        lock.lock(),
        Err(latchwork::mutex::in_region::LockError::OwnerDied(_))
    ));
}

/// Calls `body` while so many threads are tasks of the region.
fn beside_living_tasks(region: &Region, count: usize, body: impl FnOnce()) {
    let (all_joined, end) = (Barrier::new(count + 1), Barrier::new(count + 1));
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                region.join("living").unwrap();
                all_joined.wait();
                end.wait();
            });
        }
        all_joined.wait();
        // The others end, whether it fails or not.
        let outcome = catch_unwind(AssertUnwindSafe(body));
        end.wait();
        outcome.unwrap_or_else(|failure| resume_unwind(failure));
    });
}

fn join_in_a_thread(region: &Region) {
    std::thread::scope(|scope| {
        let joins = scope.spawn(|| region.join("joins").unwrap());
        joins.join().unwrap();
    });
}

/// A joiner asks about a few tasks, the next one about others.
#[test]
fn tasks_that_join_find_a_task_that_became_another_program() {
    let trial = Trial::begin("tasks_that_join_find_a_task_that_became_another_program");
    let region = options().max_tasks(128).create_anonymous().unwrap();
    region.base().expose_provenance();
    let before = blocks(&region);
    beside_living_tasks(&region, 100, || {
        becomes_another_program(&region);
        assert_eq!(blocks(&region), before + 1);
        for _ in 0..64 {
            if blocks(&region) == before {
                break;
            }
            join_in_a_thread(&region);
            trial.progress();
        }
        assert_eq!(blocks(&region), before);
    });
}

#[test]
fn the_place_of_a_task_that_became_another_program_is_found_if_the_table_is_full() {
    let name = "the_place_of_a_task_that_became_another_program_is_found_if_the_table_is_full";
    let trial = Trial::begin(name);
    let region = options().max_tasks(64).create_anonymous().unwrap();
    region.base().expose_provenance();
    beside_living_tasks(&region, 63, || {
        becomes_another_program(&region);
        trial.progress();
        join_in_a_thread(&region);
    });
}
