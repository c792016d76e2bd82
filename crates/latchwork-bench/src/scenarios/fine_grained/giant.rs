//! The same objects behind one lock for all of a region: what RTEMS had before, and the base of its figures.
//!
//! That lock is compiled in or not (the library's feature `giant-lock`), so that these contestants run in
//! a second build of this program, which takes one sample each time it is called, by a hidden verb.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::crew::COUNTED;
use crate::contestant::Absent;
use crate::measure::{Sample, Sampler};
use crate::result::Variant;

/// Where the second build is, seen from a directory that the first one's program is in.
const PROGRAM: &str = "giant-lock/release/latchwork";
const HOW: &str = "cargo build --release --features giant-lock --target-dir target/giant-lock";

/// One sample, as the verb is asked for it.
pub(super) struct Order<'a> {
    pub(super) case: Variant,
    pub(super) contestant: &'a str,
    pub(super) tasks: u32,
    pub(super) window: Duration,
}

/// The second build, if it is there and answers.
pub(super) fn program() -> Result<&'static Path, Absent> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let path = look().ok_or("there is no second build with one lock for all")?;
        let try_it = Order {
            case: Variant::EventSelf,
            contestant: "latchwork event",
            tasks: 1,
            window: Duration::from_micros(1),
        };
        let tried = take(&path, &try_it).map_err(|error| format!("{}: {error}", path.display()));
        tried.map(|_| path)
    });
    found.as_deref().map_err(|reason| Absent {
        reason: format!("{reason}; `{HOW}` makes it"),
        package: None,
    })
}

fn look() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let paths = own
        .ancestors()
        .skip(1)
        .map(|directory| directory.join(PROGRAM));
    paths.into_iter().find(|path| path.is_file())
}

/// Samples of a contestant, which the second build knows by its usual name.
pub(super) fn sampler(
    program: &'static Path,
    case: Variant,
    contestant: String,
    tasks: u32,
    window: Duration,
) -> Sampler {
    Box::new(move || {
        let order = Order {
            case,
            contestant: &contestant,
            tasks,
            window,
        };
        take(program, &order)
    })
}

fn take(program: &Path, order: &Order<'_>) -> io::Result<Sample> {
    let output = Command::new(program)
        .args(["bench", "sample"])
        .args([&order.case.to_string(), order.contestant])
        .arg(order.tasks.to_string())
        .arg(order.window.as_micros().to_string())
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("it says nothing");
        return Err(io::Error::other(format!("{}: {said}", output.status)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    read(&text).ok_or_else(|| io::Error::other(format!("it says '{}'", text.trim())))
}

/// The figure, and what was counted, a line each.
pub(super) fn write(sample: &Sample) -> String {
    let counted = sample.extra.iter();
    let lines = counted.map(|(name, value)| format!("{name} {value}\n"));
    format!("figure {}\n{}", sample.figure, lines.collect::<String>())
}

fn read(text: &str) -> Option<Sample> {
    let mut lines = text.lines().map(|line| line.split_once(' '));
    let (_, figure) = lines.next()?.filter(|(name, _)| *name == "figure")?;
    let mut sample = Sample::from(figure.parse::<f64>().ok()?);
    for line in lines {
        let (name, value) = line?;
        let name = COUNTED.into_iter().find(|known| *known == name)?;
        sample.extra.push((name, value.parse().ok()?));
    }
    Some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_survives_the_way_through_text() {
        let sample = Sample {
            figure: 12_345.678,
            extra: vec![(COUNTED[0], 0.1), (COUNTED[3], 1e9), (COUNTED[4], 2.0)],
        };
        let read_again = read(&write(&sample)).unwrap();
        assert_eq!(read_again.figure, sample.figure);
        assert_eq!(read_again.extra, sample.extra);
    }

    #[test]
    fn other_text_is_no_sample() {
        for text in ["", "figure", "figure many", "ops 3", "figure 1\nsurprise 2"] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
