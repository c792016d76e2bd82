//! The lock order as a file: one JSON object a line, for each edge between two classes.
//!
//! Files of several runs may be appended to one another. `latchwork order diff` shows the edges that a run of another
//! program, or of a later version, adds.

use crate::check::record::board::board;
use crate::check::record::bounded::Text;
use crate::check::record::order_graph::graph::{Edge, GRAPH};
use crate::check::record::process::ProcessId;
use crate::check::record::settings;
use crate::check::record::standard_error::complain;
use crate::check::report::json::string;
use crate::check::report::words;
use crate::sys::cancellation::Undisturbed;
use crate::sys::{introspect, thread};
use core::fmt::{self, Write};

/// The schema's name, which changes when a field changes.
pub const SCHEMA: &str = "latchwork-order-1";

/// Appends the lock order that was seen so far to a file, which is created if it does not exist. Returns the number of
/// edges that were written: fewer than were seen if the disk is full.
///
/// # Errors
/// If the file cannot be opened.
pub fn save_order(path: &str) -> Result<usize, CannotOpen> {
    append(path).map(|(count, _)| count)
}

/// Returns how many edges were written, and whether that is all of them.
fn append(path: &str) -> Result<(usize, bool), CannotOpen> {
    let _undisturbed = Undisturbed::begin();
    let file = introspect::append_to(path).ok_or(CannotOpen)?;
    let (mut count, mut is_whole) = (0, true);
    for edge in GRAPH.edges() {
        let mut line = Line(Text::EMPTY);
        if matches!(line.write(edge), Ok(true)) {
            let bytes = line.0.as_bytes();
            is_whole = introspect::write(&file, bytes) == bytes.len();
            if !is_whole {
                break;
            }
            count += 1;
        }
    }
    Ok((count, is_whole))
}

/// The file for the lock order cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lock order file cannot be opened")]
pub struct CannotOpen;

pub(crate) extern "C" fn save_at_exit() {
    if let Some(path) = settings::ORDER.get()
        && !append(path).is_ok_and(|(_, is_whole)| is_whole)
    {
        complain(format_args!("cannot save the lock order to {path}"));
    }
}

/// Has room for all texts even if each character is escaped as six.
struct Line(Text<4096>);

impl Line {
    /// Returns whether the edge leads from one class to another.
    fn write(&mut self, edge: &Edge) -> Result<bool, fmt::Error> {
        let to = &mut self.0;
        let process = ProcessId::here(thread::process_id());
        let [held, wanted] = [&edge.held, &edge.wanted].map(|end| {
            let (lock, _, site) = end.load();
            (lock, words::place(process, site))
        });
        let (from, to_name) = (class_name(held.0.address()), class_name(wanted.0.address()));
        if *from == *to_name {
            return Ok(false);
        }
        write!(to, "{{\"schema\":\"{SCHEMA}\"")?;
        for (name, value) in [
            ("from", &*from),
            ("to", &*to_name),
            ("from_kind", held.0.kind.name()),
            ("to_kind", wanted.0.kind.name()),
            ("held_at", &*held.1),
            ("wanted_at", &*wanted.1),
        ] {
            write!(to, ",\"{name}\":")?;
            string(to, value)?;
        }
        to.write_str("}\n")?;
        Ok(true)
    }
}

/// A name of a lock's class that is the same in every run: its name, or the place where it was made.
fn class_name(address: usize) -> Text<128> {
    let Some(board) = board() else {
        return Text::EMPTY;
    };
    board.lock(address).map_or(Text::EMPTY, |entry| {
        let (key, site) = entry.name_and_site();
        let name = (key != 0).then(|| board.text_of(key)).flatten();
        name.map_or_else(
            || words::place(ProcessId::here(thread::process_id()), site),
            |name| name.copy(),
        )
    })
}
