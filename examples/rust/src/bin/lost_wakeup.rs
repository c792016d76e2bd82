//! Waiters for a region lock are killed just as an unlock has woken them, when a newcomer has the lock already. The
//! other waiters get the lock nevertheless.
//!
//! `examples/robust-lost-wakeup` does the same in C to the robust mutex of pthread, whose waiters then sleep for ever;
//! `docs/robust-mutexes.md` explains why. Started without arguments, this program holds the lock, and starts itself
//! four times in each round as a waiter. With the argument `throughput` the lock is the throughput form. If waiters hang,
//! it ends with the status 3.
#![forbid(unsafe_code)]

use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex, RegionGuard, RegionProtocol, Throughput, WaitWake};
use latchwork::region::{Region, RegionOptions};
use latchwork::sharing::Shared;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use std::error::Error;
use std::fs::read_to_string;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

type AnyError = Box<dyn Error>;
type Lock<P> = Mutex<u64, InRegion<P>>;
type Taken<'a, P> = Result<RegionGuard<'a, u64, P>, LockError<'a, u64, P>>;

const ROUNDS: u32 = 50;
const WAITERS: usize = 4;
/// After so many looks at sleeping waiters and a free lock the waiters hang.
const LOOKS: u32 = 40;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
const MOMENT: Duration = Duration::from_millis(1);
const HANG: u8 = 3;

fn lock_in<P: RegionProtocol>(region: &Region) -> Result<&Lock<P>, AnyError> {
    let make = || Mutex::from_raw(InRegion::new(), 0);
    Ok(region.object("lock", make)?.get_ref())
}

/// The lock, also from a dead owner: it only protects a count that is always right.
fn settle<P: RegionProtocol>(taken: Taken<'_, P>) -> Taken<'_, P> {
    match taken {
        Err(LockError::OwnerDied(died)) => Ok(died.make_consistent()),
        other => other,
    }
}

/// A waiter: it ends with its parent, or when it has had the lock.
fn wait<P: RegionProtocol>(name: &str, parent: Option<Pid>) -> Result<(), AnyError> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != parent {
        return Ok(());
    }
    let region = RegionOptions::new().attach(name)?;
    let lock = lock_in::<P>(&region)?;
    *settle(lock.lock())? += 1;
    Ok(())
}

/// Whether a waiter sleeps in one of the calls that wait for a lock, and how often it has gone to sleep so far.
fn look(waiter: &Child) -> Result<(bool, String), AnyError> {
    let file = |name| read_to_string(format!("/proc/{}/{name}", waiter.id()));
    let status = file("status")?;
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.unwrap_or_default().to_owned()
    };
    let sleeps = field("State:").contains("S (sleeping)");
    // The calls that wait for a futex. Where the kernel does not show the call, a sleep is enough.
    let is_wait = |call: String| matches!(call.split(' ').next(), Some("98" | "202" | "449"));
    let waits = file("syscall").map_or(sleeps, |call| sleeps && is_wait(call));
    Ok((waits, field("voluntary_ctxt_switches:")))
}

fn start(form: &str, name: &str) -> Result<Child, AnyError> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut waiter = command
        .args([form, name, &std::process::id().to_string()])
        .spawn()?;
    while !look(&waiter)?.0 {
        if let Some(status) = waiter.try_wait()? {
            return Err(format!("a waiter has ended before it slept: {status}").into());
        }
        std::thread::sleep(MOMENT);
    }
    Ok(waiter)
}

/// Waits until each waiter has had the lock; returns whether all had it. Meanwhile the lock is taken and freed again and
/// again.
fn all_get_it<P: RegionProtocol>(
    lock: &Lock<P>,
    mut waiters: Vec<Child>,
) -> Result<bool, AnyError> {
    let (mut looks, mut seen) = (0, Vec::new());
    loop {
        let mut failure = None;
        waiters.retain_mut(|waiter| match waiter.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => false,
            other => {
                failure = Some(format!("a waiter has failed: {other:?}"));
                false
            }
        });
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        if waiters.is_empty() {
            return Ok(true);
        }
        let now = waiters.iter().map(look).collect::<Result<Vec<_>, _>>()?;
        let is_free = settle(lock.try_lock()).is_ok();
        let is_still = is_free && now.iter().all(|waiter| waiter.0) && now == seen;
        looks = if is_still { looks + 1 } else { 0 };
        if looks == LOOKS {
            eprintln!("{} waiters hang, {lock:?}", waiters.len());
            for mut waiter in waiters {
                waiter.kill()?;
                waiter.wait()?;
            }
            return Ok(false);
        }
        seen = now;
        std::thread::sleep(if is_still { BETWEEN_LOOKS } else { MOMENT });
    }
}

fn run<P: RegionProtocol>(form: &str) -> Result<ExitCode, AnyError> {
    let name = format!("example-lost-wakeup-{}", std::process::id());
    let region = RegionOptions::new()
        .max_bytes(4 << 20)
        .unlink_at_last_detach(true)
        .create_named(&name)?;
    let lock = lock_in::<P>(&region)?;
    let (mut expected, mut killed) = (0, 0);
    let mut longest = Duration::ZERO;
    for _ in 0..ROUNDS {
        let held = settle(lock.lock())?;
        let mut waiters = Vec::new();
        for _ in 0..WAITERS {
            waiters.push(start(form, &name)?);
        }
        // The unlock wakes the first waiter; a newcomer takes the lock; the waiter is killed; the newcomer unlocks.
        drop(held);
        let newcomer = settle(lock.try_lock());
        let mut woken = waiters.remove(0);
        let kill = woken.kill();
        let status = woken.wait()?;
        kill?;
        drop(newcomer);
        let unlocked = Instant::now();
        // If it was too fast for the kill, it has had the lock.
        let was_killed = u64::from(status.signal().is_some());
        killed += was_killed;
        expected += WAITERS as u64 - was_killed;
        if !all_get_it(lock, waiters)? {
            println!("hang after kills {killed}, longest wait for ever");
            return Ok(ExitCode::from(HANG));
        }
        longest = longest.max(unlocked.elapsed());
    }
    let count = *settle(lock.lock())?;
    // One that was killed may have had the lock before.
    assert!(expected <= count && count <= expected + killed);
    println!(
        "no hang in {ROUNDS} rounds: kills {killed}, longest wait {:.2} s",
        longest.as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}

fn start_as<P: RegionProtocol>(form: &str, rest: &[String]) -> Result<ExitCode, AnyError> {
    let [name, parent] = rest else {
        return run::<P>(form);
    };
    wait::<P>(name, Pid::from_raw(parent.parse()?))?;
    Ok(ExitCode::SUCCESS)
}

fn main() -> Result<ExitCode, AnyError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((form, rest)) if form == "throughput" => start_as::<Throughput<Shared>>(form, rest),
        Some((form, rest)) if form == "plain" => start_as::<WaitWake<Shared>>(form, rest),
        Some((form, _)) => Err(format!("{form} is no form of the lock").into()),
        None => run::<WaitWake<Shared>>("plain"),
    }
}
