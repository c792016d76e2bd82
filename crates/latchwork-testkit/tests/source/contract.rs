//! The tests that CONTRACT.md names exist, each row of its tables names one, and each public object of the library has a
//! place there.

use super::tree;
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use syn::{Attribute, Item, Meta, UseTree, Visibility};

/// The last column of a table of claims.
const SHOWN_BY: &str = "shown by";

/// The modules in which objects are public, and the files that say which.
pub(super) const MODULES: [&str; 14] = [
    "crates/latchwork-sync/src/mutex/mod.rs",
    "crates/latchwork-sync/src/rwlock.rs",
    "crates/latchwork-sync/src/condvar.rs",
    "crates/latchwork-sync/src/completion.rs",
    "crates/latchwork-sync/src/barrier.rs",
    "crates/latchwork-sync/src/once.rs",
    "crates/latchwork-sync/src/spin.rs",
    "crates/latchwork-region/src/region/mod.rs",
    "crates/latchwork/src/queue/mod.rs",
    "crates/latchwork/src/queue/spsc.rs",
    "crates/latchwork/src/semaphore/mod.rs",
    "crates/latchwork/src/event.rs",
    "crates/latchwork/src/coproc/mod.rs",
    "crates/latchwork/src/classic/mod.rs",
];

/// Public types in these modules that no task shares with others: options, values, errors, traits, guards, editors.
pub(super) const NO_OBJECTS: &[&str] = &[
    "Acquisition",
    "AllocError",
    "AttachError",
    "Attributes",
    "BinaryOptions",
    "Cells",
    "ClaimError",
    "ClassicError",
    "ClassicOptions",
    "ControlError",
    "Corruption",
    "Counters",
    "Counting",
    "CreateError",
    "DataState",
    "DetachError",
    "Discipline",
    "Edit",
    "Entry",
    "Event",
    "Exit",
    "Happening",
    "HashMapMut",
    "HeapStats",
    "Held",
    "HeldBatch",
    "Helping",
    "InheritFault",
    "InvalidTask",
    "Interruptible",
    "KeptBoost",
    "KnownContent",
    "Unsound",
    "Validate",
    "Validator",
    "RegionGuard",
    "RegionProtocol",
    "TrustedPriority",
    "Unfinished",
    "JoinError",
    "KillError",
    "ListMut",
    "LockError",
    "LockFailure",
    "MirrorError",
    "Movable",
    "MrspHeld",
    "MutexGuard",
    "NameError",
    "NoSuchTask",
    "ObjectError",
    "ObtainError",
    "Options",
    "Orphans",
    "Outcome",
    "OwnerDied",
    "PinnedFields",
    "Place",
    "Priority",
    "PriorityGuard",
    "PriorityMutexOptions",
    "ProtectFault",
    "Protocol",
    "PushError",
    "QueueError",
    "QueueOptions",
    "Rank",
    "RawLock",
    "ReadGuard",
    "ReadersFirst",
    "ReceiveError",
    "RecursiveGuard",
    "RegionOptions",
    "ReleaseError",
    "Released",
    "Relocatable",
    "Restart",
    "RobustGuard",
    "RobustProtocol",
    "RobustReadGuard",
    "RobustWriteGuard",
    "Scheduling",
    "SeatLock",
    "SemaphoreError",
    "SendBlockError",
    "SendError",
    "Shareable",
    "Signal",
    "SpawnError",
    "Spec",
    "StartError",
    "StorageError",
    "StringMut",
    "Swept",
    "TaskId",
    "TaskPriority",
    "TornSafe",
    "Transaction",
    "Uncounted",
    "UndoError",
    "UndoMut",
    "Usage",
    "UseError",
    "VecMut",
    "Wait",
    "WatchError",
    "WriteGuard",
    "WritersFirst",
];

/// A row of a table whose last column is `shown by`.
struct Row<'a> {
    line: usize,
    cells: Vec<&'a str>,
    columns: usize,
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let mut found = Vec::new();
    let mut columns = None;
    let mut before = None;
    for (index, line) in text.lines().enumerate() {
        let Some(cells) = cells(line) else {
            (columns, before) = (None, None);
            continue;
        };
        if cells.iter().all(|cell| *cell == "---") {
            columns = before.filter(|head: &Vec<&str>| head.last() == Some(&SHOWN_BY));
        } else if let Some(head) = &columns {
            let columns = head.len();
            let line = index + 1;
            found.push(Row {
                line,
                cells,
                columns,
            });
        }
        before = self::cells(line);
    }
    found
}

/// The texts between two backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// What is wrong with the claims of a text: rows without a test, and tests that `is_test` does not know.
fn unshown(text: &str, is_test: impl Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows(text) {
        let line = row.line;
        if row.cells.len() != row.columns {
            wrong.push(format!("{line}: {} cells", row.cells.len()));
        }
        let tests: Vec<_> = quoted(row.cells.last().unwrap_or(&"")).collect();
        if tests.is_empty() {
            wrong.push(format!("{line}: no test"));
        }
        for test in tests.into_iter().filter(|test| !is_test(test)) {
            wrong.push(format!("{line}: no test has the name {test}"));
        }
    }
    wrong
}

