//! JSON on standard output.

use crate::style::controls_terminals;
use serde::Serialize;
use std::io::{Result, Write};

/// Writes a value as indented JSON, and ends the line.
pub(crate) fn write_pretty(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    write(out, &serde_json::to_string_pretty(value)?)
}

/// Writes a value as one line of JSON.
pub(crate) fn write_line(out: &mut impl Write, value: &impl Serialize) -> Result<()> {
    write(out, &serde_json::to_string(value)?)
}

/// The text contains names of unknown programs, and may be read on a terminal. Outside of strings JSON is ASCII, so each
/// character above can be written as its number.
fn write(out: &mut impl Write, json: &str) -> Result<()> {
    let mut rest = json;
    let is_bad = |character: char| character >= '\u{7f}' && controls_terminals(character);
    while let Some(place) = rest.find(is_bad) {
        let (before, from) = rest.split_at(place);
        let bad = from.chars().next().unwrap_or_default();
        write!(out, "{before}\\u{:04x}", u32::from(bad))?;
        rest = &from[bad.len_utf8()..];
    }
    writeln!(out, "{rest}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_character_of_a_string_controls_a_terminal() {
        let name = "a\u{1b}b\u{7f}c\u{9b}d\u{202e}e\u{2069}é\u{3000}";
        for write in [super::write_pretty, super::write_line] {
            let mut out = Vec::new();
            write(&mut out, &name.to_owned()).unwrap();
            let text = String::from_utf8(out).unwrap();
            let text = text.strip_suffix('\n').unwrap();
            assert!(!text.contains(super::controls_terminals), "{text:?}");
            assert_eq!(serde_json::from_str::<String>(text).unwrap(), name);
        }
    }
}
