//! What the scheduler tells of a task: that it runs, sleeps, or is kept off its processor; of threads and
//! of other processes.
#![cfg(all(feature = "bpf", not(loom)))]
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use latchwork::mutex::throughput::oracle::{self, OracleError};
use latchwork::mutex::{Mutex, Throughput};
use latchwork::sharing::Shared;
use latchwork_testkit::{Child, Trial};
use std::thread;

mod lock_support;
use lock_support::{Mapped, ThreadId};

/// Switches the oracle on; if it may not, says which test is skipped.
fn is_on(test: &str) -> bool {
    match oracle::enable_bpf() {
        Ok(()) => true,
        Err(
            why @ (OracleError::NotPermitted
            | OracleError::PidNamespace
            | OracleError::Unsupported(_)),
        ) => {
            println!("skipped: {test}: {why}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// The processors of this process, if there are two: one for who watches, and another.
fn two_processors(test: &str) -> Option<[usize; 2]> {
    // SAFETY: the kernel fills the set; the macros of libc read it.
    let found: Vec<usize> = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        assert_eq!(
            libc::sched_getaffinity(0, size_of_val(&set), &raw mut set),
            0
        );
        (0..libc::CPU_SETSIZE as usize)
            .filter(|cpu| libc::CPU_ISSET(*cpu, &set))
            .collect()
    };
    match found[..] {
        [first, second, ..] => Some([first, second]),
        _ => {
            println!("skipped: {test} needs two processors");
            None
        }
    }
}

/// Keeps the calling thread on one processor.
fn stay_on(cpu: usize) {
    // SAFETY: the kernel reads the set.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set),
            0
        );
    }
}

fn runs(thread: i32) -> Option<bool> {
    oracle::runs(thread.cast_unsigned())
}

/// The calling thread, to others.
fn me() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// What happens to one task after the other, as another one sees it.
#[derive(Default)]
struct Stage {
    /// Its ID, once it is there.
    task: AtomicI32,
    /// The task works as long as this is not set, and sleeps then.
    is_enough: AtomicBool,
    /// Nobody needs it any more.
    is_over: AtomicBool,
}

impl Stage {
    fn play(&self, cpu: usize) {
        stay_on(cpu);
        self.task.store(me(), Ordering::Release);
        while !self.is_enough.load(Ordering::Relaxed) {
            core::hint::spin_loop();
        }
        while !self.is_over.load(Ordering::Relaxed) {
            thread::park();
        }
    }

    /// Works on, for nothing.
    fn compete(&self, cpu: usize) {
        stay_on(cpu);
        while !self.is_over.load(Ordering::Relaxed) {
            core::hint::spin_loop();
        }
    }

    fn task(&self, trial: &Trial) -> i32 {
        trial.wait_until(|| self.task.load(Ordering::Acquire) != 0);
        self.task.load(Ordering::Acquire)
    }
}

/// Ends the play when it goes, also if an assertion has failed.
struct Curtain<'a>(&'a Stage, thread::Thread);

