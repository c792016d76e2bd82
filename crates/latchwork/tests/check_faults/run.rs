//! A row of the table: a program, and what is to be found in it.

use latchwork::check::{self, Confidence, Finding, Rule, TaskText, Use};
use latchwork_testkit::{Child, Exit, Watchdog};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::sync::OnceLock;

/// Follows the name of a task of another PID namespace than that of the task that reports.
const ELSEWHERE: &str = "@elsewhere";

/// What a finding is to say: for each task its name, the lock that it is to hold, and the one it is to want.
pub type Tasks = &'static [(&'static str, &'static str, &'static str)];

pub struct Row {
    pub name: String,
    body: fn(),
    expected: Option<(Rule, Tasks)>,
    confidence: Option<Confidence>,
}

/// A fault: the rule, and the tasks. A program that hangs is killed when that was found.
pub fn fault(name: impl Into<String>, rule: Rule, tasks: Tasks, body: fn()) -> Row {
    Row {
        name: name.into(),
        body,
        expected: Some((rule, tasks)),
        confidence: match rule {
            Rule::OneOrder => Some(Confidence::Follows),
            Rule::OneTaskOrder => Some(Confidence::Suspected),
            _ => None,
        },
    }
}

/// The same, for an order that is only suspected.
pub fn suspected(name: impl Into<String>, tasks: Tasks, body: fn()) -> Row {
    Row {
        confidence: Some(Confidence::Suspected),
        ..fault(name, Rule::OneOrder, tasks, body)
    }
}

/// Something in which nothing is to be found, and which ends.
pub fn harmless(name: impl Into<String>, body: fn()) -> Row {
    Row {
        name: name.into(),
        body,
        expected: None,
        confidence: None,
    }
}

static PIPE: OnceLock<PipeWriter> = OnceLock::new();

fn say(line: &str) {
    let mut pipe = PIPE.get().expect("a row runs");
    assert!(line.len() < libc_pipe_buf(), "cut: {line}");
    let _ = pipe.write_all(line.as_bytes());
}

const fn libc_pipe_buf() -> usize {
    4096
}

/// Says that a lock is taken or asked for in this line, and does so.
#[macro_export]
macro_rules! at {
    ($lock:literal, $call:expr) => {{
        $crate::run::mark($lock, line!());
        $call
    }};
}

/// See [`at`].
pub fn mark(lock: &str, line: u32) {
    say(&format!("M\t{lock}\t{line}\n"));
}

/// Says that a lock is released in this line, which the finding is to name.
pub fn mark_release(line: u32) {
    say(&format!("R\t{line}\n"));
}

fn reporter(finding: &Finding) {
    let of = |of: &Option<Use>| match of {
        Some(of) => format!("{}\t{}", of.lock.name, of.at),
        None => "\t".into(),
    };
    let task = |task: &TaskText| {
        let asks = task.wants.or(task.uses);
        let elsewhere = task.pid_namespace.map_or("", |_| ELSEWHERE);
        let (holds, asks) = (of(&task.holds), of(&asks));
        format!("\t{}{elsewhere}\t{holds}\t{asks}", task.name)
    };
    let tasks: String = finding.tasks.iter().map(task).collect();
    let confidence = finding.confidence;
    let released = finding.released.map_or(String::new(), |released| {
        let how = if released.by_guard { "guard" } else { "call" };
        format!("{how} {}", released.at)
    });
    say(&format!(
        "F\t{}\t{confidence:?}\t{released}{tasks}\n",
        finding.rule
    ));
}

/// Runs something that breaks a rule, without a report.
pub fn unreported(body: impl FnOnce()) {
    check::set_reporter(None);
    body();
    check::set_reporter(Some(reporter));
}

/// A finding as it came through the pipe.
#[derive(Debug)]
struct Seen {
    rule: String,
    confidence: String,
    /// How and where the lock had been released.
    released: String,
    tasks: Vec<SeenTask>,
}

#[derive(Debug)]
struct SeenTask {
    name: String,
    holds: (String, String),
    wants: (String, String),
}

impl Seen {
    fn parse(line: &str) -> Self {
        let mut fields = line.split('\t').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        let (rule, confidence, released) = (next(), next(), next());
        let rest: Vec<String> = fields.collect();
        let tasks = rest.chunks(5).map(|task| SeenTask {
            name: task[0].clone(),
            holds: (task[1].clone(), task[2].clone()),
            wants: (task[3].clone(), task[4].clone()),
        });
        Self {
            rule,
            confidence,
            released,
            tasks: tasks.collect(),
        }
    }

    /// Whether it names these tasks with these locks, in a cycle that begins anywhere, or in any order.
    fn names(&self, tasks: Tasks) -> bool {
        let is = |seen: &SeenTask, (name, holds, wants): (&str, &str, &str)| {
            let same = |seen: &str, expected: &str| expected == "?" || seen == expected;
            seen.name == name && same(&seen.holds.0, holds) && same(&seen.wants.0, wants)
        };
        self.tasks.len() == tasks.len()
            && tasks
                .iter()
                .all(|task| self.tasks.iter().any(|seen| is(seen, *task)))
    }

