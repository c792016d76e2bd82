//! `latchwork symbolise`: prints a finding of the checker's with source lines.
//!
//! The checker starts it as a separate process to print a report. It resolves the places of the form `module+0x1234
//! (function)`, since it may allocate memory and read files, which the checker may not. It is not meant for people.
//!
//! | descriptor | contents |
//! | --- | --- |
//! | 0 | the report, a zero byte, and the reporter's `/proc/self/maps` |
//! | 1 | the destination of the report, which is written in one piece |
//! | 2 | [`DONE`] says that the report was written: without it, the reporter writes the report itself |

use crate::live::{Maps, Module, Program, demangled};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// Says that the report was written. (No error message begins with it.)
const DONE: u8 = 6;

/// The length of place names in a report: longer ones are cut off, and would lead elsewhere.
const PLACE: usize = 120;

/// The length of lock names in a report.
const NAME: usize = 60;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The report is an object of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match convey(args.json) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn convey(json: bool) -> io::Result<()> {
    let mut message = Vec::new();
    io::stdin().read_to_end(&mut message)?;
    let (report, maps) = split(&message);
    let mut places = Places::new(Maps::parse(&maps), std::process::id(), json);
    let text = places.in_lines(&report);
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    io::stderr().write_all(&[DONE])
}

fn split(message: &[u8]) -> (String, String) {
    let mut parts = message.splitn(2, |byte| *byte == 0);
    let mut next = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    (next(), next())
}

/// Resolves the places of a program.
struct Places {
    maps: Maps,
    /// A process with the same root.
    pid: u32,
    json: bool,
    programs: HashMap<(u64, u64), Program>,
}

impl Places {
    fn new(maps: Maps, pid: u32, json: bool) -> Self {
        Self {
            maps,
            pid,
            json,
            programs: HashMap::new(),
        }
    }

    fn in_lines(&mut self, report: &str) -> String {
        let report = self.with_whole_names(report);
        let mut text = String::with_capacity(2 * report.len());
        for line in report.split_inclusive('\n') {
            self.add_line(line, &mut text);
        }
        with_demangled_names(&text, self.json)
    }

    /// Replaces the names of statics that were cut off by the full names.
    fn with_whole_names(&mut self, report: &str) -> String {
        let mut whole = report.to_owned();
        for (name, address) in named_locks(report, self.json) {
            let is_mangled = name.contains(":_Z") || name.contains(":_R");
            if name.len() >= NAME
                && is_mangled
                && let Some(symbol) = self.static_at(address)
            {
                whole = whole.replace(name, &symbol);
            }
        }
        whole
    }

    fn static_at(&mut self, address: u64) -> Option<String> {
        let mapping = self.maps.module(address)?;
        let first = self.maps.first_of(mapping)?;
        let module = Module {
            path: first.path.clone(),
            device: first.device,
            inode: first.inode,
            start: first.start,
            offset: first.offset,
        };
        let (name, _) = self.program(&module).find_static(&module, address)?;
        let name = format!("{}:{name}", module.file_name());
        Some(escaped(&name, self.json))
    }

    fn program(&mut self, module: &Module) -> &mut Program {
        let pid = self.pid;
        self.programs
            .entry((module.device, module.inode))
            .or_insert_with(|| Program::read(pid, module))
    }

    /// Appends a line, with its places resolved.
    fn add_line(&mut self, line: &str, text: &mut String) {
        let mut rest = line;
        while let Some(plus) = rest.find("+0x") {
            let (before, behind) = (&rest[..plus], &rest[plus + 3..]);
            let digits = behind.find(|c: char| !c.is_ascii_hexdigit());
            let digits = digits.unwrap_or(behind.len());
            let (number, behind) = behind.split_at(digits);
            let function = behind
                .strip_prefix(" (")
                .and_then(|behind| behind.split_once(')'))
                .filter(|(name, _)| !name.contains([' ', '"']));
            // A place at the end of a line, or of its text, may be cut off.
            let is_cut = behind.trim_end().is_empty() && line.len() > 3 * PLACE;
            let found = u64::from_str_radix(number, 16)
                .ok()
                .filter(|_| !is_cut)
                .and_then(|offset| self.at(before, offset));
            match found {
                Some((module, place)) => {
                    text.push_str(&before[..before.len() - module]);
                    text.push_str(&escaped(&place, self.json));
                    rest = function.map_or(behind, |(_, behind)| behind);
                }
                None => {
                    text.push_str(before);
                    text.push_str("+0x");
                    text.push_str(number);
                    rest = behind;
                }
            }
        }
        text.push_str(rest);
    }

    /// The source line that a call returns to, at an offset of the file; and the length of the module's name at the end
    /// of `before`.
    fn at(&mut self, before: &str, offset: u64) -> Option<(usize, String)> {
        let module = self.module_of(before, offset)?;
        let length = module.file_name().len();
        if length + 16 > PLACE {
            return None;
        }
        // The instruction after the call may belong to another line.
        let address = module.start + (offset - module.offset).saturating_sub(1);
        let place = self.program(&module).find_place(&module, address)?;
        Some((length, place))
    }

