//! `latchwork locks`: the owners and waiters of all locks, in all processes of the system.

pub(crate) mod json;
pub(crate) mod text;

use crate::live::{self, Observer, Picture, Symbols};
use crate::ps::report_missing_regions;
use crate::status::Problems;
use crate::terminal::{self, Keyboard, keys};
use anstream::AutoStream;
use ratatui::crossterm::event::KeyCode;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show what the threads of this process hold and wait for, and follow each chain of waits to its end
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Show only objects in this region
    #[arg(long, value_name = "NAME")]
    region: Vec<String>,
    /// Also show waits for objects that have no owner: condition variables, semaphores, messages, and futexes of unknown
    /// kinds
    #[arg(long)]
    all: bool,
    /// Print one JSON object instead of tables (with --watch: one JSON object per line)
    #[arg(long)]
    json: bool,
    /// Print the tables again every SECONDS seconds (2 if no number is given). On a terminal, they fill the screen until q
    /// is pressed
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = seconds
    )]
    watch: Option<Duration>,
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    if !(0.05..=86_400.0).contains(&seconds) {
        return Err("between 0.05 and 86400 seconds".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// The repeated views that the arguments request.
struct Views<'a> {
    args: &'a Args,
    observer: Observer,
    symbols: Symbols,
}

/// Shows what is accessible; inaccessible processes are no failure, except named ones. With `--watch` it ends as soon
/// as a named process or region is gone.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<ExitCode> {
    let mut views = Views {
        args,
        observer: Observer::default(),
        symbols: Symbols::default(),
    };
    if let Some(pause) = args.watch.filter(|_| !args.json && terminal::is_there()) {
        return watch(&mut views, pause);
    }
    loop {
        let mut problems = Problems::of("locks");
        let picture = views.view(&mut problems);
        match (args.json, args.watch) {
            (true, None) => json::print_pretty(&picture, out)?,
            (true, Some(_)) => json::print_line(&picture, out)?,
            (false, _) => text::print(&picture, out)?,
        }
        out.flush()?;
        let Some(pause) = args.watch.filter(|_| problems.is_none()) else {
            return Ok(problems.code());
        };
        std::thread::sleep(pause);
        if !args.json {
            writeln!(out)?;
        }
    }
}

/// Refreshes the whole screen until a key or a signal ends it, or a named process or region is gone.
fn watch(views: &mut Views<'_>, pause: Duration) -> io::Result<ExitCode> {
    let mut problems = Problems::deferred("locks");
    let colours = AutoStream::choice(&io::stdout());
    terminal::session(|session| {
        let mut keyboard = Keyboard::default();
        // Kept if one view has fewer lines than that.
        let mut wanted_above = 0;
        let mut is_done = false;
        while !is_done && !session.is_ended() {
            let picture = views.view(&mut problems);
            if !problems.is_none() {
                break;
            }
            let mut text = AutoStream::new(Vec::new(), colours);
            text::print(&picture, &mut text)?;
            let text = text.into_inner();
            let text = String::from_utf8_lossy(&text);
            let next = Instant::now() + pause;
            while !is_done && !session.is_ended() {
                let (mut above, page) = session.show(&text, wanted_above)?;
                let left = next.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
                }
                keyboard.keys(left.min(terminal::PATIENCE), |key| match key.code {
                    _ if keys::suspends(&key) => terminal::suspend(),
                    _ if keys::interrupts(&key) => is_done = true,
                    KeyCode::Char('q') => is_done = true,
                    code => {
                        if let Some(moved) = keys::moved(code, above, page) {
                            (above, wanted_above) = (moved, moved);
                        }
                    }
                })?;
            }
        }
        Ok(())
    })?;
    problems.print_deferred();
    Ok(problems.code())
}

/// Reports the processes that do not exist, or that the caller may not inspect.
fn seek_processes(pids: &[u32], problems: &mut Problems) {
    for pid in pids {
        if !std::fs::exists(format!("/proc/{pid}/task/{pid}")).unwrap_or(true) {
            problems.report(format_args!("there is no process {pid}"));
            continue;
        }
        // The file that is needed most, and whose permission is that of the others.
        let memory = std::fs::File::open(format!("/proc/{pid}/mem"));
        if let Err(error) = memory
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            problems.report(format_args!("process {pid}: {error}"));
        }
    }
}

impl Views<'_> {
    fn view(&mut self, problems: &mut Problems) -> Picture {
        let args = self.args;
        let mut picture = self.observer.view();
        seek_processes(&args.pid, problems);
        report_missing_regions(&picture, &args.region, problems);
        if !args.pid.is_empty() {
            picture.narrow_to(&args.pid);
        }
        let wanted: Vec<bool> = picture
            .locks
            .iter()
            .map(|lock| {
                let in_region = || match &lock.place {
                    live::Location::Region { region, .. } => picture
                        .regions
                        .get(*region)
                        .is_some_and(|region| args.region.contains(&region.name)),
                    _ => false,
                };
                (args.region.is_empty() || in_region())
                    && (args.all || !args.pid.is_empty() || picture.is_notable(lock))
            })
            .collect();
        picture.retain_locks(&wanted);
        self.symbols.name_all(&mut picture);
        picture
    }
}
