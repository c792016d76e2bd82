//! Whole, unmodified programs: with glibc's locks, with throughput locks in place of them, and under the checker, as
//! `latchwork run` runs them.
//!
//! Each sample is one complete run: a wrong exit status, a wrong result or a run that does not end is a failure. The
//! checker's findings are counted (`findings`); as far as is known, the programs have no faults. Programs that are not
//! installed are skipped, by name.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::run::{Run, Way};
use super::servers;
use crate::contestant::{Absent, Contestant};
use crate::measure::{Case, Sample, Sampler};
use crate::plan::Plan;
use crate::result::{Params, Unit, Variant, Warning};

/// The contestants.
pub(super) fn contestants() -> impl Iterator<Item = Contestant> {
    Way::ALL.into_iter().map(|way| Contestant {
        name: way.name(),
        absent: command().is_none().then(|| Absent {
            reason: "programs are run by the command latchwork alone".into(),
            package: None,
        }),
    })
}

/// This command, which can run programs.
fn command() -> Option<&'static Path> {
    static COMMAND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let own = || std::env::current_exe().ok();
    let found = COMMAND.get_or_init(|| own().filter(|path| path.ends_with("latchwork")));
    found.as_deref()
}

/// A program and its work, where `do_it` returns how much was done per second.
struct Program {
    case: Variant,
    /// The required program, and the Debian package that provides it.
    needs: &'static str,
    package: &'static str,
    do_it: fn(&Run) -> io::Result<f64>,
}

const PROGRAMS: &[Program] = &[
    Program {
        case: Variant::SysbenchMutex,
        needs: "sysbench",
        package: "sysbench",
        do_it: sysbench_mutex,
    },
    Program {
        case: Variant::SysbenchContended,
        needs: "sysbench",
        package: "sysbench",
        do_it: sysbench_contended,
    },
    Program {
        case: Variant::SysbenchThreads,
        needs: "sysbench",
        package: "sysbench",
        do_it: sysbench_threads,
    },
    Program {
        case: Variant::Memcached,
        needs: "memcached",
        package: "memcached",
        do_it: servers::memcached,
    },
    Program {
        case: Variant::Redis,
        needs: "redis-server",
        package: "redis-server",
        do_it: servers::redis,
    },
    Program {
        case: Variant::Python,
        needs: "python3",
        package: "python3",
        do_it: python,
    },
    Program {
        case: Variant::Sqlite,
        needs: "sqlite3",
        package: "sqlite3",
        do_it: sqlite,
    },
    Program {
        case: Variant::StressMutex,
        needs: "stress-ng",
        package: "stress-ng",
        do_it: |run| stress(run, "--mutex", "1"),
    },
    Program {
        case: Variant::StressSem,
        needs: "stress-ng",
        package: "stress-ng",
        do_it: |run| stress(run, "--sem", "4"),
    },
];

/// The cases of all installed programs.
pub(super) fn prepare(plan: &Plan, cases: &mut Vec<Case>, warnings: &mut Vec<Warning>) {
    let Some(command) = command() else { return };
    let ways = Way::ALL
        .into_iter()
        .filter(|way| plan.wants(Way::Glibc.name(), way.name()));
    let ways: Vec<Way> = ways.collect();
    // The user has requested other contestants only.
    if ways == [Way::Glibc] && !plan.names(Way::Glibc.name()) {
        return;
    }
    for program in PROGRAMS {
        if !is_installed(program.needs) {
            let package = program.package;
            warnings.push(Warning::Skipped {
                text: format!(
                    "{} skipped: {} is not installed; the Debian package {package} provides it",
                    program.case, program.needs
                ),
            });
            continue;
        }
        for &way in &ways {
            let params = Params {
                case: Some(program.case),
                ..Params::default()
            };
            cases.push(Case {
                contestant: way.name(),
                params: params.clone(),
                group: params,
                is_base: way == Way::Glibc,
                unit: Unit::OpsPerSecond,
                further: Vec::new(),
                sampler: sampler(command, way, plan.quick, program.do_it),
            });
        }
    }
}

fn is_installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).is_file())
}

fn sampler(
    command: &'static Path,
    way: Way,
    quick: bool,
    do_it: fn(&Run) -> io::Result<f64>,
) -> Sampler {
    Box::new(move || {
        let run = Run::new(command, way, quick)?;
        let figure = do_it(&run)?;
        let extra = match way {
            Way::Check => vec![("findings", run.findings()?)],
            _ => Vec::new(),
        };
        Ok(Sample {
            figure,
            extra,
            timed: None,
        })
    })
}

fn wrong(text: &str) -> io::Error {
    let end = text.lines().last().unwrap_or("nothing");
    io::Error::other(format!("not what it should have said: {end}"))
}

/// Eight threads that use 4,096 mutexes, with work in between: sysbench's defaults.
fn sysbench_mutex(run: &Run) -> io::Result<f64> {
    sysbench_mutexes(run, run.much(20_000), &[])
}

/// The same threads with four mutexes, and no other work.
fn sysbench_contended(run: &Run) -> io::Result<f64> {
    let few = ["--mutex-num=4", "--mutex-loops=10"];
    sysbench_mutexes(run, run.much(3_000_000), &few)
}

