//! The sentences of the pages' descriptions, and the places in the test programs that show them.
//!
//! A program cites a sentence, or the beginning of it, before it shows that it is so:
//!
//! ```c
//! /* lw_queue(3) says: The handle still has to be closed */
//! CHECK_IS(lw_queue_close(queue), 0);
//! ```

use super::Page;
use super::errors::{lines_of_programs, plain};
use std::collections::BTreeSet;
use std::path::Path;

/// The pages of which each sentence is shown, or listed.
pub const SHOWN: [&str; 12] = [
    "coproc",
    "lw_classic",
    "lw_cond",
    "lw_cpp",
    "lw_crashtest",
    "lw_migrate",
    "lw_mutex",
    "lw_once",
    "lw_queue",
    "lw_region",
    "lw_rwlock",
    "lw_sem",
];

/// A sentence that these programs do not show.
pub struct NotShown {
    pub page: &'static str,
    /// Words of it.
    pub words: &'static str,
    /// Why, or what shows it.
    why: &'static str,
}

impl NotShown {
    /// The files that are said to show it, by their names without a folder.
    pub fn files(&self) -> impl Iterator<Item = &'static str> {
        let words = self.why.split([' ', ',', ';']);
        words.filter(|word| KINDS_OF_FILES.iter().any(|kind| word.ends_with(kind)))
    }
}

const KINDS_OF_FILES: [&str; 5] = [".rs", ".c", ".cpp", ".h", ".md"];

/// The names of all files in the folders of the crates, and of the texts beside them.
pub fn names_of_files() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = BTreeSet::new();
    add_files(&root, false, &mut names);
    add_files(&root.join("crates"), true, &mut names);
    names
}

fn add_files(folder: &Path, and_below: bool, names: &mut BTreeSet<String>) {
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        if !entry.file_type().unwrap().is_dir() {
            names.insert(entry.file_name().into_string().unwrap());
        } else if and_below {
            add_files(&entry.path(), true, names);
        }
    }
}

/// Those of `not_shown.txt`, which says for each why.
pub fn not_shown() -> impl Iterator<Item = NotShown> {
    let lines = include_str!("not_shown.txt").lines();
    lines.filter(|line| !line.starts_with('#')).map(|line| {
        let mut parts = line.split(" | ");
        let mut part = || parts.next().expect("page | words | why");
        let (page, words, why) = (part(), part(), part());
        NotShown { page, words, why }
    })
}

impl Page {
    /// The sentences of the description. Texts that introduce a list end with a colon.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut sentence = String::new();
        let (mut is_tag, mut is_table) = (false, false);
        let mut end = |sentence: &mut String| {
            if !sentence.is_empty() {
                sentences.push(core::mem::take(sentence));
            }
        };
        for line in self.section("DESCRIPTION") {
            // A table has no sentences.
            is_table = line == ".TS" || is_table && line != ".TE";
            if is_table {
                continue;
            }
            let begins = [".PP", ".SS", ".TP", ".IP", ".TE"];
            if begins.iter().any(|macro_| line.starts_with(macro_)) {
                end(&mut sentence);
            } else if !is_tag {
                let text = plain(line);
                if !sentence.is_empty() && !text.is_empty() {
                    sentence.push(' ');
                }
                sentence += &text;
                let text = text.trim_end_matches(')');
                if text.ends_with('.') && !text.ends_with("...") {
                    end(&mut sentence);
                }
            }
            is_tag = line == ".TP";
        }
        end(&mut sentence);
        sentences
    }
}

/// A place in a test program that says which sentence it shows.
pub struct Saying {
    /// The file and the line.
    pub place: String,
    pub page: String,
    pub words: String,
    /// Whether a check comes soon after it.
    pub is_checked: bool,
}

/// All sentences that the programs of the tests cite.
pub fn sayings() -> Vec<Saying> {
    let mut sayings = Vec::new();
    for (file, lines) in lines_of_programs() {
        for (at, line) in lines.iter().enumerate() {
            let inside = line.trim().strip_prefix("/* ");
            let inside = inside.map(|rest| rest.trim_end_matches([' ', '\\']));
            let inside = inside.and_then(|rest| rest.strip_suffix(" */"));
            let Some((page, words)) = inside.and_then(|rest| rest.split_once("(3) says: ")) else {
                continue;
            };
            let mut soon = lines[at + 1..].iter().take(12);
            sayings.push(Saying {
                place: format!("{file}:{}", at + 1),
                page: page.to_owned(),
                words: words.to_owned(),
                is_checked: soon.any(|line| line.contains("CHECK")),
            });
        }
    }
    sayings
}