impl Drop for Curtain<'_> {
    fn drop(&mut self) {
        self.0.is_enough.store(true, Ordering::Relaxed);
        self.0.is_over.store(true, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// Whether the kernel says that a task sleeps.
fn sleeps(task: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{task}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| rest.starts_with('S'))
}

/// A task on a processor of its own runs, and does not once it sleeps.
fn watch_it_work_and_sleep(trial: &Trial, stage: &Stage) {
    let task = stage.task(trial);
    trial.wait_until(|| runs(task) == Some(true));
    stage.is_enough.store(true, Ordering::Relaxed);
    trial.wait_until(|| sleeps(task));
    for _ in 0..1000 {
        assert_ne!(runs(task), Some(true), "it sleeps");
    }
    trial.wait_until(|| runs(task) == Some(false));
}

/// Of two tasks that work on one processor each is found running, and off, time and again.
fn watch_it_kept_off(trial: &Trial, task: i32, other: i32) {
    for _ in 0..5 {
        for task in [task, other] {
            trial.wait_until(|| runs(task) == Some(true));
            trial.wait_until(|| runs(task) == Some(false));
            assert!(!sleeps(task), "it waits for the processor");
        }
    }
}

#[test]
fn a_task_that_asks_runs() {
    let trial = Trial::begin("a_task_that_asks_runs");
    if !is_on(trial.name()) {
        return;
    }
    for _ in 0..1000 {
        assert_ne!(runs(me()), Some(false));
    }
    trial.wait_until(|| runs(me()) == Some(true));
    assert_eq!(runs(0), Some(false), "nobody has this ID");
}

#[test]
fn a_thread_that_works_runs_and_one_that_sleeps_does_not() {
    let trial = Trial::begin("a_thread_that_works_runs");
    let Some([here, there]) = two_processors(trial.name()).filter(|_| is_on(trial.name())) else {
        return;
    };
    let stage = Stage::default();
    thread::scope(|scope| {
        let actor = scope.spawn(|| stage.play(there));
        let _curtain = Curtain(&stage, actor.thread().clone());
        stay_on(here);
        watch_it_work_and_sleep(&trial, &stage);
    });
}

#[test]
fn a_thread_that_is_kept_off_its_processor_does_not_run() {
    let trial = Trial::begin("a_thread_that_is_kept_off");
    let Some([here, there]) = two_processors(trial.name()).filter(|_| is_on(trial.name())) else {
        return;
    };
    let (stage, other) = (Stage::default(), ThreadId::default());
    thread::scope(|scope| {
        let actor = scope.spawn(|| stage.play(there));
        let _curtain = Curtain(&stage, actor.thread().clone());
        scope.spawn(|| {
            other.set();
            stage.compete(there);
        });
        stay_on(here);
        trial.wait_until(|| other.is_set());
        watch_it_kept_off(&trial, stage.task(&trial), other.number());
    });
}

#[test]
fn another_process_is_known_as_a_thread_is() {
    let trial = Trial::begin("another_process_is_known");
    let Some([here, there]) = two_processors(trial.name()).filter(|_| is_on(trial.name())) else {
        return;
    };
    let stage = Mapped::new(Stage::default());
    let mut child = Child::fork(|| stage.play(there));
    stay_on(here);
    let task = stage.task(&trial);
    let mut other = Child::fork(|| stage.compete(there));
    watch_it_kept_off(&trial, task, other.pid());
    other.kill();
    watch_it_work_and_sleep(&trial, &stage);
    child.kill();
}

#[test]
fn the_child_of_a_fork_goes_on_asking_and_outlives_its_parent() {
    let trial = Trial::begin("the_child_of_a_fork");
    if !is_on(trial.name()) {
        return;
    }
    let answers = Mapped::new(AtomicI32::new(0));
    Child::fork(|| {
        assert_eq!(oracle::enable_bpf(), Ok(()), "it has it");
        // A grandchild, whose parent ends.
        // SAFETY: no other thread is in the child.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: ends the process, should the answer never come.
            unsafe { libc::alarm(120) };
            while runs(me()) != Some(true) {}
            answers.fetch_add(1, Ordering::Release);
            // SAFETY: ends the process.
            unsafe { libc::_exit(0) };
        }
    })
    .succeed();
    trial.wait_until(|| answers.load(Ordering::Acquire) == 1);
}

#[test]
fn a_child_that_has_closed_the_descriptor_is_not_answered() {
    let trial = Trial::begin("a_child_that_has_closed");
    if !is_on(trial.name()) {
        return;
    }
    Child::fork(|| {
        // SAFETY: the child uses none of them.
        unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
        assert_eq!(runs(me()), None);
        // It may load its own.
        assert_eq!(oracle::enable_bpf(), Ok(()));
        trial.wait_until(|| runs(me()) == Some(true));
    })
    .succeed();
}

#[test]
fn in_another_pid_namespace_nobody_is_answered() {
    let trial = Trial::begin("in_another_pid_namespace");
    if !is_on(trial.name()) {
        return;
    }
    Child::fork(|| {
        // SAFETY: this process stays where it is, its children do not.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            println!("skipped: {} needs CAP_SYS_ADMIN", trial.name());
            return;
        }
        // SAFETY: no other thread is in this process.
        let inside = unsafe { libc::fork() };
        if inside == 0 {
            let answers = (me(), runs(me()), oracle::enable_bpf());
            let expected = (1, None, Err(OracleError::PidNamespace));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(answers != expected)) };
        }
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        assert_eq!(unsafe { libc::waitpid(inside, &raw mut status, 0) }, inside);
        assert_eq!(status, 0, "refused in there, by the right name");
        trial.wait_until(|| runs(me()) == Some(true));
    })
    .succeed();
}

#[test]
fn locks_between_threads_and_processes_exclude_with_the_oracle_as_without() {
    let trial = Trial::begin("locks_exclude_with_the_oracle");
    if !is_on(trial.name()) {
        return;
    }
    const TASKS: u64 = 4;
    const ROUNDS: u64 = 3_000;
    let mutex = Mapped::new(Mutex::from_raw(Throughput::<Shared>::new(), 0_u64));
    let work = || {
        for _ in 0..ROUNDS {
            let mut count = mutex.lock();
            let seen = *count;
            (0..seen % 200).for_each(|_| core::hint::spin_loop());
            *count = seen + 1;
        }
    };
    let children: Vec<_> = (0..TASKS).map(|_| Child::fork(work)).collect();
    thread::scope(|scope| {
        (0..TASKS).for_each(|_| drop(scope.spawn(work)));
    });
    children.into_iter().for_each(Child::succeed);
    assert_eq!(*mutex.lock(), 2 * TASKS * ROUNDS);
}
