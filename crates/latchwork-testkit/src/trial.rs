//! One kill test.

use crate::apart::Apart;
use crate::{Child, Seed, Watchdog};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// Locked during a trial; names the thread of the last one.
static TURN: Mutex<Option<Owner>> = Mutex::new(None);

/// The frame of a kill test. Kill tests of one program run one after another (each needs all CPUs), under a watchdog,
/// with a seed that is printed first. A test begins when the thread of the one before it has ended: only then has that
/// thread left its regions, and their addresses are free.
#[derive(Debug)]
pub struct Trial {
    name: &'static str,
    seed: Seed,
    watchdog: Watchdog,
    apart: Option<Apart>,
    _turn: MutexGuard<'static, Option<Owner>>,
}

/// The thread of a trial.
#[derive(Debug)]
struct Owner {
    id: ThreadId,
    /// A file that can be read as long as the thread exists.
    file: File,
}

impl Owner {
    /// The calling thread. None for a process's main thread, which does not end before the process, and without `/proc`.
    fn current() -> Option<Self> {
        let id = std::thread::current().id();
        // `PID/task/TID`
        let own = std::fs::read_link("/proc/thread-self").ok()?;
        let is_main = own.iter().next() == own.file_name();
        let file = File::open("/proc/thread-self/comm").ok()?;
        (!is_main).then_some(Self { id, file })
    }

    /// Waits until the thread has ended, unless it is the calling one.
    fn wait_until_ended(&self) {
        while self.id != std::thread::current().id() && self.file.read_at(&mut [0], 0).is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Trial {
    /// Waits for the other tests and begins.
    #[must_use]
    pub fn begin(name: &'static str) -> Self {
        let mut turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = Seed::from_env();
        println!("{name}: LATCHWORK_SEED={seed}");
        let watchdog = Watchdog::start(format!("{name}, LATCHWORK_SEED={seed}"));
        if let Some(last) = turn.take() {
            last.wait_until_ended();
        }
        *turn = Owner::current();
        Self {
            name,
            seed,
            watchdog,
            apart: None,
            _turn: turn,
        }
    }

    /// From now on, each child of this thread is forked into a PID namespace of its own with probability one half; the seed
    /// decides. All of those have the same thread ID. This process, the other children, and the tasks that recover in
    /// [`each_instruction_and_recovery`](crate::step::each_instruction_and_recovery) are in another namespace.
    ///
    /// A child that is killed while it becomes a task of a region ends its whole namespace, so its claim of a slot is never
    /// freed: such a region needs room for as many claims. The bodies of children must not use the process IDs of others, and
    /// end by [`die`](crate::die) if they are to end by a kill.
    ///
    /// If this process may not make PID namespaces, it says so, and all children stay in its namespace.
    #[must_use]
    pub fn across_namespaces(mut self) -> Self {
        match Apart::begin(self.seed) {
            Ok(apart) => self.apart = Some(apart),
            Err(error) => println!(
                "skipped: {}: children in other PID namespaces: {error}",
                self.name
            ),
        }
        self
    }

    /// Whether children may be in other PID namespaces.
    #[must_use]
    pub fn is_across_namespaces(&self) -> bool {
        self.apart.is_some()
    }

    /// The test's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The seed of its random decisions.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Reports progress to the watchdog.
    pub fn progress(&self) {
        self.watchdog.progress();
    }

    /// A number of kills (or of anything else that a long run does more of), multiplied by `LATCHWORK_KILLS`.
    #[must_use]
    pub fn times(&self, usual: u64) -> u64 {
        scaled(usual, factor("LATCHWORK_KILLS").unwrap_or(1.0))
    }

    /// A number of kills at instructions, multiplied by `LATCHWORK_POINTS`, or by `LATCHWORK_KILLS` without it.
    #[must_use]
    pub fn points(&self, usual: u64) -> u64 {
        scaled(usual, self.points_factor())
    }

    /// Whether there are to be more kills at instructions than usual.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.points_factor() > 1.0
    }

    /// Of how many operations tasks are killed as they recover from a kill, as a share: `LATCHWORK_RECOVERIES`, or else all of
    /// them in a long run, and one in 32 in another.
    #[must_use]
    pub fn share_of_recoveries(&self) -> f64 {
        let usual = if self.is_long() { 1.0 } else { 1.0 / 32.0 };
        factor("LATCHWORK_RECOVERIES").unwrap_or(usual)
    }

    fn points_factor(&self) -> f64 {
        let points = factor("LATCHWORK_POINTS");
        points.or(factor("LATCHWORK_KILLS")).unwrap_or(1.0)
    }

    /// How long a stress test without an end of its own runs: `LATCHWORK_STRESS_SECONDS`, or 3 s.
    #[must_use]
    pub fn stress_time(&self) -> Duration {
        let seconds = std::env::var("LATCHWORK_STRESS_SECONDS")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(3);
        Duration::from_secs(seconds)
    }

    /// Stops a child while it sleeps in a futex system call. So it holds none of the locks within the library's objects, as it
    /// might if its sleep was interrupted just then.
    pub fn stop_asleep(&self, child: &Child) {
        let call = || std::fs::read_to_string(format!("/proc/{}/syscall", child.pid())).ok();
        loop {
            let mut asleep = None;
            self.wait_until(|| {
                asleep = call();
                child.is_in_futex()
            });
            child.signal(libc::SIGSTOP);
            self.wait_until(|| child.is_stopped());
            // In the same call, with the same arguments.
            if call() == asleep {
                return;
            }
            child.signal(libc::SIGCONT);
        }
    }

    /// Waits until `condition` holds; only the watchdog limits the wait.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        let mut looks = 0_u32;
        while !condition() {
            looks = looks.saturating_add(1);
            // Where other programs have work, a yield takes a whole time slice. And a real-time task that only yields starves
            // lower ones that are bound to the same processor.
            match looks {
                0..4 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
        self.progress();
    }
}

fn factor(variable: &str) -> Option<f64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn scaled(usual: u64, factor: f64) -> u64 {
    ((usual as f64 * factor) as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    static HAS_LEFT: AtomicBool = AtomicBool::new(false);

    /// What a thread leaves at its end, late.
    struct Joined(Cell<bool>);

    impl Drop for Joined {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(100));
            HAS_LEFT.store(self.0.get(), SeqCst);
        }
    }

    thread_local!(static JOINED: Joined = const { Joined(Cell::new(false)) });

    #[test]
    fn a_trial_begins_when_the_thread_of_the_last_one_has_ended() {
        let thread = std::thread::spawn(|| {
            let _trial = Trial::begin("the last one");
            JOINED.with(|joined| joined.0.set(true));
            HAS_BEGUN.store(true, SeqCst);
        });
        while !HAS_BEGUN.load(SeqCst) {
            std::thread::yield_now();
        }
        drop(Trial::begin("a_trial_begins"));
        assert!(HAS_LEFT.load(SeqCst));
        // A thread does not wait for itself.
        drop(Trial::begin("a_trial_begins_again"));
        thread.join().unwrap();
    }
}
