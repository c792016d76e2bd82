//! Each code block of README and the guides is compiled or run by a test, or says why not.
//!
//! | language | is covered if |
//! | --- | --- |
//! | `console` | `guides.rs` of `latchwork-cli` runs it: it does so for all that are not marked |
//! | `rust` | a crate includes the document in its documentation tests |
//! | `rust,ignore` | it is an excerpt of a program in `examples` |
//! | `c`, `cpp` | it is an excerpt of such a program, or a whole file, which `guides.rs` of `latchwork-c` compiles |
//! | `text` | what a program prints: each line stands in the source of a program |
//! | any | a mark in the line before it says why it is not run |

use super::tree;
use latchwork_testkit::guides::{self, Block};
use std::{fs, path::Path};

/// The texts of the files below a folder that have one of these endings.
fn texts(folder: &str, kinds: &[&str]) -> Vec<String> {
    fn walk(folder: &Path, kinds: &[&str], to: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let kind = path.extension().and_then(|kind| kind.to_str());
            if path.is_dir() {
                walk(&path, kinds, to);
            } else if kind.is_some_and(|kind| kinds.contains(&kind)) {
                to.push(fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut found = Vec::new();
    walk(&tree::root().join(folder), kinds, &mut found);
    found
}

/// What blocks are compared with.
struct Sources {
    /// The programs in `examples`, which tests compile and run.
    programs: Vec<String>,
    /// The library files that include documents for their documentation tests.
    includers: Vec<String>,
    /// The sources of all programs and libraries, in which their messages stand, each as one line.
    messages: String,
}

impl Sources {
    fn read() -> Self {
        let is_includer = |text: &String| text.contains("#[cfg(doctest)]");
        let all = texts("crates", &["rs", "c", "h", "hpp"]);
        let examples = texts("examples", &["c", "cpp", "rs"]);
        let joined = all.iter().chain(&examples);
        let joined = joined.map(|text| one_line(text)).collect::<Vec<_>>();
        Self {
            programs: examples,
            includers: all.into_iter().filter(is_includer).collect(),
            messages: joined.join("\n"),
        }
    }

    fn has_excerpt(&self, text: &str) -> bool {
        self.programs
            .iter()
            .any(|source| guides::is_excerpt(text, source))
    }

    /// Whether each fixed part of a line, between numbers and names, stands in the source of a message.
    fn has_message(&self, line: &str) -> bool {
        let parts = line.split(|c: char| c.is_ascii_digit() || "…'\"`".contains(c));
        let parts = parts.map(str::trim).filter(|part| part.contains(' '));
        let mut parts = parts.peekable();
        parts.peek().is_some() && parts.all(|part| self.messages.contains(part))
    }
}

/// A source with its strings as the compiler sees them: a backslash at the end of a line continues a string.
fn one_line(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        match line.strip_suffix('\\') {
            Some(line) => out += line.trim_start(),
            None => {
                out += if out.ends_with(' ') {
                    line.trim_start()
                } else {
                    line
                };
                out.push('\n');
            }
        }
    }
    out
}

/// What is wrong with a block.
fn fault(document: &str, block: &Block, sources: &Sources) -> Option<&'static str> {
    if let Some(reason) = &block.not_run {
        let is_reason = reason.split(' ').count() >= 3;
        return (!is_reason).then_some("the mark gives no reason");
    }
    match (block.language(), block.info.as_str()) {
        // All that are not marked are run.
        ("console", _) => block.commands().is_empty().then_some("it has no command"),
        ("rust", "rust,ignore") => {
            let is_covered = sources.has_excerpt(&block.text);
            (!is_covered).then_some("it is no excerpt of a program in examples")
        }
        ("rust", _) => {
            let is_covered = |text: &String| text.contains(&format!("/{document}\")]"));
            let is_covered = sources.includers.iter().any(is_covered);
            (!is_covered).then_some("no crate's documentation tests include the document")
        }
        ("c" | "cpp", _) => {
            let is_covered = block.text.starts_with("#include") || sources.has_excerpt(&block.text);
            (!is_covered).then_some("it is no whole file, and no excerpt of a program in examples")
        }
        ("text", _) => {
            let is_covered = block.text.lines().all(|line| sources.has_message(line));
            (!is_covered).then_some("no program prints one of its lines")
        }
        _ => Some("nothing is known of this language"),
    }
}

#[test]
fn each_code_block_is_compiled_or_run() {
    let sources = Sources::read();
    let mut faults = Vec::new();
    let mut count = 0;
    for document in guides::documents() {
        for block in guides::blocks(&document.text) {
            count += 1;
            if let Some(fault) = fault(&document.name, &block, &sources) {
                faults.push(format!("{}:{}: {fault}", document.name, block.line));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(count > 20, "only {count} blocks were found");
}

/// The messages in the tables of a text: the first cells below the heading `message`, without their backticks.
fn messages(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut in_table = false;
    for line in text.lines() {
        in_table = line.starts_with("| message |") || in_table && line.starts_with('|');
        let cell = line.split(" | ").next().unwrap_or_default();
        let cell = cell.trim_start_matches("| ").trim();
        if let (true, Some(message)) = (in_table, cell.strip_prefix('`')) {
            found.push(message.trim_end_matches('`'));
        }
    }
    found
}

#[test]
fn each_message_in_the_guide_to_failures_is_in_a_source() {
    let sources = Sources::read();
    let guide = fs::read_to_string(tree::root().join("docs/when-it-hangs.md")).unwrap();
    let messages = messages(&guide);
    assert!(messages.len() > 20, "{messages:?}");
    let is_unknown = |message: &&&str| !sources.has_message(message);
    let unknown: Vec<_> = messages.iter().filter(is_unknown).collect();
    assert!(
        unknown.is_empty(),
        "no source has these messages: {unknown:#?}"
    );
    // Not as one text: this file is a source, too.
    let planted = ["the region is on", "holiday: …"].join(" ");
    assert!(!sources.has_message(&planted));
}

#[test]
fn a_block_that_nothing_covers_is_found() {
    let sources = Sources {
        programs: vec!["int main(void)\n{\n\treturn 0;\n}\n".into()],
        includers: vec!["#[doc = include_str!(\"../docs/tested.md\")]".into()],
        messages: one_line("\"the lock of task {id} \\\n      is held\""),
    };
    let found = |document: &str, text: &str| {
        let blocks = guides::blocks(text);
        fault(document, &blocks[0], &sources)
    };
    for covered in [
        "```console\n$ ls\n```",
        "```rust\nlet a = 1;\n```",
        "```c\nreturn 0;\n```",
        "```c\n#include <a.h>\n```",
        "```text\nthe lock of task 7 is held\n```",
        "<!-- not run: it needs Docker -->\n```yaml\na: b\n```",
    ] {
        assert_eq!(found("docs/tested.md", covered), None, "{covered}");
    }
    for (document, bare) in [
        ("docs/other.md", "```rust\nlet a = 1;\n```"),
        ("docs/tested.md", "```rust,ignore\nlet a = 1;\n```"),
        ("docs/tested.md", "```c\nreturn 1;\n```"),
        ("docs/tested.md", "```text\nthe lock of task 7 is free\n```"),
        ("docs/tested.md", "```text\n7\n```"),
        ("docs/tested.md", "```yaml\na: b\n```"),
        ("docs/tested.md", "```console\n```"),
        ("docs/tested.md", "<!-- not run: no -->\n```yaml\na: b\n```"),
    ] {
        assert!(found(document, bare).is_some(), "{document}: {bare}");
    }
}