    /// The module whose name ends a text, if there is only one, with the mapping that contains the offset.
    fn module_of(&self, before: &str, offset: u64) -> Option<Module> {
        let named = self.maps.iter().filter(|mapping| {
            let name = mapping.path.rsplit('/').next().unwrap_or_default();
            let is_file = mapping.path.starts_with('/') && mapping.inode != 0;
            is_file && !name.is_empty() && ends_with_word(before, name)
        });
        let longest = named
            .clone()
            .map(|mapping| mapping.path.rsplit('/').next().map_or(0, str::len))
            .max()?;
        let mut named =
            named.filter(|mapping| mapping.path.ends_with(&before[before.len() - longest..]));
        let first = named.clone().next()?;
        let of_first = |other: &crate::live::Mapping| {
            (other.device, other.inode) == (first.device, first.inode)
        };
        let bytes = |mapping: &crate::live::Mapping| {
            mapping.offset..mapping.offset + (mapping.end - mapping.start)
        };
        let pages = named
            .clone()
            .find(|mapping| bytes(mapping).contains(&offset))?;
        named.all(of_first).then(|| Module {
            path: pages.path.clone(),
            device: pages.device,
            inode: pages.inode,
            start: pages.start,
            offset: pages.offset,
        })
    }
}

/// Whether a text ends with a word that is not the end of a longer one.
fn ends_with_word(text: &str, word: &str) -> bool {
    text.strip_suffix(word)
        .is_some_and(|before| before.is_empty() || before.ends_with([' ', '<', '(', '"']))
}

/// The locks that a report names, with their addresses.
fn named_locks(report: &str, json: bool) -> Vec<(&str, u64)> {
    let hex = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_hexdigit());
        u64::from_str_radix(&text[..digits.unwrap_or(text.len())], 16).ok()
    };
    if json {
        let uses = report.split("{\"address\":\"0x").skip(1);
        return uses
            .filter_map(|of| {
                let (_, name) = of.split_once("\"lock\":\"")?;
                Some((name.split('"').next()?, hex(of)?))
            })
            .collect();
    }
    let lines = report
        .lines()
        .filter_map(|line| line.strip_prefix("   lock "));
    lines
        .filter_map(|line| {
            let (name, address) = line.split_once(" at 0x")?;
            Some((name, hex(address)?))
        })
        .collect()
}

/// A text with the names of C++ and Rust as they are in the sources.
fn with_demangled_names(text: &str, json: bool) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$');
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['_']) {
        let begins = !rest[..at].ends_with(is_part) && (at > 0 || !shown.ends_with(is_part));
        let length = rest[at..].find(|c| !is_part(c)).unwrap_or(rest.len() - at);
        let (before, name) = (&rest[..at], &rest[at..at + length]);
        shown.push_str(before);
        let is_mangled = begins && (name.starts_with("_Z") || name.starts_with("_R"));
        match is_mangled {
            true => shown.push_str(&escaped(&demangled(name), json)),
            false => shown.push_str(name),
        }
        rest = &rest[at + length..];
    }
    shown.push_str(rest);
    shown
}

/// A text without characters that control a terminal, escaped for a JSON string if it is for JSON.
fn escaped(text: &str, json: bool) -> String {
    let text = crate::style::printable(text);
    if !json {
        return text;
    }
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_addresses_stay_unchanged() {
        let report = "== a finding\n   task 1: x, holds mutex x+0x10 (f), gone.so+0x20\n   _x __y _Z <z+0x1>\n";
        for json in [false, true] {
            let mut places = Places::new(Maps::parse(""), std::process::id(), json);
            assert_eq!(places.in_lines(report), report);
        }
    }

    #[test]
    fn names_are_shown_as_in_the_sources() {
        let text = "x:_ZN5space1mE, y+0x1 (_ZN5space1fEi) a_Zb _RNvC6_123foo3bar";
        assert_eq!(
            with_demangled_names(text, false),
            "x:space::m, y+0x1 (space::f(int)) a_Zb 123foo::bar"
        );
    }

    #[test]
    fn locks_are_found_in_both_kinds_of_reports() {
        let text = "== x\n   lock prog:_Zx at 0x10, initialised or first used: prog+0x1\n   lock b at 0x20\n";
        assert_eq!(named_locks(text, false), [("prog:_Zx", 0x10), ("b", 0x20)]);
        let json = r#"{"holds":{"address":"0x10","lock":"prog:_Zx","kind":"mutex"},"wants":{"address":"0x20","lock":"b"}}"#;
        assert_eq!(named_locks(json, true), [("prog:_Zx", 0x10), ("b", 0x20)]);
    }

    #[test]
    fn a_report_that_was_cut_has_no_maps() {
        assert_eq!(split(b"report"), ("report".into(), String::new()));
        assert_eq!(split(b"report\0a\nb"), ("report".into(), "a\nb".into()));
    }
}
