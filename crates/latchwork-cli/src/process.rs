//! The information of `/proc` about a process and its threads.

use serde::Serialize;
use std::time::Duration;

/// A process at one moment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// As ps shows it: R, S, D, T, Z, …
    pub(crate) state: char,
    /// Its private and shared memory, regions included.
    pub(crate) rss_bytes: u64,
    /// Whether it ends without a signal to its parent, as coprocs do.
    pub(crate) ends_silently: bool,
    /// Its command line, or its name in brackets.
    pub(crate) command: String,
}

/// The fields of a `stat` file that follow the name, from `state` on.
pub(crate) struct Stat {
    pub(crate) name: String,
    fields: Vec<String>,
}

const STATE: usize = 0;
const PARENT: usize = 1;
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const RSS_PAGES: usize = 21;
const EXIT_SIGNAL: usize = 35;

impl Stat {
    pub(crate) fn read(path: &str) -> Option<Self> {
        let text = String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned();
        // The name can contain parentheses and spaces itself.
        let (before, after) = text.rsplit_once(')')?;
        let (_, name) = before.split_once('(')?;
        Some(Self {
            name: name.to_owned(),
            fields: after.split_ascii_whitespace().map(str::to_owned).collect(),
        })
    }

    pub(crate) fn number(&self, field: usize) -> Option<u64> {
        self.fields.get(field)?.parse().ok()
    }

    pub(crate) fn signed(&self, field: usize) -> Option<i64> {
        self.fields.get(field)?.parse().ok()
    }

    /// Processor time, in the kernel's ticks.
    pub(crate) fn ticks(&self) -> Option<u64> {
        Some(
            self.number(USER_TICKS)?
                .saturating_add(self.number(SYSTEM_TICKS)?),
        )
    }

    pub(crate) fn state(&self) -> Option<char> {
        self.fields.get(STATE)?.chars().next()
    }
}

impl Process {
    /// `None` if there is no such process.
    pub(crate) fn read(pid: u32) -> Option<Self> {
        let stat = Stat::read(&format!("/proc/{pid}/stat"))?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line
            .split(|byte| *byte == 0)
            .map(String::from_utf8_lossy)
            .collect();
        let command = words.join(" ").trim_end().to_owned();
        Some(Self {
            pid,
            parent: u32::try_from(stat.number(PARENT)?).ok()?,
            state: stat.state()?,
            rss_bytes: stat
                .number(RSS_PAGES)?
                .saturating_mul(rustix::param::page_size() as u64),
            ends_silently: stat.number(EXIT_SIGNAL)? == 0,
            command: if command.is_empty() {
                format!("[{}]", stat.name)
            } else {
                command
            },
        })
    }
}

/// The CPU time that a thread has had.
pub(crate) fn thread_cpu_time(process: u32, thread: u32) -> Option<Duration> {
    let stat = Stat::read(&format!("/proc/{process}/task/{thread}/stat"))?;
    let ticks = stat.ticks()?;
    let tick = Duration::from_secs(1)
        / u32::try_from(rustix::param::clock_ticks_per_second())
            .ok()?
            .max(1);
    Some(tick.saturating_mul(u32::try_from(ticks).unwrap_or(u32::MAX)))
}
