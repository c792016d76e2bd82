//! The links of documents lead to files and headings that exist. (Links to other sites are not followed.)

use super::tree;
use latchwork_testkit::guides;
use std::{fs, path::Path};

/// The targets of the links and pictures of a text, outside of code.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        // Between backticks, every second part is code.
        let parts = line.split('`').enumerate();
        let plain = parts.map(|(number, part)| if number % 2 == 0 { part } else { "code" });
        let plain: String = plain.collect();
        if in_block {
            continue;
        }
        for part in plain.split("](").skip(1) {
            found.extend(part.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

/// The names by which a page's headings can be linked to, as they are usually made: lower case, a hyphen for a space,
/// and no other sign.
fn headings(text: &str) -> Vec<String> {
    let mut in_block = false;
    let lines = text.lines().filter(|line| {
        in_block ^= line.starts_with("```");
        !in_block && line.starts_with('#')
    });
    let name = |line: &str| -> String {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    lines.map(name).collect()
}

/// Why a link of a document in `folder` leads nowhere.
fn fault(root: &Path, document: &str, text: &str, target: &str) -> Option<&'static str> {
    if target.contains("://") {
        return None;
    }
    let (path, place) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => root.join(document),
        path => root.join(document).parent().unwrap().join(path),
    };
    if !file.exists() {
        return Some("there is no such file");
    }
    if place.is_empty() {
        return None;
    }
    let text = match path {
        "" => text.to_owned(),
        _ => fs::read_to_string(file).unwrap_or_default(),
    };
    let is_there = headings(&text).iter().any(|heading| heading == place);
    (!is_there).then_some("there is no such heading")
}

#[test]
fn the_links_of_documents_lead_somewhere() {
    let root = tree::root();
    let mut faults = Vec::new();
    let mut count = 0;
    for document in guides::documents() {
        for target in targets(&document.text) {
            count += 1;
            if let Some(fault) = fault(&root, &document.name, &document.text, &target) {
                faults.push(format!("{}: {target}: {fault}", document.name));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(count > 50, "only {count} links were found");

    let text = "# One, two\n[a](#one-two) `[c](d)` ![b](no.svg)\n```c\n[e](f)\n# no\n```\n";
    assert_eq!(targets(text), ["#one-two", "no.svg"]);
    assert_eq!(headings(text), ["one-two"]);
    assert_eq!(fault(&root, "README.md", text, "#one-two"), None);
    assert_eq!(fault(&root, "README.md", text, "docs/rust.md"), None);
    for bad in ["no.svg", "#no", "docs/rust.md#no"] {
        assert!(fault(&root, "README.md", text, bad).is_some(), "{bad}");
    }
}
