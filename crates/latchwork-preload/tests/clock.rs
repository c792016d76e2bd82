//! Waits while the wall clock is set. A program of its own: every other test sees that clock, too.

use latchwork_testkit::{WallClock, compile, output_of};
use std::path::Path;
use std::process::{Command, Stdio};

/// As POSIX has it: a time of the wall clock comes when that clock shows it.
#[test]
fn waits_until_a_time_of_the_wall_clock_follow_it() {
    let test = "waits_until_a_time_of_the_wall_clock_follow_it";
    // Sets the clock right, whatever the program does.
    let Some(_clock) = WallClock::of_own_machine(test) else {
        return;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/clock.c");
    let Some((program, _leftover)) = compile(&source, "clock", &[]) else {
        return;
    };
    let this = std::env::current_exe().unwrap();
    let library = this.with_file_name("liblatchwork_preload.so");
    assert!(library.is_file(), "{}", library.display());
    for mutex in ["tp", "wait-wake", "pi", "glibc"] {
        let child = Command::new(&program)
            .env("LD_PRELOAD", &library)
            .env("LATCHWORK_MUTEX", mutex)
            .env("LATCHWORK_HEAL", "report")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = output_of(child);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{mutex}: {}: {errors}",
            output.status
        );
    }
}