fn sysbench_mutexes(run: &Run, locks: u32, more: &[&str]) -> io::Result<f64> {
    const THREADS: u32 = 8;
    let (threads, locks_each) = (
        format!("--threads={THREADS}"),
        format!("--mutex-locks={locks}"),
    );
    let arguments = [&["mutex", &threads, &locks_each], more, &["run"]].concat();
    let (said, _) = run.to_end("sysbench", &arguments)?;
    // An event is all the work of one thread.
    expect(&said, "total number of events:", THREADS)?;
    // Its own time, without the start of the program, and of the library in it: a quick run takes milliseconds.
    let seconds = after(&said, "total time:").and_then(|time| time.strip_suffix('s')?.parse().ok());
    let seconds: f64 = seconds.ok_or_else(|| wrong(&said))?;
    Ok(f64::from(THREADS * locks) / seconds)
}

/// Four threads that use four mutexes, and yield a thousand times for each event, in their critical sections. Beside other
/// programs each yield may give a time slice away; so the run ends after some seconds, with fewer events.
fn sysbench_threads(run: &Run) -> io::Result<f64> {
    let events = run.much(1_500);
    let wanted = format!("--events={events}");
    let (said, seconds) = run.to_end(
        "sysbench",
        &[
            "threads",
            "--threads=4",
            "--thread-locks=4",
            "--time=20",
            &wanted,
            "run",
        ],
    )?;
    match number(&said, "total number of events:") {
        Some(done) if (1..=events).contains(&done) => Ok(f64::from(done) / seconds),
        _ => Err(wrong(&said)),
    }
}

/// Checks that the output contains a number.
fn expect(said: &str, what: &str, wanted: u32) -> io::Result<()> {
    match number(said, what) == Some(wanted) {
        true => Ok(()),
        false => Err(wrong(said)),
    }
}

/// The number that the output gives for something.
fn number(said: &str, what: &str) -> Option<u32> {
    after(said, what)?.parse().ok()
}

/// What the output has after these words.
fn after<'a>(said: &'a str, what: &str) -> Option<&'a str> {
    let mut lines = said.lines();
    lines.find_map(|line| Some(line.trim().strip_prefix(what)?.trim()))
}

/// Four threads that put numbers into a queue of ten, and four that take them out.
fn python(run: &Run) -> io::Result<f64> {
    const PROGRAM: &str = "
import queue, sys, threading
each = int(sys.argv[1])
items, lock, total = queue.Queue(10), threading.Lock(), 0
def put():
    for number in range(each): items.put(number)
def get():
    global total
    for _ in range(each):
        number = items.get()
        with lock: total += number
threads = [threading.Thread(target=each) for each in (put, get) * 4]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(total)
";
    let each = run.much(10_000);
    let (said, seconds) = run.to_end(interpreter(), &["-c", PROGRAM, &each.to_string()])?;
    let sum = 4 * u64::from(each) * u64::from(each - 1) / 2;
    if said.trim() != sum.to_string() {
        return Err(wrong(&said));
    }
    Ok(f64::from(4 * each) / seconds)
}

/// Python itself, if `python3` is a script that starts it.
fn interpreter() -> &'static str {
    static FOUND: OnceLock<String> = OnceLock::new();
    FOUND.get_or_init(|| {
        let output = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let path = output.ok().and_then(|output| {
            let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
            Path::new(&path).is_file().then_some(path)
        });
        path.unwrap_or_else(|| "python3".into())
    })
}

/// A table is filled and sorted, with helpers.
fn sqlite(run: &Run) -> io::Result<f64> {
    let rows = run.much(400_000);
    let script = format!(
        "pragma threads=4; create table a(x, y); \
         with recursive c(i) as (select 1 union all select i + 1 from c where i < {rows}) \
         insert into a select i, i * 7919 % 100003 from c; \
         create index b on a(y); select count(*), max(x) from a;"
    );
    let (said, seconds) = run.to_end("sqlite3", &["rows.db", &script])?;
    if said.lines().last() != Some(&format!("{rows}|{rows}")) {
        return Err(wrong(&said));
    }
    Ok(f64::from(rows) / seconds)
}

/// Stressors of one kind, for a second or two. (With a given number of operations instead, its semaphore stressor may
/// hang even without this library.)
///
/// Its mutex stressor gives its two threads real-time priorities, for which the checker may correctly report an
/// inversion. Several stressors at a time keep the thread that starts them from its processor until the time is over;
/// it then reports that it could start none (status 3), also without this library.
fn stress(run: &Run, kind: &str, count: &str) -> io::Result<f64> {
    let time = if run.quick { "1s" } else { "2s" };
    let arguments = [
        kind,
        count,
        "--timeout",
        time,
        "--metrics-brief",
        "--yaml",
        "figures",
        "--temp-path",
        ".",
    ];
    run.well(run.start("stress-ng", &arguments)?.end()?)?;
    let figures = std::fs::read_to_string(run.file("figures"))?;
    let figure = figures.lines().find_map(|line| {
        let figure = line.trim().strip_prefix("bogo-ops-per-second-real-time:")?;
        figure.trim().parse().ok()
    });
    figure.ok_or_else(|| wrong(&figures))
}
