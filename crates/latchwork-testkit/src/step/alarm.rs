//! An alarm that ends a thread's wait for a child, which may sleep for ever.
//!
//! The tracer could poll, and give its processor up meanwhile. But where other programs have work, too, each yield costs it a
//! whole time slice, while a thread that has blocked runs at once when the child stops.
#![allow(unsafe_code)]

use core::cell::Cell;
use core::ptr;
use std::io::Error;
use std::sync::Once;

/// When a wait is ended first. Whether the child sleeps is found by reading two files, which takes some 20 µs.
const FIRST_NS: libc::c_long = 300_000;
/// The longest time between two ends of a wait.
const LONGEST_NS: libc::c_long = 20_000_000;

/// Not known of each C library: from <linux/signal.h>.
const SIGEV_THREAD_ID: libc::c_int = 4;

/// Interrupts the system calls of the thread that has made it, again and again while it is on.
#[derive(Debug)]
pub struct Alarm {
    timer: libc::timer_t,
    period_ns: Cell<libc::c_long>,
}

impl Alarm {
    /// One that is off.
    ///
    /// # Panics
    /// If the system has no timer for it.
    #[expect(clippy::new_without_default, reason = "it makes a timer of the system")]
    pub fn new() -> Self {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(|| {
            // SAFETY: zero is a valid sigaction, and the handler does nothing. Without SA_RESTART calls are interrupted.
            unsafe {
                let mut action: libc::sigaction = core::mem::zeroed();
                let handler: extern "C" fn(libc::c_int) = ignore;
                action.sa_sigaction = handler as *const () as usize;
                libc::sigaction(signal(), &raw const action, ptr::null_mut());
            }
        });
        // SAFETY: zero is a valid sigevent and a valid timer_t; the call reads one and writes the other.
        unsafe {
            let mut event: libc::sigevent = core::mem::zeroed();
            event.sigev_notify = SIGEV_THREAD_ID;
            event.sigev_signo = signal();
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer: libc::timer_t = core::mem::zeroed();
            let made = libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer);
            assert_eq!(made, 0, "timer_create: {}", Error::last_os_error());
            Self {
                timer,
                period_ns: Cell::new(FIRST_NS),
            }
        }
    }

    /// Turns it on, or off.
    pub fn set(&self, is_on: bool) {
        self.period_ns.set(FIRST_NS);
        self.ring_every(if is_on { FIRST_NS } else { 0 });
    }

    /// Doubles the time between two interruptions, up to a limit. So a child that runs for long is seldom looked at, and a sleep
    /// is seen after at most as long as it took to begin.
    pub fn back_off(&self) {
        let period_ns = (2 * self.period_ns.get()).min(LONGEST_NS);
        if self.period_ns.replace(period_ns) != period_ns {
            self.ring_every(period_ns);
        }
    }

    /// Sets the time between two interruptions to its first value, if [`Self::back_off`] has changed it.
    pub fn reset(&self) {
        if self.period_ns.get() != FIRST_NS {
            self.set(true);
        }
    }

    fn ring_every(&self, period_ns: libc::c_long) {
        let period = libc::timespec {
            tv_sec: 0,
            tv_nsec: period_ns,
        };
        let times = libc::itimerspec {
            it_interval: period,
            it_value: period,
        };
        // SAFETY: this value's own timer.
        unsafe { libc::timer_settime(self.timer, 0, &raw const times, ptr::null_mut()) };
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: this value's own timer.
        unsafe { libc::timer_delete(self.timer) };
    }
}

extern "C" fn ignore(_: libc::c_int) {}

/// The tests use those before it.
fn signal() -> libc::c_int {
    libc::SIGRTMAX()
}
