//! The code blocks of README and the guides, for the tests that compile and run them.
//!
//! A block that no test can run has a mark in the line before it, with the reason:
//!
//! ```text
//! <!-- not run: it needs Docker -->
//! ```

use std::fs;
use std::path::{Path, PathBuf};

/// A file of documentation.
#[derive(Debug)]
pub struct Document {
    /// Its path, relative to the root of the repository.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its fence.
    pub line: usize,
    /// What follows the fence: the language, perhaps with attributes.
    pub info: String,
    /// What is between the fences.
    pub text: String,
    /// Why no test runs it.
    pub not_run: Option<String>,
}

/// A command of a block for the console.
#[derive(Debug, PartialEq, Eq)]
pub struct Command {
    /// What is typed.
    pub text: String,
    /// What it prints, as the guide shows it.
    pub shows: Vec<String>,
}

/// The root of the repository.
///
/// # Panics
/// If the crate lies elsewhere.
#[must_use]
pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the crate lies in crates/")
}

/// The files whose blocks are for readers: README and the other documents of the root, `docs`, and `examples`. The
/// pages in `docs/results` are made by a program.
///
/// # Panics
/// If a file cannot be read.
#[must_use]
pub fn documents() -> Vec<Document> {
    let root = root();
    let mut names = Vec::new();
    files(&root, false, &mut names);
    for folder in ["docs", "examples"] {
        files(&root.join(folder), true, &mut names);
    }
    names.sort();
    let document = |path: PathBuf| {
        let name = path.strip_prefix(&root).expect("it lies there");
        let name = name.to_str().expect("a plain name").to_owned();
        let text = fs::read_to_string(&path).expect("a document is readable");
        Document { name, text }
    };
    let documents = names.into_iter().map(document);
    let is_made = |document: &Document| document.name.starts_with("docs/results/");
    documents.filter(|document| !is_made(document)).collect()
}

fn files(folder: &Path, deep: bool, to: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && deep {
            files(&path, true, to);
        } else if path.extension().is_some_and(|kind| kind == "md") {
            to.push(path);
        }
    }
}

/// The reason in a mark.
fn reason(line: &str) -> Option<String> {
    let reason = line
        .trim()
        .strip_prefix("<!-- not run: ")?
        .strip_suffix("-->")?;
    Some(reason.trim().to_owned())
}

/// The fenced blocks of a text.
///
/// # Panics
/// If a fence is not closed.
#[must_use]
pub fn blocks(text: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            let indent = line.len() - line.trim_start().len();
            let mut text = String::new();
            loop {
                let (_, line) = lines.next().expect("a fence is closed");
                if line.trim() == "```" {
                    break;
                }
                text += line.get(indent..).unwrap_or_default();
                text.push('\n');
            }
            found.push(Block {
                line: number + 1,
                info: info.trim().to_owned(),
                text,
                not_run: reason(before),
            });
        }
        before = line;
    }
    found
}

impl Block {
    /// The language.
    #[must_use]
    pub fn language(&self) -> &str {
        self.info.split(',').next().unwrap_or_default()
    }

    /// The commands of a block for the console: each begins with `$ `, goes on after a backslash at the end of a line,
    /// and is followed by what it prints.
    ///
    /// # Panics
    /// If something stands before the first command.
    #[must_use]
    pub fn commands(&self) -> Vec<Command> {
        let mut commands: Vec<Command> = Vec::new();
        let mut goes_on = false;
        for line in self.text.lines() {
            if let (true, Some(last)) = (goes_on, commands.last_mut()) {
                last.text += "\n";
                last.text += line;
            } else if let Some(command) = line.strip_prefix("$ ") {
                commands.push(Command {
                    text: command.to_owned(),
                    shows: Vec::new(),
                });
            } else {
                let last = commands.last_mut().expect("a command comes first");
                last.shows.push(line.to_owned());
                continue;
            }
            goes_on = line.ends_with('\\');
        }
        commands
    }
}

