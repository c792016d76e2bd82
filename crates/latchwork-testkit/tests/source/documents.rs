//! The files that the documents name exist, and ARCHITECTURE.md has a place for each file of the library.

use super::tree;
use std::{fs, path::Path};

/// The documents that name files. The changelog names files as they were.
const DOCUMENTS: [&str; 6] = [
    "ARCHITECTURE.md",
    "CONTRACT.md",
    "CONTRIBUTING.md",
    "DESIGN.md",
    "README.md",
    "SECURITY.md",
];

const LIBRARY: [&str; 5] = [
    "crates/latchwork-sys/src",
    "crates/latchwork-sync/src",
    "crates/latchwork-region/src",
    "crates/latchwork-check/src",
    "crates/latchwork/src",
];

/// All files of the project, relative to its root; not what git or a build makes.
fn all_files(folder: &Path, root: &Path, to: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if !entry.file_type().unwrap().is_dir() {
            to.push(path.strip_prefix(root).unwrap().display().to_string());
        } else if !["target", ".git"].iter().any(|name| path.ends_with(name)) {
            all_files(&path, root, to);
        }
    }
}

/// The texts between two backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Whether `name` is the end of the path `file`, at a `/`.
fn ends(file: &str, name: &str) -> bool {
    file.strip_suffix(name)
        .is_some_and(|front| front.is_empty() || front.ends_with('/'))
}

/// The quoted file names in `text` that are the end of no path in `files`. A name with capitals, such as `NAME.rs`,
/// is a placeholder.
fn missing<'a>(text: &'a str, files: &[String]) -> Vec<&'a str> {
    let is_file_name = |name: &&str| {
        let known = ["rs", "c", "h", "hpp", "sh", "toml"];
        let is_known = |kind: &str| known.contains(&kind);
        name.rsplit_once('.')
            .is_some_and(|(_, kind)| is_known(kind))
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || "/._-0123456789".contains(c))
    };
    let is_missing = |name: &&str| {
        let name = name.trim_start_matches("../");
        !files.iter().any(|file| ends(file, name))
    };
    quoted(text)
        .filter(is_file_name)
        .filter(is_missing)
        .collect()
}

/// The source files that `text` names neither by the end of their path nor by a folder (`name/`) in which they lie.
fn unnamed<'a>(text: &str, sources: &'a [String]) -> Vec<&'a str> {
    let names: Vec<_> = quoted(text).collect();
    let is_named = |file: &str| {
        let below =
            |name: &&&str| name.ends_with('/') && format!("/{file}").contains(&format!("/{name}"));
        names.iter().any(|name| ends(file, name)) || names.iter().any(|name| below(&name))
    };
    let is_other = |file: &&String| !ends(file, "lib.rs") && !ends(file, "tests.rs");
    let files = sources.iter().filter(is_other);
    files
        .map(String::as_str)
        .filter(|file| !is_named(file))
        .collect()
}

#[test]
fn the_files_that_documents_name_exist() {
    let root = tree::root();
    let mut files = Vec::new();
    all_files(&root, &root, &mut files);
    let guides = files
        .iter()
        .filter(|file| file.starts_with("docs/") && file.ends_with(".md"));
    for document in DOCUMENTS.iter().copied().chain(guides.map(String::as_str)) {
        let text = fs::read_to_string(root.join(document)).unwrap();
        let missing = missing(&text, &files);
        assert!(
            missing.is_empty(),
            "{document} names files that do not exist: {missing:?}"
        );
    }
    let planted = "`mutex/throughput.rs`, `NAME.rs`, `../mutex/no_such.rs`, `hput.rs` and `a.b`";
    assert_eq!(missing(planted, &files), ["../mutex/no_such.rs", "hput.rs"]);
}

#[test]
fn the_map_has_a_place_for_each_file() {
    let root = tree::root();
    let mut sources = Vec::new();
    for folder in LIBRARY {
        let folder = root.join(folder);
        all_files(&folder, &folder, &mut sources);
    }
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let found = unnamed(&map, &sources);
    assert!(found.is_empty(), "ARCHITECTURE.md does not name {found:?}");
    let planted = ["a/one.rs", "a/two.rs", "b/c/three.rs", "lib.rs"].map(String::from);
    assert_eq!(unnamed("`one.rs` and `b/c/`", &planted), ["a/two.rs"]);
}

/// The names of C in backticks, such as `lw_mutex_lock`, that stand nowhere in a header. A name that ends with `_` or is
/// followed by `…` stands for several.
fn unknown_names<'a>(text: &'a str, headers: &str) -> Vec<&'a str> {
    let known: std::collections::BTreeSet<&str> = headers
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .collect();
    let is_c = |name: &&str| {
        ["lw_", "LW_", "rtems_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let words = quoted(text)
        .flat_map(|code| code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '…'));
    let names = words
        .filter(is_c)
        .filter(|name| !name.contains('…') && !name.ends_with('_'));
    names.filter(|name| !known.contains(name)).collect()
}

#[test]
fn the_names_of_c_in_guides_are_declared() {
    let root = tree::root();
    let mut files = Vec::new();
    all_files(&root.join("crates/latchwork-c/include"), &root, &mut files);
    all_files(&root.join("man"), &root, &mut files);
    let read = |file: &String| fs::read_to_string(root.join(file)).unwrap();
    // Names of types and constants that a macro builds stand in the manual as a whole.
    let headers: String = files.iter().map(read).collect();
    for document in latchwork_testkit::guides::documents() {
        if ["DESIGN.md", "CHANGELOG.md"].contains(&document.name.as_str()) {
            continue;
        }
        let unknown = unknown_names(&document.text, &headers);
        assert!(unknown.is_empty(), "{}: {unknown:?}", document.name);
    }
    assert_eq!(
        unknown_names("`lw_a`, `lw_b(c)`, `lw_…`", "int lw_a(void);"),
        ["lw_b"]
    );
}

/// The numbers in the rows of a table that begins with this heading.
fn figures<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|line| !line.starts_with(heading));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.flat_map(|row| row.split('|').skip(2));
    let words = cells.flat_map(|cell| cell.split([' ', ';']));
    let words = words.map(|word| word.trim_end_matches(','));
    words
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .collect()
}

#[test]
fn the_figures_of_the_readme_are_those_of_the_results() {
    let read = |name| fs::read_to_string(tree::root().join(name)).unwrap();
    let readme = read("README.md");
    let results = read("docs/results/figures.md") + &read("docs/results.md");
    let results: Vec<_> = results
        .split(|c: char| !(c.is_ascii_digit() || ".,".contains(c)))
        .collect();
    let is_measured = |figure: &str| {
        // The baseline of ratios.
        figure == "1"
            || results
                .iter()
                .any(|word| word.trim_end_matches(['.', ',']) == figure)
    };
    let figures = figures(&readme, "| measured");
    assert!(figures.len() > 10, "{figures:?}");
    for figure in figures {
        assert!(
            is_measured(figure),
            "neither docs/results.md nor the page of its figures has {figure}"
        );
    }
    assert!(!is_measured("19.17"));
    let planted = "| measured | a |\n| --- | --- |\n| 1 GiB | x 2.5, y 3,000; 4 |\n\n| 5 |\n";
    assert_eq!(self::figures(planted, "| measured"), ["2.5", "3,000", "4"]);
}
