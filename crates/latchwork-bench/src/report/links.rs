//! What the texts of a report have in common: the names of its files, and escaped text.

use crate::published::Document;

pub(super) fn chart_of(scenario: &str) -> String {
    format!("{scenario}.svg")
}

/// The histograms of durations, for a scenario that records durations.
pub(super) fn panels_of(scenario: &str) -> String {
    format!("{scenario}-durations.svg")
}

/// The page of a document, if it has figures.
pub(super) fn page_of(document: &Document) -> Option<String> {
    document.page.map(|page| format!("{page}.md"))
}

pub(super) fn results_of(scenario: &str) -> String {
    format!("{scenario}.json")
}

/// The text as Markdown that shows it unchanged, in one line.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '|' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '#' | '~' | '&' => {
                escaped.push('\\');
                escaped.push(character);
            }
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}
