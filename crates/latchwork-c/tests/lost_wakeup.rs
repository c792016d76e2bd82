//! A waiter for a robust mutex is woken and killed, and a newcomer has the mutex already: pthread's mutex loses the
//! wake-up, and its other waiters sleep for ever. Those of Latchwork's mutexes do not.
//!
//! The program is `examples/robust-lost-wakeup`; `docs/robust-mutexes.md` explains the fault. Its children die with it.

mod support;

use latchwork as _;
use latchwork_c as _;
use std::process::Command;
use support::{How, by, compile, finish, repository};

const GCC: How = by("gcc", &["-std=c11"]);
const CLANG: How = by("clang", &["-std=c2x", "-O2"]);
/// The program's exit status if the waiters hang.
const HANGS: i32 = 3;

/// What the program said last.
struct Outcome {
    status: Option<i32>,
    text: String,
}

impl Outcome {
    /// A number of the last line, which is "… name N, …".
    fn number(&self, name: &str) -> u32 {
        let line = self.text.lines().last().unwrap_or_default();
        let (_, rest) = line.split_once(name).expect(name);
        let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
        digits.into_iter().next().unwrap().parse().expect(name)
    }
}

/// Compiles the program for a kind of mutex, and lets it kill so many waiters.
fn kill(how: How, defines: &[&str], kills: u32) -> Outcome {
    let file = repository().join("examples/robust-lost-wakeup/robust-lost-wakeup.c");
    let mut command = Command::new(compile(&file, how, defines));
    // All on one processor: on no machine a waiter is faster than the kill, unless the scheduler interrupts the killer.
    let output = finish(command.args([&kills.to_string(), "4", "one"]));
    let text = String::from_utf8(output.stdout).unwrap();
    eprint!("{text}{}", String::from_utf8_lossy(&output.stderr));
    Outcome {
        status: output.status.code(),
        text,
    }
}

/// The negative twin of the other tests: the same program over pthread's mutex.
#[test]
fn a_robust_mutex_of_pthread_hangs_unless_the_system_has_been_repaired() {
    if !GCC.is_there() {
        return;
    }
    const KILLS: u32 = 50;
    let outcome = kill(GCC, &[], KILLS);
    if outcome.status == Some(HANGS) {
        // It hangs for this reason: all sleep on a word that is free.
        let hung = outcome.text.contains("the word is 0x00000000: free");
        assert!(hung && outcome.text.contains(": state S, "));
        return;
    }
    assert_eq!(outcome.status, Some(0));
    let (unmarked, passed_on) = (
        outcome.number("taken unmarked"),
        outcome.number("passed on"),
    );
    let system = outcome.text.lines().next().unwrap_or_default();
    if unmarked < KILLS / 2 {
        eprintln!("skipped: repaired in the C library, whose newcomers know of waiters: {system}");
    } else if passed_on >= KILLS / 2 {
        eprintln!("skipped: repaired in the kernel, which passes the wake-up on: {system}");
    } else {
        panic!("no waiter was killed in time");
    }
}

/// What POSIX programs can do: see the document.
#[test]
fn inheritance_and_repeated_waits_avoid_the_hang() {
    if GCC.is_there() {
        assert_eq!(kill(GCC, &["-DINHERIT"], 50).status, Some(0));
        assert_eq!(kill(GCC, &["-DTIMED"], 3).status, Some(0));
    }
}

/// A lost wake-up costs a nap of a second, so the kills are few. A throughput mutex's naps are shorter.
#[test]
fn robust_mutexes_do_not_hang() {
    for how in [GCC, CLANG].into_iter().filter(How::is_there) {
        for (kind, kills) in [
            ("lw_robust_mutex", 4),
            ("lw_robust_tp_mutex", 10),
            ("lw_robust_pi_mutex", 50),
        ] {
            let outcome = kill(how, &[&format!("-DLATCHWORK={kind}")], kills);
            assert_eq!(outcome.status, Some(0), "{kind}");
            assert_eq!(outcome.number("kills"), kills, "{kind}");
        }
    }
}