pub(super) fn walk(folder: &Path, to: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, to);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            to.push(path);
        }
    }
}

/// The names of all functions in files with tests. (Macros make some tests of functions that have no attribute.)
fn functions_of_tests() -> BTreeSet<String> {
    let mut files = Vec::new();
    walk(&tree::root().join("crates"), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let is_test =
            text.contains("#[test]") || file.components().any(|part| part.as_os_str() == "tests");
        for after in text.split("fn ").skip(1).filter(|_| is_test) {
            let name: String = after
                .chars()
                .take_while(|c| c.is_alphanumeric() || *c == '_')
                .collect();
            names.insert(name);
        }
    }
    names
}

#[test]
fn each_claim_of_the_contract_names_a_test() {
    let text = fs::read_to_string(tree::root().join("CONTRACT.md")).unwrap();
    let functions = functions_of_tests();
    let programs = tree::root().join("crates/latchwork-c/tests/c");
    let is_test = |name: &str| {
        functions.contains(name) || (name.ends_with(".c") && programs.join(name).is_file())
    };
    let wrong = unshown(&text, is_test);
    assert!(wrong.is_empty(), "CONTRACT.md:\n{}", wrong.join("\n"));
    assert!(rows(&text).len() > 100, "its tables are found");

    let planted = "| a | shown by |\n| --- | --- |\n| x | `known` |\n| y | unknown |\n| z | `none` |\n| `known` |\n\n\
                   | a | b |\n| --- | --- |\n| x | y |\n";
    let found = unshown(planted, |name| name == "known");
    assert_eq!(
        found,
        ["4: no test", "5: no test has the name none", "6: 1 cells"]
    );
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    let is = |attribute: &Attribute, name: &str, value: &str| {
        attribute.path().is_ident(name)
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == value)
    };
    attributes
        .iter()
        .any(|attribute| is(attribute, "doc", "hidden") || is(attribute, "cfg", "loom"))
}

fn add_uses(tree: &UseTree, to: &mut BTreeSet<String>) {
    match tree {
        UseTree::Path(path) => add_uses(&path.tree, to),
        UseTree::Name(name) => drop(to.insert(name.ident.to_string())),
        UseTree::Rename(name) => drop(to.insert(name.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_uses(tree, to)),
        UseTree::Glob(_) => {}
    }
}

/// The public types of a module: those that it defines, and those that it re-exports by name.
pub(super) fn public_types(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for item in syn::parse_file(source).unwrap().items {
        match item {
            Item::Use(item)
                if matches!(item.vis, Visibility::Public(_)) && !is_hidden(&item.attrs) =>
            {
                add_uses(&item.tree, &mut names);
            }
            Item::Struct(item)
                if matches!(item.vis, Visibility::Public(_)) && !is_hidden(&item.attrs) =>
            {
                names.insert(item.ident.to_string());
            }
            _ => {}
        }
    }
    names.retain(|name| {
        name.starts_with(|first: char| first.is_ascii_uppercase()) && name.to_uppercase() != *name
    });
    names
}

/// The types that are objects and have no place in the text. A place is the name between backticks, perhaps with
/// parameters behind it.
fn without_a_place(types: &BTreeSet<String>, text: &str) -> Vec<String> {
    let named: BTreeSet<_> = text
        .lines()
        .flat_map(quoted)
        .map(|name| name.split(['<', ':']).next().unwrap_or(name))
        .collect();
    let is_missing =
        |name: &&String| !NO_OBJECTS.contains(&name.as_str()) && !named.contains(name.as_str());
    types.iter().filter(is_missing).cloned().collect()
}

#[test]
fn each_public_object_has_a_place_in_the_contract() {
    let root = tree::root();
    let text = fs::read_to_string(root.join("CONTRACT.md")).unwrap();
    let mut all = BTreeSet::new();
    for module in MODULES {
        all.extend(public_types(
            &fs::read_to_string(root.join(module)).unwrap(),
        ));
    }
    let missing = without_a_place(&all, &text);
    assert!(
        missing.is_empty(),
        "CONTRACT.md does not name these public types: {missing:?}"
    );
    let unknown: Vec<_> = NO_OBJECTS
        .iter()
        .filter(|name| !all.contains(**name))
        .collect();
    assert!(
        unknown.is_empty(),
        "no public type has these names: {unknown:?}"
    );

    let planted = "pub use a::{Lock, LockError, other}; #[doc(hidden)] pub use b::Hidden; pub(crate) use c::Inner;\
                   pub struct New<T>(T); struct Own; pub use d::*;";
    let types = public_types(planted);
    assert_eq!(
        types.iter().collect::<Vec<_>>(),
        ["Lock", "LockError", "New"]
    );
    assert_eq!(without_a_place(&types, "`Lock<T>` and New"), ["New"]);
}
