//! How much processor time other programs had while a sample was taken.
//!
//! It is computed from `/proc/stat`, which counts what each CPU did in ticks (usually of 10 ms), and from the processor
//! time of this process and its children. Time that the hypervisor gave to others counts as well. One tick for each CPU
//! may be counted to the wrong side, so this much is tolerated.
//!
//! It cannot be computed if a contestant's tasks are processes that have not been waited for yet, or coprocs: their
//! time would look like that of other programs.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::machine;
use crate::peers::children_cpu_time;
use crate::result::{Kind, Params, Warning};

/// A sample is disturbed if others had more than this share of the CPUs.
pub(crate) const TOLERATED: f64 = 0.1;

/// Time without work before a scenario: some ticks of each CPU.
const IDLE: Duration = Duration::from_millis(300);

/// Measures the disturbance of a sample.
pub(crate) trait Watch {
    /// A sample begins.
    fn begin(&mut self);
    /// Returns the share of the CPUs that other programs have had since.
    fn end(&mut self) -> f64;
    /// Does nothing for a moment, and returns the share of the CPUs that other programs had in it.
    fn idle(&mut self) -> f64 {
        0.0
    }
}

/// The warning before a scenario, if other programs have this share of the CPUs while this one does nothing. (The load
/// average would count the scenario before.)
pub(crate) fn at_start(share: f64) -> Option<Warning> {
    (share > TOLERATED).then(|| Warning::Load {
        text: format!(
            "at the start other programs used {:.0} % of the CPUs: end them and measure again",
            100.0 * share
        ),
    })
}

/// Measures nothing, for runs whose figures mean nothing.
pub(crate) struct Blind;

impl Watch for Blind {
    fn begin(&mut self) {}

    fn end(&mut self) -> f64 {
        0.0
    }
}

/// Whether the processor times of a case's tasks are counted as this process's.
pub(crate) fn is_measurable(params: &Params) -> bool {
    let apart = matches!(params.kind, Some(Kind::Processes | Kind::Coprocs));
    // A sample with an intentional background load is disturbed on purpose.
    let is_alone = params.beside.is_none() && params.quota_pct.is_none();
    !apart && params.parent_mib.is_none() && is_alone
}

/// Measures the CPUs that this process may run on.
pub(crate) struct Others {
    cpus: Vec<usize>,
    tick: Duration,
    begun: Option<Reading>,
}

struct Reading {
    at: Instant,
    busy: Duration,
    own: Duration,
}

impl Others {
    pub(crate) fn new() -> Self {
        let ticks = u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100);
        Self {
            cpus: machine::cpus(),
            tick: Duration::from_secs(1) / ticks.max(1),
            begun: None,
        }
    }

    fn read(&self) -> Option<Reading> {
        let at = Instant::now();
        let text = fs::read_to_string("/proc/stat").ok()?;
        let ticks = busy_ticks(&text, &self.cpus)?;
        let own = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::try_from(own).ok()? + children_cpu_time();
        Some(Reading {
            at,
            busy: self.tick * u32::try_from(ticks).ok()?,
            own,
        })
    }

    fn share(&self, begun: &Reading, ended: &Reading) -> f64 {
        let cpus = u32::try_from(self.cpus.len()).unwrap_or(1).max(1);
        let busy = ended.busy.saturating_sub(begun.busy);
        let own = ended.own.saturating_sub(begun.own);
        let others = busy.saturating_sub(own).saturating_sub(self.tick * cpus);
        let room = ended.at.duration_since(begun.at) * cpus;
        others.as_secs_f64() / room.as_secs_f64().max(1e-9)
    }
}

impl Watch for Others {
    fn begin(&mut self) {
        self.begun = self.read();
    }

    fn end(&mut self) -> f64 {
        match (&self.begun, self.read()) {
            (Some(begun), Some(ended)) => self.share(begun, &ended),
            // Without that file the share is unknown.
            _ => 0.0,
        }
    }

    fn idle(&mut self) -> f64 {
        self.begin();
        thread::sleep(IDLE);
        self.end()
    }
}

/// The ticks in which these CPUs were not idle.
fn busy_ticks(stat: &str, cpus: &[usize]) -> Option<u64> {
    let mut busy = 0;
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        let number = words.next().and_then(|word| word.strip_prefix("cpu"));
        let Some(Ok(cpu)) = number.map(str::parse::<usize>) else {
            continue;
        };
        if cpus.contains(&cpu) {
            // user, nice, system, idle, iowait, irq, softirq, steal; the fields after these are included in the first
            // two.
            let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let [user, nice, system, _, _, rest @ ..] = ticks.as_slice() else {
                return None;
            };
            busy += user + nice + system + rest.iter().take(3).sum::<u64>();
        }
    }
    Some(busy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::background::Spinners;

    #[test]
    fn ticks_are_those_of_the_own_cpus() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 3 100 200 4 5 6 1 1\ncpu1 10 0 0 0 0 0 0 0 0 0\n\
                    cpu2 1000 0 0 0 0 0 0 0 0 0\nintr 5 5 5\n";
        assert_eq!(busy_ticks(stat, &[0, 1]), Some(21 + 10));
        assert_eq!(busy_ticks("cpu0 1 2\n", &[0]), None);
        assert_eq!(busy_ticks("", &[0]), Some(0));
    }

    #[test]
    fn the_rest_of_the_ticks_belongs_to_other_programs() {
        let watch = Others {
            cpus: vec![0, 1],
            tick: Duration::from_millis(10),
            begun: None,
        };
        let at = Instant::now();
        let reading = |after: u64, busy: u64, own: u64| Reading {
            at: at + Duration::from_millis(after),
            busy: Duration::from_millis(busy),
            own: Duration::from_millis(own),
        };
        let share = |busy: u64, own: u64| {
            watch.share(&reading(0, 50, 7), &reading(100, 50 + busy, 7 + own))
        };
        // Both CPUs are busy, and all but one tick for each belongs to other programs.
        assert!((share(200, 0) - 0.9).abs() < 1e-9);
        assert!((share(200, 100) - 0.4).abs() < 1e-9);
        // All of it belongs to this process; or not all ticks are counted yet.
        assert_eq!(share(200, 200), 0.0);
        assert_eq!(share(180, 200), 0.0);
    }

    #[test]
    fn a_share_above_what_is_tolerated_is_warned_of() {
        assert_eq!(at_start(0.0), None);
        assert_eq!(at_start(TOLERATED), None);
        let warning = at_start(0.5).unwrap();
        assert!(warning.text().contains("50 %"), "{}", warning.text());
    }

    /// Programs that spin, however late they get a processor.
    #[test]
    fn other_programs_are_detected() {
        let mut watch = Others::new();
        assert!(watch.read().is_some(), "/proc/stat");
        let cpus = u32::try_from(watch.cpus.len()).unwrap();
        let _spinners = Spinners::start(2 * cpus).unwrap();
        let _watchdog = latchwork_testkit::Watchdog::start("no share of them was seen".to_owned());
        while watch.idle() <= TOLERATED {}
    }
}
