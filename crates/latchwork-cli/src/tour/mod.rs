//! `latchwork tour`: tasks that share memory survive a kill, on real input.
//!
//! Worker processes, fed by a queue, build a word index in a region. One of them is killed with SIGKILL in its critical
//! section. The others go on, and nothing is lost or counted twice: the index is compared with a single loop over the
//! same files, word by word.

mod compare;
mod index;
mod show;
mod words;
mod worker;

use crate::style::{self, Align, BAD, Cell, DOUBTFUL, FAINT, GOOD, Table};
use index::{Board, Guarded, Index, MAX_WORKERS};
use latchwork::coproc::{Attributes, Coproc, Coprocs, Options, Outcome, Signal};
use latchwork::queue::{Queue, QueueOptions, SendError};
use latchwork::region::{Region, RegionOptions};
use latchwork::time::Deadline;
use show::{Show, State};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

/// Count the words of a tree of text files by several processes, and kill one of them meanwhile
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory whose text files are read [default: this project's sources, else the current
    /// directory]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Worker processes, 1 to 63 [default: one per CPU, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_WORKERS as i64 - 1))]
    workers: Option<u16>,
    /// Read at most MIB MiB of text
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_LIMIT)]
    limit: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            path: None,
            workers: None,
            limit: DEFAULT_LIMIT,
        }
    }
}

/// The limit in MiB of text: enough for a tour of a few seconds.
const DEFAULT_LIMIT: u64 = 64;
/// How often the display is refreshed.
const TICK: Duration = Duration::from_millis(20);
const NAMES: &str = "index-worker";

pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<ExitCode, Box<dyn Error>> {
    let root = args
        .path
        .clone()
        .unwrap_or_else(default_root)
        .canonicalize()?;
    let cpus = std::thread::available_parallelism().map_or(2, usize::from);
    let workers = args
        .workers
        .map_or(cpus.clamp(2, MAX_WORKERS - 1), usize::from);

    // Done first, since the zygote is a copy of this process, and should be small.
    let region = RegionOptions::new()
        .max_bytes(2 << 30)
        .label("tour")
        .create_anonymous()?;
    // SAFETY: no static owns anything in the region, or a descriptor that a coproc uses.
    #[allow(unsafe_code)]
    let coprocs = unsafe { Coprocs::with_options(&region, &Options::new()) }?;
    region.join("tour")?;

    let sources = words::find(&root, args.limit.saturating_mul(1 << 20))?;
    let mut places = Vec::new();
    let mut has_words = Vec::new();
    for path in &sources.files {
        let text = std::fs::read(path)?;
        for (offset, length) in words::pieces(&text) {
            places.push((path, offset, length));
            let piece = &text[offset as usize..][..length as usize];
            has_words.push(words::has_any(piece));
        }
    }
    if places.len() < 2 {
        return Err(format!(
            "{} has too little text for a tour: choose another --path",
            root.display()
        )
        .into());
    }
    // The piece in which a worker is killed.
    let third = places.len() / 3;
    let mut candidates = (third..places.len()).chain(0..third);
    let Some(trap) = candidates.find(|piece| has_words[*piece]) else {
        return Err(format!(
            "{} has no words to count: choose another --path",
            root.display()
        )
        .into());
    };
    show::title(
        out,
        "Latchwork tour: processes that share memory, and one of them dies",
    )?;
    writeln!(
        out,
        "  {}: {}, {} of text, in {} pieces{}",
        root.display(),
        style::count(sources.files.len(), "file", "files"),
        style::bytes(sources.bytes),
        places.len(),
        if sources.left_out > 0 {
            format!(
                " ({} left out, see --limit)",
                style::count(sources.left_out, "file", "files")
            )
        } else {
            String::new()
        },
    )?;
    writeln!(
        out,
        "  a region at {:p}, the same address in every process; {workers} workers, one queue, one robust mutex",
        region.base(),
    )?;
    out.flush()?;

    let report = with_coprocs(&region, &coprocs, &places, trap, workers)?;

    let start = Instant::now();
    let threads = compare::with_threads(&places, workers)?;
    let threads_time = start.elapsed();
    let start = Instant::now();
    let alone = compare::alone(sources.files.iter().map(std::fs::read))?;
    let alone_time = start.elapsed();

    conclude(
        out,
        &region,
        &report,
        &threads,
        &alone,
        &Times {
            coprocs: report.time,
            threads: threads_time,
            alone: alone_time,
        },
    )
}

/// The project's sources if cargo runs this command, else the current directory.
fn default_root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .and_then(|manifest| Some(Path::new(&manifest).parent()?.parent()?.to_owned()))
        .unwrap_or_else(|| PathBuf::from("."))
}

/// What has happened so far.
struct Report {
    time: Duration,
    pieces: usize,
    victim: u32,
    recovered_by: u32,
    rolled_back: bool,
    redelivered: u32,
    done_already: u32,
    failed: Vec<String>,
}

struct Times {
    coprocs: Duration,
    threads: Duration,
    alone: Duration,
}

struct Worker {
    coproc: Option<Coproc>,
    pid: u32,
    state: State,
}

