//! Programs that use the library run under valgrind, which shows them another world than the kernel does: no vDSO among
//! what the dynamic linker knows, but one in what the kernel says.

use std::process::Command;
use std::time::Duration;

use latchwork::condvar::{Condvar, Waited};
use latchwork::mutex::Mutex;
use latchwork_testkit::Watchdog;

const INSIDE: &str = "LATCHWORK_TEST_INSIDE_VALGRIND";

/// Waits by the clock, and contention.
fn work() {
    static MUTEX: Mutex<u32> = Mutex::new(0);
    static CHANGED: Condvar = Condvar::new();
    let adds = || (0..100).for_each(|_| *MUTEX.lock() += 1);
    std::thread::scope(|scope| {
        scope.spawn(adds);
        scope.spawn(adds);
    });
    let held = MUTEX.lock();
    assert!(MUTEX.lock_for(Duration::from_millis(1)).is_none());
    let (held, ended) = CHANGED.wait_for(held, Duration::from_millis(1));
    assert_eq!(ended, Waited::TimedOut);
    assert_eq!(*held, 200);
}

#[test]
fn a_program_runs_under_valgrind() {
    let _watchdog = Watchdog::start("valgrind".into());
    if std::env::var_os(INSIDE).is_some() {
        return work();
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=none", "--error-exitcode=99"])
        .arg(program)
        .args(["--exact", "a_program_runs_under_valgrind", "--nocapture"])
        .env(INSIDE, "1")
        .output();
    match output {
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(error) => eprintln!("skipped: no valgrind: {error}"),
    }
}