    /// Places that were not marked for their lock.
    fn strange_places<'s>(
        &'s self,
        marks: &'s HashSet<(String, String)>,
    ) -> impl Iterator<Item = &'s (String, String)> {
        let uses = self
            .tasks
            .iter()
            .flat_map(|task| [&task.holds, &task.wants]);
        uses.filter(move |(lock, at)| {
            let line = |text: &str| text.parse::<u32>().unwrap_or(0);
            let seen = line(at.split(':').nth(1).unwrap_or_default());
            // A call may be spread over some lines.
            let is_marked = marks.iter().any(|(name, marked)| {
                name == lock && (line(marked)..line(marked) + 5).contains(&seen)
            });
            let unknown = ["at an unknown place", "at a place of a process of another"];
            let is_known = !unknown.iter().any(|words| at.starts_with(words));
            !lock.is_empty() && is_known && !is_marked
        })
    }
}

impl Row {
    pub fn is_fault(&self) -> bool {
        self.expected.is_some()
    }

    /// Runs the program; what was not as expected.
    pub fn run(&self) -> Result<(), String> {
        let _watchdog = Watchdog::start(self.name.clone());
        let (from, to) = std::io::pipe().expect("a pipe");
        let body = self.body;
        let mut child = Child::fork(move || {
            PIPE.set(to).expect("set once");
            if std::env::var_os("LATCHWORK_FAULT").is_none() {
                check::set_text(false);
            }
            check::set_reporter(Some(reporter));
            name_thread("main");
            body();
        });
        let mut marks = HashSet::new();
        let mut released = None;
        let mut findings = Vec::new();
        for line in BufReader::new(from).lines() {
            let line = line.expect("text");
            match line.split_once('\t') {
                Some(("M", mark)) => {
                    let (lock, line) = mark.split_once('\t').unwrap_or_default();
                    marks.insert((lock.to_owned(), line.to_owned()));
                }
                Some(("R", line)) => released = line.parse::<u32>().ok(),
                Some(("F", finding)) => {
                    findings.push(Seen::parse(finding));
                    if self.is_complete(&findings) {
                        child.kill();
                    }
                }
                _ => return Err(format!("strange line {line:?}")),
            }
        }
        let exit = child.wait();
        let ended = exit == Exit::Code(0);
        self.judge(&findings, &marks)
            .and_then(|()| judge_release(findings.first(), released))
            .and_then(|()| match self.is_fault() || ended {
                true => Ok(()),
                false => Err(format!("ended by {exit:?}")),
            })
    }

    fn is_complete(&self, findings: &[Seen]) -> bool {
        self.expected
            .is_some_and(|(rule, _)| findings.iter().any(|seen| seen.rule == rule.name()))
    }

    fn judge(&self, findings: &[Seen], marks: &HashSet<(String, String)>) -> Result<(), String> {
        let Some((rule, tasks)) = self.expected else {
            return match findings {
                [] => Ok(()),
                some => Err(format!("false alarm: {some:?}")),
            };
        };
        match findings {
            [] => Err("nothing was found".into()),
            // Two processes that complete a cycle at the same moment may both report it.
            [first, more @ ..]
                if first.rule == rule.name()
                    && more
                        .iter()
                        .all(|one| one.rule == first.rule && one.names(tasks)) =>
            {
                if !first.names(tasks) {
                    return Err(format!("wrong tasks or locks: {first:?}"));
                }
                let confidence = self.confidence.map(|confidence| format!("{confidence:?}"));
                if confidence.is_some_and(|confidence| confidence != first.confidence) {
                    return Err(format!("wrong confidence: {first:?}"));
                }
                let is_named = tasks.iter().all(|task| task.1 != "?" && task.2 != "?");
                match first.strange_places(marks).next().filter(|_| is_named) {
                    None => Ok(()),
                    Some(place) => Err(format!("wrong place: {place:?} of {marks:?}")),
                }
            }
            others => Err(format!("not just {rule}: {others:?}")),
        }
    }
}

/// Whether the finding names the place of the release before, if that was marked.
fn judge_release(finding: Option<&Seen>, marked: Option<u32>) -> Result<(), String> {
    let (Some(finding), Some(line)) = (finding, marked) else {
        return Ok(());
    };
    let seen = finding.released.split(':').nth(1);
    let seen = seen.and_then(|line| line.parse::<u32>().ok());
    match seen.is_some_and(|seen| (line..line + 5).contains(&seen)) {
        true => Ok(()),
        false => Err(format!("wrong release: {finding:?}, not line {line}")),
    }
}

/// Gives the calling thread a name.
pub fn name_thread(name: &str) {
    std::fs::write("/proc/thread-self/comm", name).expect("a thread may name itself");
}

/// Runs `body` on a thread of this name until it ends.
pub fn thread<'s, R: Send + 's>(
    scope: &'s std::thread::Scope<'s, '_>,
    name: &str,
    body: impl FnOnce() -> R + Send + 's,
) -> std::thread::ScopedJoinHandle<'s, R> {
    let builder = std::thread::Builder::new().name(name.into());
    builder.spawn_scoped(scope, body).expect("a thread")
}