/// A line without what differs from run to run: numbers become `#`, and runs of spaces one.
fn without_numbers(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim();
    while let Some(next) = rest.chars().next() {
        let (is_hex, body) = match rest.strip_prefix("0x") {
            Some(body) => (true, body),
            None => (false, rest),
        };
        let digits = body.find(|c: char| match is_hex {
            true => !c.is_ascii_hexdigit(),
            false => !c.is_ascii_digit() && (c != '.' && c != ',' || !next.is_ascii_digit()),
        });
        let digits = &body[..digits.unwrap_or(body.len())];
        let digits = digits.trim_end_matches(['.', ',']);
        if !digits.is_empty() {
            out.push('#');
            rest = &body[digits.len()..];
        } else if next.is_whitespace() {
            out.push(' ');
            rest = rest.trim_start();
        } else {
            out.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    out
}

/// The first line that a guide shows and that is not in an output, in this order. Numbers and the width of gaps may
/// differ; `…` stands for any text in a line, and alone for any lines.
#[must_use]
pub fn missing<'a>(shows: &'a [String], output: &str) -> Option<&'a str> {
    let mut lines = output.lines().map(without_numbers);
    for shown in shows.iter().filter(|line| !line.trim().is_empty()) {
        let shown_plain = without_numbers(shown);
        let is_shown = |line: &String| {
            let mut rest = line.as_str();
            let parts: Vec<_> = shown_plain.split('…').map(str::trim).collect();
            if parts.len() == 1 {
                return line == &shown_plain;
            }
            parts.iter().all(|part| match rest.find(part) {
                Some(at) => {
                    rest = &rest[at + part.len()..];
                    true
                }
                None => false,
            })
        };
        if shown_plain != "…" && !lines.any(|line| is_shown(&line)) {
            return Some(shown);
        }
    }
    None
}

/// A block's lines as an excerpt: runs of lines between elisions (`…` in a line of its own, also in a comment),
/// without indentation and empty lines.
fn runs(text: &str) -> Vec<Vec<&str>> {
    let is_elision = |line: &str| {
        let line = line.trim_start_matches("//").trim_start_matches("/*");
        line.trim_end_matches("*/").trim() == "…"
    };
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut runs = vec![Vec::new()];
    for line in lines {
        match is_elision(line) {
            true => runs.push(Vec::new()),
            false => runs.last_mut().expect("there is one").push(line),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Whether all of `text` stands in `source`, in this order: an excerpt, in which `…` stands for what is left out.
#[must_use]
pub fn is_excerpt(text: &str, source: &str) -> bool {
    let lines = source.lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    let mut at = 0;
    let runs = runs(text);
    let found = runs.iter().all(|run| {
        let position = lines[at..]
            .windows(run.len())
            .position(|window| window == run);
        at += position.unwrap_or_default() + run.len();
        position.is_some()
    });
    found && !runs.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_commands_and_marks() {
        let text = "a\n```console\n$ one \\\n  two\nsays 1\n$ three\n```\n<!-- not run: why -->\n  ```c\n  int i;\n  ```\n";
        let found = blocks(text);
        assert_eq!((found[0].line, found[0].language()), (2, "console"));
        assert_eq!((found[1].line, found[1].text.as_str()), (9, "int i;\n"));
        assert_eq!(found[1].not_run.as_deref(), Some("why"));
        let commands = found[0].commands();
        assert_eq!(commands[0].text, "one \\\n  two");
        assert_eq!(
            (commands[0].shows[0].as_str(), commands.len()),
            ("says 1", 2)
        );
    }

    #[test]
    fn an_output_may_differ_in_numbers_only() {
        let shows = |lines: &[&str]| -> Vec<String> { lines.iter().map(|l| (*l).into()).collect() };
        let output = "PID 17  at 0x7fab\nheld for 1.25 s by worker 3.\nend\n";
        let good = shows(&["PID 4 at 0x1", "…", "held for 12 s by worker 9."]);
        assert_eq!(missing(&good, output), None);
        assert_eq!(missing(&shows(&["held for … by worker …"]), output), None);
        for bad in [
            &["held for 1 s by waiter 3."][..],
            &["end", "PID 4 at 0x1"],
            &["en"],
        ] {
            assert!(missing(&shows(bad), output).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn an_excerpt_is_in_its_source_and_in_its_order() {
        let source = "a {\n\n    b;\n    c;\n}\nd\n";
        assert!(is_excerpt("b;\nc;\n", source) && is_excerpt("  a {\n  // …\n}\n", source));
        for bad in ["b;\n}", "c;\n…\nb;", "", "…", "x"] {
            assert!(!is_excerpt(bad, source), "{bad:?}");
        }
    }
}
