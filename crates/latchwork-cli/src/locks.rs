//! `latchwork locks`: who has which lock, and who waits for it, in all processes of the system.

mod json;
pub(crate) mod text;

use crate::live::{self, Observer, Picture, Symbols};
use crate::ps::seek_regions;
use crate::status::Trouble;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show what this process's threads have and wait for, and where that leads
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Show what lies in this region only
    #[arg(long, value_name = "NAME")]
    region: Vec<String>,
    /// Show waits for events, too: conditions, counts, messages, unknown words
    #[arg(long)]
    all: bool,
    /// Print one JSON object instead of tables (with --watch: one a line)
    #[arg(long)]
    json: bool,
    /// Look again every so many seconds
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

/// Shows what can be seen; that some cannot be is no failure, but for what was named. With `--watch` it ends as soon
/// as something that was named is gone.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<ExitCode> {
    let (mut observer, mut symbols) = (Observer::default(), Symbols::default());
    loop {
        let mut trouble = Trouble::of("locks");
        let picture = chosen(args, &mut observer, &mut symbols, &mut trouble);
        match (args.json, args.watch) {
            (true, None) => json::print_pretty(&picture, out)?,
            (true, Some(_)) => json::print_line(&picture, out)?,
            (false, watch) => {
                if watch.is_some() && io::stdout().is_terminal() {
                    // To the corner, and empty the screen.
                    write!(out, "\x1b[H\x1b[2J")?;
                }
                text::print(&picture, out)?;
            }
        }
        out.flush()?;
        let Some(pause) = args.watch.filter(|_| trouble.is_none()) else {
            return Ok(trouble.code());
        };
        std::thread::sleep(pause);
        if !args.json {
            writeln!(out)?;
        }
    }
}

/// Says which processes are not there, or may not be looked at.
fn seek_processes(pids: &[u32], trouble: &mut Trouble) {
    for pid in pids {
        if !std::fs::exists(format!("/proc/{pid}/task/{pid}")).unwrap_or(true) {
            trouble.say(format_args!("there is no process {pid}"));
            continue;
        }
        // What is needed of it, and refused by the same rule.
        let memory = std::fs::File::open(format!("/proc/{pid}/mem"));
        if let Err(error) = memory
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            trouble.say(format_args!("process {pid}: {error}"));
        }
    }
}

fn chosen(
    args: &Args,
    observer: &mut Observer,
    symbols: &mut Symbols,
    trouble: &mut Trouble,
) -> Picture {
    let mut picture = observer.look();
    seek_processes(&args.pid, trouble);
    seek_regions(&picture, &args.region, trouble);
    if !args.pid.is_empty() {
        picture.narrow_to(&args.pid);
    }
    let wanted: Vec<bool> = picture
        .locks
        .iter()
        .map(|lock| {
            let in_region = || match &lock.place {
                live::Place::Region { region, .. } => picture
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
    symbols.name_all(&mut picture);
    picture
}
