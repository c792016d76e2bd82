//! The page of each public module begins with what it is for, and an example, before anything of how it works.

use std::path::{Path, PathBuf};

/// The crates whose modules users see.
const CRATES: [&str; 5] = [
    "latchwork",
    "latchwork-check",
    "latchwork-region",
    "latchwork-sync",
    "latchwork-sys",
];

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .with_file_name(of)
        .join("src")
}

/// The file of a module in a folder.
fn file_of(folder: &Path, module: &str) -> PathBuf {
    let file = folder.join(module).with_extension("rs");
    if file.exists() {
        file
    } else {
        folder.join(module).join("mod.rs")
    }
}

/// The modules that a file makes public, and shows.
fn public_modules(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let shown = |at: usize| {
        let before = lines[..at].iter().rev();
        let attributes: Vec<_> = before.take_while(|line| line.starts_with("#[")).collect();
        let hides = |line: &&&str| line.contains("doc(hidden)") || line.trim() == "#[cfg(loom)]";
        !attributes.iter().any(hides)
    };
    let module = |(at, line): (usize, &&str)| {
        let name = line.strip_prefix("pub mod ")?.strip_suffix(';')?;
        shown(at).then(|| name.to_string())
    };
    lines.iter().enumerate().filter_map(module).collect()
}

/// What stands at the top of a module's page: up to where its internals begin.
fn front(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    let front = lines.take_while(|line| line.trim() != "# How it works");
    front.collect::<Vec<_>>().join("\n")
}

#[test]
fn each_page_begins_with_an_example() {
    let modules_of = |of: &&str| {
        let folder = folder(of);
        let modules = public_modules(&folder.join("lib.rs"));
        modules
            .into_iter()
            .map(move |module| (folder.clone(), module))
    };
    let mut pages: Vec<_> = CRATES.iter().flat_map(modules_of).collect();
    assert!(pages.len() >= 17, "{pages:?}");
    let inner = [
        ("latchwork-sync", "mutex/throughput"),
        ("latchwork", "queue/spsc"),
        ("latchwork-region", "region/inspect"),
        ("latchwork-region", "region/leftovers"),
    ];
    pages.extend(inner.map(|(of, page)| (folder(of), page.to_string())));
    for (folder, page) in pages {
        let front = front(&file_of(&folder, &page));
        assert!(front.contains("```"), "{page} has no example:\n{front}");
        // Of how it works nothing stands before the example.
        let before = &front[..front.find("```").unwrap()];
        let internals = [
            "*Orderings",
            "*No wake-up",
            "Relaxed",
            ".rs`",
            "CAS",
            "(Acquire",
            "Release",
        ];
        let early = internals.iter().find(|word| before.contains(**word));
        assert!(early.is_none(), "{page}: {early:?}");
    }
}

#[test]
fn what_is_public_of_a_region_is_for_its_users() {
    let modules = public_modules(&folder("latchwork-region").join("region/mod.rs"));
    assert_eq!(modules, ["inspect", "leftovers"]);
}
