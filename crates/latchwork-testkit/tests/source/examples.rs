//! Each public object of the library has an example: in its own documentation, or on the page of its module.

use super::{contract, tree};
use std::fs;

/// The code in the documentation comments of a text, with this mark of the comment.
fn code(text: &str, mark: &str) -> String {
    let mut in_block = false;
    let lines = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix(mark));
    let code = lines.filter(|line| {
        let is_fence = line.trim().starts_with("```");
        in_block ^= is_fence;
        in_block && !is_fence
    });
    code.flat_map(|line| [line, "\n"]).collect()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|part| part == word)
}

/// Whether the comment before the definition of a type has code.
fn own_example(source: &str, name: &str) -> bool {
    ["struct", "type"].iter().any(|kind| {
        let before = source.split(&format!("pub {kind} {name}<")).next();
        let other = source.split(&format!("pub {kind} {name} ")).next();
        let shorter = [before, other]
            .into_iter()
            .flatten()
            .min_by_key(|text| text.len());
        let before = shorter.filter(|text| text.len() < source.len());
        before.is_some_and(|text| {
            let is_comment = |line: &&str| line.starts_with("///") || line.starts_with("#[");
            let comment: Vec<_> = text.lines().rev().take_while(is_comment).collect();
            comment.iter().any(|line| line.starts_with("/// ```"))
        })
    })
}

#[test]
fn each_public_object_has_an_example() {
    let root = tree::root();
    let mut files = Vec::new();
    for name in ["latchwork", "latchwork-region", "latchwork-sync"] {
        contract::walk(&root.join("crates").join(name).join("src"), &mut files);
    }
    let sources: Vec<_> = files
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let mut missing = Vec::new();
    let mut count = 0;
    for module in contract::MODULES {
        let source = fs::read_to_string(root.join(module)).unwrap();
        let page = code(&source, "//!");
        for object in contract::public_types(&source) {
            if contract::NO_OBJECTS.contains(&object.as_str()) {
                continue;
            }
            count += 1;
            let is_shown = has_word(&page, &object)
                || sources.iter().any(|source| own_example(source, &object));
            if !is_shown {
                missing.push(format!("{module}: {object}"));
            }
        }
    }
    assert!(missing.is_empty(), "no example: {missing:#?}");
    assert!(count > 30, "only {count} objects were found");

    let planted = "/// A lock.\n/// ```\n/// x\n/// ```\n#[repr(C)]\npub struct One<T>(T);\n/// Two.\npub struct Two {}";
    assert!(own_example(planted, "One") && !own_example(planted, "Two"));
    assert_eq!(code("//! a\n//! ```\n//! b\n//! ```\n", "//!"), " b\n");
}
