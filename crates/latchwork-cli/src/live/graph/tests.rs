//! Tests of the conclusions, with programs that wait for each other.

use super::*;
use crate::live::gather::Reread;
use latchwork::mutex::{Mutex, Robust, Throughput};
use latchwork::sharing::Shared;
use latchwork_testkit::Watchdog;
use std::io::{BufRead, BufReader, Read, Write};
use std::pin::Pin;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const ROLE: &str = "LATCHWORK_TEST_CYCLE";

/// A program that waits, until it is dropped.
struct Actor {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Actor {
    fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "live::graph::tests::runs_a_role", "--nocapture"]);
        command.env(ROLE, role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut actor = Self { child, stdout };
        actor.wait_for_line("ready");
        actor
    }

    fn wait_for_line(&mut self, word: &str) {
        let mut lines = self.stdout.by_ref().lines().map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with(word)), "the actor failed");
    }

    fn end_waits(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(b"go\n").unwrap();
        self.wait_for_line("moved");
    }

    /// A view in which its tasks are suspected of a deadlock, with those tasks.
    fn suspected(&self) -> (Gathering, Vec<usize>) {
        let watchdog = Watchdog::start("the suspicion never comes up".into());
        loop {
            let mut gathering = Gathering::all();
            gathering.merge_gates();
            let picture = &gathering.picture;
            let none = vec![false; picture.tasks.len()];
            let cycles = picture.cycles_without(&none);
            // (A task that acquires a gate between the reading of its call and that of the word seems to wait for
            // itself.)
            let own = |cycle: &Vec<(usize, usize)>| cycle.len() == 2 && self.is_own(picture, cycle);
            if let Some(cycle) = cycles.into_iter().find(own) {
                drop(watchdog);
                return (gathering, cycle.into_iter().map(|(task, _)| task).collect());
            }
            thread::yield_now();
        }
    }

    fn is_own(&self, picture: &Picture, cycle: &[(usize, usize)]) -> bool {
        let pid = |(task, _): &(usize, usize)| picture.tasks[*task].pid;
        cycle.iter().all(|step| pid(step) == self.child.id())
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: the program that an [`Actor`] runs.
#[test]
fn runs_a_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("naps") => naps(),
        Ok("gate") => gate(),
        Ok("leaves") => leaves(false),
        Ok("leaves and comes back") => leaves(true),
        _ => return,
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

fn naps() {
    static LOCKS: [Mutex<(), Robust>; 2] = [const { Mutex::robust(()) }; 2];
    static ALL_HOLD: Barrier = Barrier::new(3);
    for own in 0..2 {
        thread::spawn(move || {
            let _own = Pin::static_ref(&LOCKS[own]).lock();
            ALL_HOLD.wait();
            drop(Pin::static_ref(&LOCKS[1 - own]).lock());
        });
    }
    ALL_HOLD.wait();
    println!("ready");
}

/// As above, but one of the two usually waits at a gate, behind a third task.
fn gate() {
    type Lock = Mutex<(), Robust<Throughput<Shared>>>;
    static LOCKS: [Lock; 2] = [const { Mutex::robust_throughput(()) }; 2];
    static ALL_HOLD: Barrier = Barrier::new(3);
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    thread::spawn(|| {
        ALL_HOLD.wait();
        IS_TAKEN.store(true, Ordering::Release);
        drop(Pin::static_ref(&LOCKS[1]).lock());
    });
    for own in 0..2 {
        thread::spawn(move || {
            let _own = Pin::static_ref(&LOCKS[own]).lock();
            ALL_HOLD.wait();
            while !IS_TAKEN.load(Ordering::Acquire) {
                thread::yield_now();
            }
            // The delay usually lets the third task come first.
            thread::sleep(Duration::from_millis(200));
            drop(Pin::static_ref(&LOCKS[1 - own]).lock());
        });
    }
    println!("ready");
}

/// Two tasks seem to be in a deadlock, and are not: their waits end. They then wait for the same locks again, one
/// of which a third task has acquired meanwhile, or one of them waits for nothing more.
fn leaves(and_comes_back: bool) {
    static LOCKS: [Mutex<(), Robust>; 2] = [const { Mutex::robust(()) }; 2];
    static ALL_HOLD: Barrier = Barrier::new(3);
    static HAVE_LEFT: Barrier = Barrier::new(3);
    static IS_PASSED_ON: Barrier = Barrier::new(3);
    static LEAVE: AtomicBool = AtomicBool::new(false);
    let wait = |lock: usize| {
        let lock = Pin::static_ref(&LOCKS[lock]);
        while !LEAVE.load(Ordering::Acquire) {
            assert!(lock.lock_for(Duration::from_millis(50)).is_err());
        }
    };
    thread::spawn(move || {
        let own = Pin::static_ref(&LOCKS[0]).lock();
        ALL_HOLD.wait();
        wait(1);
        HAVE_LEFT.wait();
        drop(own);
        IS_PASSED_ON.wait();
        drop(Pin::static_ref(&LOCKS[1]).lock());
    });
    thread::spawn(move || {
        let _own = Pin::static_ref(&LOCKS[1]).lock();
        ALL_HOLD.wait();
        wait(0);
        HAVE_LEFT.wait();
        IS_PASSED_ON.wait();
        if and_comes_back {
            drop(Pin::static_ref(&LOCKS[0]).lock());
        }
        loop {
            thread::park();
        }
    });
    ALL_HOLD.wait();
    println!("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    LEAVE.store(true, Ordering::Release);
    HAVE_LEFT.wait();
    let _passed_on = Pin::static_ref(&LOCKS[0]).lock();
    IS_PASSED_ON.wait();
    println!("moved");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    std::process::exit(0);
}

#[test]
fn a_deadlock_is_detected_though_all_of_its_naps_have_ended_since() {
    for role in ["naps", "gate"] {
        let actor = Actor::start(role);
        let is_detected = || {
            let (gathering, tasks) = actor.suspected();
            let watchdog = Watchdog::start("no nap ever ends".into());
            for task in tasks {
                let seen = &gathering.asleep[&task];
                while seen.thread.is_still_asleep(actor.child.id(), seen.turns) {
                    thread::yield_now();
                }
            }
            drop(watchdog);
            let picture = gathering.conclude();
            let own = |cycle: &Vec<_>| actor.is_own(&picture, cycle);
            picture.cycles.iter().any(own)
        };
        // A thread that gets no processor between two naps is not seen to wait.
        assert!((0..20).any(|_| is_detected()), "{role}");
    }
}

#[test]
fn a_deadlock_that_never_existed_is_not_reported() {
    for (role, count) in [("leaves", 1), ("leaves and comes back", 2)] {
        let mut actor = Actor::start(role);
        let (gathering, tasks) = actor.suspected();
        actor.end_waits();
        // Waits until each task waits as before, as far as that can be seen of it alone.
        let watchdog = Watchdog::start("they never come back".into());
        let is_back = |task: &usize| matches!(gathering.reread(*task), Reread::Asleep(..));
        while tasks.iter().filter(|task| is_back(task)).count() != count {
            thread::yield_now();
        }
        drop(watchdog);
        let picture = gathering.conclude();
        let own = |cycle: &Vec<_>| actor.is_own(&picture, cycle);
        assert!(!picture.cycles.iter().any(own), "{role}");
    }
}