fn with_coprocs(
    region: &Region,
    coprocs: &Coprocs,
    places: &[compare::PieceRange<'_>],
    trap: usize,
    workers: usize,
) -> Result<Report, Box<dyn Error>> {
    let queue = Queue::create(region, worker::QUEUE, &QueueOptions::new(256, 4200))?;
    let empty = Index::new(region, places.len())?;
    region.object(worker::INDEX, || empty)?;
    let board = region.object(worker::BOARD, || Board::new(trap as u32))?;

    let start = Instant::now();
    let mut show = Show::new(places.len());
    let mut pool = WorkerPool {
        coprocs,
        workers: Vec::new(),
    };
    for _ in 0..workers {
        pool.start(&mut show)?;
    }
    let mut report = Report {
        time: Duration::ZERO,
        pieces: places.len(),
        victim: 0,
        recovered_by: 0,
        rolled_back: false,
        redelivered: 0,
        done_already: 0,
        failed: Vec::new(),
    };
    let mut message = Vec::new();
    let mut next = 0;
    let mut stops = 0;
    let mut recovery_reported = false;
    while pool.is_at_work() {
        // Feed the queue; after the last piece, one stop message for each worker at work.
        while next < places.len() || stops < pool.at_work() {
            message.clear();
            if let Some((path, offset, length)) = places.get(next) {
                worker::Task {
                    number: next as u32,
                    offset: *offset,
                    length: *length,
                    path,
                }
                .encode(&mut message);
            } else if report.victim == 0 && pieces_done(&board) < places.len() as u64 {
                // The victim's replacement is not at work yet.
                break;
            }
            match queue.try_send(&message) {
                Ok(()) if next < places.len() => next += 1,
                Ok(()) => stops += 1,
                Err(SendError::Full) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let victim = board.victim.load(SeqCst);
        if victim != 0 && report.victim == 0 {
            let pid = pool.kill(victim as usize - 1)?;
            report.victim = pid;
            show.event(BAD, &format!("SIGKILL to {NAMES}-{victim}, process {pid}, in its critical section: it holds the mutex, and piece {trap} is half counted"));
            let pid = pool.start(&mut show)?;
            show.event(
                FAINT,
                &format!(
                    "{NAMES}-{}, process {pid}, takes the place of the killed worker",
                    pool.workers.len()
                ),
            );
        }
        let recovered_by = board.recovered_by.load(SeqCst);
        if recovered_by != 0 && !recovery_reported {
            recovery_reported = true;
            show.event(GOOD, &format!("{NAMES}-{recovered_by} acquired the mutex of the dead worker, and rolled back its half-done changes"));
        }
        pool.refresh(&mut report, &board, &show, TICK)?;
        show.whole(pieces_done(&board));
    }
    report.time = start.elapsed();
    show.finish();
    report.recovered_by = board.recovered_by.load(SeqCst);
    report.rolled_back = board.rolled_back.load(Relaxed) != 0;
    report.redelivered = board.redelivered.load(Relaxed);
    report.done_already = board.done_already.load(Relaxed);
    Ok(report)
}

fn pieces_done(board: &Board) -> u64 {
    let pieces = board.pieces.iter().map(|pieces| pieces.load(Relaxed));
    u64::from(pieces.sum::<u32>())
}

/// The workers.
struct WorkerPool<'a> {
    coprocs: &'a Coprocs,
    workers: Vec<Worker>,
}

impl WorkerPool<'_> {
    fn start(&mut self, show: &mut Show) -> Result<u32, Box<dyn Error>> {
        let number = self.workers.len() as u32;
        let name = format!("{NAMES}-{}", number + 1);
        let attributes = Attributes::new().name(&name).die_with_parent();
        let coproc = self.coprocs.spawn_value(worker::run, number, &attributes)?;
        let pid = coproc.pid();
        show.add(&name, pid);
        self.workers.push(Worker {
            coproc: Some(coproc),
            pid,
            state: State::Working,
        });
        Ok(pid)
    }

    fn at_work(&self) -> usize {
        self.workers
            .iter()
            .filter(|worker| worker.coproc.is_some())
            .count()
    }

    fn is_at_work(&self) -> bool {
        self.at_work() > 0
    }

    fn kill(&mut self, index: usize) -> Result<u32, Box<dyn Error>> {
        let victim = &mut self.workers[index];
        if let Some(coproc) = victim.coproc.take() {
            coproc.kill(Signal::KILL)?;
            match coproc.join()?.outcome {
                Outcome::Signalled { signal: 9, .. } => {}
                other => {
                    return Err(format!("the victim ended by {other:?}, not by SIGKILL").into());
                }
            }
        }
        victim.state = State::Killed;
        Ok(victim.pid)
    }

    /// Waits for a moment for a worker to end, and refreshes the display.
    fn refresh(
        &mut self,
        report: &mut Report,
        board: &Board,
        show: &Show,
        moment: Duration,
    ) -> Result<(), Box<dyn Error>> {
        let alive: Vec<&Coproc> = self
            .workers
            .iter()
            .filter_map(|worker| worker.coproc.as_ref())
            .collect();
        // Passing the deadline is the usual end of this wait.
        let _ = latchwork::coproc::wait_any(&alive, Some(Deadline::after(moment)));
        for (index, worker) in self.workers.iter_mut().enumerate() {
            if worker
                .coproc
                .as_ref()
                .is_some_and(|coproc| !coproc.is_alive())
                && let Some(coproc) = worker.coproc.take()
            {
                let name = coproc.name().to_owned();
                let exit = coproc.join()?;
                worker.state = if exit.is_success() {
                    State::Done
                } else {
                    State::Killed
                };
                if !exit.is_success() {
                    report.failed.push(format!("{name}: {:?}", exit.outcome));
                    show.event(BAD, &format!("{name} ended: {:?}", exit.outcome));
                }
            }
            show.worker(
                index,
                worker.pid,
                board.pieces[index].load(Relaxed),
                worker.state,
            );
        }
        Ok(())
    }
}

fn conclude(
    out: &mut impl Write,
    region: &Region,
    report: &Report,
    threads: &compare::Counts,
    alone: &compare::Counts,
    times: &Times,
) -> Result<ExitCode, Box<dyn Error>> {
    let index = region.find::<Guarded>(worker::INDEX)?;
    let (held, _) = index::lock(index)?;
    let index = held.get();
    let words: compare::Counts = index
        .counted()
        .map(|(word, count)| (word.to_owned(), count))
        .collect();
    let total: u64 = words.values().sum();
    let checks = [
        (
            "every piece is in the index exactly once",
            index.pieces() as usize == report.pieces,
        ),
        (
            "each word counts the same in a single loop over the files",
            words == *alone,
        ),
        (
            "each word counts the same in a run with threads",
            threads == alone,
        ),
        (
            "the running total of the index agrees with the sum of its counts",
            index.total.load(Relaxed) == total,
        ),
        (
            "one worker was killed while it held the mutex",
            report.victim != 0,
        ),
        (
            "another worker acquired the mutex, and rolled back the half-done changes",
            report.recovered_by != 0 && report.rolled_back,
        ),
        (
            "the message of the killed worker was delivered again",
            report.redelivered == 1 && report.done_already == 0,
        ),
        ("no other worker failed", report.failed.is_empty()),
        ("the region's heap is intact", region.check_heap().is_ok()),
    ];
    show::title(out, "Results")?;
    for (text, holds) in checks {
        let (style, mark) = if holds { (GOOD, "yes") } else { (BAD, "NO") };
        writeln!(out, "  {style}{mark:>3}{style:#}  {text}")?;
    }
    writeln!(out)?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("WORDS", Align::Right),
        ("DIFFERENT", Align::Right),
        ("TIME", Align::Right),
    ]);
    let mut row = |name: &str, counts: &compare::Counts, time: Duration| {
        let time = format!("{:.0} ms", time.as_secs_f64() * 1e3);
        table.push(vec![
            Cell::plain(name),
            Cell::plain(counts.values().sum::<u64>()),
            Cell::plain(counts.len()),
            Cell::plain(time),
        ]);
    };
    row("processes, one killed", &words, times.coprocs);
    row("threads, none killed", threads, times.threads);
    row("one loop", alone, times.alone);
    table.write(out)?;
    let stats = region.heap_stats();
    writeln!(
        out,
        "\n  {} of blocks in the region, {} committed",
        style::bytes(stats.allocated_bytes as u64),
        style::bytes(stats.committed_bytes as u64)
    )?;
    let mut first: Vec<_> = words.iter().collect();
    first.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let first: Vec<_> = first
        .iter()
        .take(8)
        .map(|(word, count)| format!("{word} {count}"))
        .collect();
    writeln!(out, "  the most frequent words: {}", first.join(", "))?;
    let all = checks.iter().all(|(_, holds)| *holds);
    const NONE_KILLED: &str = "The tour could not kill a worker in the middle of a piece: the files changed while it ran. Run it again.";
    let (style, text) = match (all, report.victim) {
        (true, _) => (GOOD, "All figures agree."),
        (false, 0) => (BAD, NONE_KILLED),
        _ => (BAD, "The figures do not agree."),
    };
    writeln!(
        out,
        "\n{style}{text}{style:#} {DOUBTFUL}latchwork doctor{DOUBTFUL:#} shows what this system offers, {DOUBTFUL}latchwork ps{DOUBTFUL:#} shows the regions on it."
    )?;
    Ok(if all {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tour_without_a_task_to_kill_ends() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let places = [(&path, 0, 10), (&path, 10, 10)];
        let options = RegionOptions::new();
        let region = options.label("tour-test").create_anonymous().unwrap();
        // SAFETY: no static owns anything in the region, or a descriptor that a coproc uses.
        #[allow(unsafe_code)]
        let coprocs = unsafe { Coprocs::new(&region) }.unwrap();
        let no_such_piece = places.len();
        let report = with_coprocs(&region, &coprocs, &places, no_such_piece, 2).unwrap();
        assert_eq!(report.victim, 0);
        assert_eq!(report.failed, [""; 0]);
    }
}
