//! A finding as JSON, on one line.
//!
//! Written without a library, since findings are made where nothing may be allocated: inside an allocator's own lock,
//! for instance. The tool's `tests/check_report.rs` parses it.

use crate::check::report::finding::{Confidence, Finding, Released, TaskText, Use};
use crate::hook::Mode;
use core::fmt::{self, Write};

/// The schema's name, which changes when a field changes.
pub const SCHEMA: &str = "latchwork-finding-5";

/// A finding, to be written as JSON.
#[derive(Debug)]
pub struct Json<'a>(pub &'a Finding);

impl fmt::Display for Json<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let finding = self.0;
        write!(to, "{{\"schema\":\"{SCHEMA}\"")?;
        field(to, "verdict", finding.verdict())?;
        field(to, "rule", finding.rule.name())?;
        let confidence = match finding.confidence {
            Confidence::Seen => "seen",
            Confidence::Follows => "follows",
            Confidence::Assumed => "assumed",
            Confidence::Suspected => "suspected",
        };
        field(to, "confidence", confidence)?;
        write!(to, ",\"id\":\"{:016x}\"", finding.id)?;
        field(to, "summary", &finding.summary)?;
        to.write_str(",\"tasks\":[")?;
        for (index, one) in finding.tasks.iter().enumerate() {
            to.write_str(if index > 0 { "," } else { "" })?;
            task(to, one)?;
        }
        to.write_str("],\"released\":")?;
        match &finding.released {
            Some(released) => one_release(to, released)?,
            None => to.write_str("null")?,
        }
        field(to, "note", &finding.note)?;
        to.write_str(",\"stack\":[")?;
        for (index, place) in finding.stack.iter().enumerate() {
            to.write_str(if index > 0 { "," } else { "" })?;
            string(to, place)?;
        }
        let Finding { rule, id, .. } = finding;
        write!(to, "],\"suppression\":\"{rule} {id:016x}\"}}")
    }
}

fn task(to: &mut impl Write, task: &TaskText) -> fmt::Result {
    write!(to, "{{\"pid\":{},\"tid\":{}", task.process, task.thread)?;
    match task.pid_namespace {
        Some(namespace) => write!(to, ",\"pid_namespace\":{namespace}")?,
        None => to.write_str(",\"pid_namespace\":null")?,
    }
    write!(to, ",\"priority\":{}", task.priority)?;
    write!(to, ",\"recorded_priority\":{}", task.recorded)?;
    field(to, "name", &task.name)?;
    field(to, "does", &task.does)?;
    for (name, of) in [
        ("holds", &task.holds),
        ("wants", &task.wants),
        ("uses", &task.uses),
    ] {
        write!(to, ",\"{name}\":")?;
        match of {
            Some(of) => one_use(to, of)?,
            None => to.write_str("null")?,
        }
    }
    to.write_char('}')
}

fn one_use(to: &mut impl Write, of: &Use) -> fmt::Result {
    write!(to, "{{\"address\":\"{:#x}\"", of.lock.address)?;
    field(to, "lock", &of.lock.name)?;
    field(to, "kind", of.lock.kind.name())?;
    field(to, "made_at", &of.lock.made_at)?;
    let mode = match of.mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
    };
    field(to, "mode", mode)?;
    field(to, "at", &of.at)?;
    write!(to, ",\"nanoseconds\":{}}}", of.nanoseconds)
}

fn one_release(to: &mut impl Write, released: &Released) -> fmt::Result {
    write!(to, "{{\"tid\":{}", released.thread)?;
    write!(to, ",\"by_guard\":{}", released.by_guard)?;
    field(to, "name", &released.name)?;
    field(to, "at", &released.at)?;
    to.write_char('}')
}

fn field(to: &mut impl Write, name: &str, value: &str) -> fmt::Result {
    write!(to, ",\"{name}\":")?;
    string(to, value)
}

pub(crate) fn string(to: &mut impl Write, value: &str) -> fmt::Result {
    to.write_char('"')?;
    for character in value.chars() {
        match character {
            '"' => to.write_str("\\\"")?,
            '\\' => to.write_str("\\\\")?,
            control if control.is_control() => write!(to, "\\u{:04x}", control as u32)?,
            other => to.write_char(other)?,
        }
    }
    to.write_char('"')
}
