//! The wall clock, set forward and back.
#![allow(unsafe_code)]

use std::io::Error;

const SECOND: i128 = 1_000_000_000;
/// The longest step.
const MOST_SECONDS: i64 = 100_000;

/// The machine's wall clock, which is wrong while this exists and right again when it is dropped.
///
/// All programs of the machine see it, so a test may only have it in a machine of its own.
#[derive(Debug)]
pub struct WallClock {
    /// How far it is ahead of the monotonic clock when it is right, in nanoseconds.
    ahead: i128,
}

impl WallClock {
    /// The clock of this machine, if `LATCHWORK_STEP_CLOCK` is 1; without it, and without the privilege, prints which test
    /// is skipped.
    #[must_use]
    pub fn of_own_machine(test: &str) -> Option<Self> {
        if std::env::var("LATCHWORK_STEP_CLOCK").as_deref() != Ok("1") {
            println!("skipped: {test} sets the wall clock, if LATCHWORK_STEP_CLOCK is 1");
            return None;
        }
        let ahead = read(libc::CLOCK_REALTIME) - read(libc::CLOCK_MONOTONIC);
        let clock = Self { ahead };
        // The kernel refuses times before its own start.
        match clock.set(-MOST_SECONDS).and_then(|()| clock.set(0)) {
            Ok(()) => Some(clock),
            Err(error) => {
                println!("skipped: {test}: the wall clock cannot be set: {error}");
                None
            }
        }
    }

    /// Sets it to a random time, at most 28 hours before or after the right one.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn step(&self, rng: &mut fastrand::Rng) {
        let seconds = rng.i64(-MOST_SECONDS..=MOST_SECONDS);
        self.set(seconds).expect("a clock that could be set");
    }

    /// Sets it to some seconds after the right time.
    fn set(&self, seconds: i64) -> Result<(), Error> {
        let now = read(libc::CLOCK_MONOTONIC) + self.ahead + i128::from(seconds) * SECOND;
        let time = libc::timespec {
            tv_sec: (now / SECOND) as _,
            tv_nsec: (now % SECOND) as _,
        };
        // SAFETY: the kernel reads the time.
        match unsafe { libc::clock_settime(libc::CLOCK_REALTIME, &raw const time) } {
            0 => Ok(()),
            _ => Err(Error::last_os_error()),
        }
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = self.set(0);
    }
}

fn read(clock: libc::clockid_t) -> i128 {
    // SAFETY: zero is a valid timespec, and the call writes it.
    unsafe {
        let mut time: libc::timespec = core::mem::zeroed();
        assert_eq!(libc::clock_gettime(clock, &raw mut time), 0);
        i128::from(time.tv_sec) * SECOND + i128::from(time.tv_nsec)
    }
}
