//! The graph of imports between the files of a crate, and its cycles.
//!
//! A file imports another if it names an item that the other defines, in whatever way it reaches it. A re-export
//! (`pub use`) is no import: a module file may show what its children define.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::tree::{self, Modules, Named, Part, Read};

/// Of each file, the files that it imports, with one name and line for each as the reason.
#[derive(Debug, Default)]
pub struct Imports(pub BTreeMap<PathBuf, BTreeMap<PathBuf, String>>);

/// Where a path leads.
enum Target {
    /// An item, in these files (more than one where `cfg_attr` chooses).
    Item(Vec<PathBuf>),
    Module(Vec<String>),
}

impl Imports {
    pub fn of(root: &Path, read: Read<'_>) -> Self {
        let modules = Modules::read(root, read);
        let mut imports = Self::default();
        for (module, parts) in &modules.parts {
            for part in parts {
                imports.add(&modules, module, part);
            }
        }
        imports
    }

    fn add(&mut self, modules: &Modules, module: &[String], part: &Part) {
        for import in part.uses.iter().filter(|import| !import.is_public) {
            self.lead(modules, module, part, &import.path);
        }
        for path in &part.paths {
            let first = &path.segments[0];
            if let [name] = &path.segments[..] {
                // A single name is defined here, imported (and counted there), or shown from here by a re-export.
                let shown = part
                    .uses
                    .iter()
                    .find(|import| import.is_public && import.alias == *name);
                if let Some(import) = shown {
                    self.lead(modules, module, part, &import.path);
                }
            } else if matches!(first.as_str(), "crate" | "self" | "super")
                || modules.knows(module, first)
            {
                self.lead(modules, module, part, path);
            }
        }
        for call in &part.calls {
            match &call.segments[..] {
                [name] => modules
                    .macros
                    .get(name)
                    .into_iter()
                    .flatten()
                    .for_each(|file| self.note(part, file, call)),
                _ => self.lead(modules, module, part, call),
            }
        }
    }

    /// Notes where a path leads, or the longest part of it that leads anywhere.
    fn lead(&mut self, modules: &Modules, module: &[String], part: &Part, path: &Named) {
        let target = (1..=path.segments.len())
            .rev()
            .find_map(|length| modules.resolve(module, &path.segments[..length], 0));
        let files = match target {
            Some(Target::Item(files)) => files,
            Some(Target::Module(module)) => modules.parts[&module]
                .iter()
                .map(|part| part.file.clone())
                .collect(),
            None => return,
        };
        for file in files {
            self.note(part, &file, path);
        }
    }

    fn note(&mut self, part: &Part, file: &Path, path: &Named) {
        if part.file != *file {
            let reason = || format!("line {}: {}", path.line, path.segments.join("::"));
            self.0
                .entry(part.file.clone())
                .or_default()
                .entry(file.to_owned())
                .or_insert_with(reason);
        }
    }

    /// The groups of files that reach each other, each with the imports inside the group.
    pub fn cycles(&self) -> Vec<BTreeSet<&PathBuf>> {
        let reached: BTreeMap<&PathBuf, BTreeSet<&PathBuf>> = self
            .0
            .keys()
            .map(|file| (file, self.reached_from(file)))
            .collect();
        let mut groups: Vec<BTreeSet<&PathBuf>> = Vec::new();
        for (file, others) in &reached {
            if others.contains(file) && !groups.iter().any(|group| group.contains(file)) {
                let back = |other: &&&PathBuf| {
                    reached.get(**other).is_some_and(|from| from.contains(file))
                };
                groups.push(others.iter().filter(back).copied().collect());
            }
        }
        groups
    }

    fn reached_from(&self, file: &PathBuf) -> BTreeSet<&PathBuf> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&PathBuf> = self
            .0
            .get(file)
            .into_iter()
            .flat_map(BTreeMap::keys)
            .collect();
        while let Some(file) = open.pop() {
            if reached.insert(file) {
                open.extend(self.0.get(file).into_iter().flat_map(BTreeMap::keys));
            }
        }
        reached
    }

    /// The cycles as text: each group, and the imports within.
    pub fn report(&self, source: &Path) -> String {
        let short = |file: &Path| {
            file.strip_prefix(source)
                .unwrap_or(file)
                .display()
                .to_string()
        };
        let mut text = String::new();
        for group in self.cycles() {
            text += &format!(
                "a cycle of imports between {} files of {}:\n",
                group.len(),
                source.display()
            );
            for file in &group {
                for (other, reason) in self.0[*file]
                    .iter()
                    .filter(|(other, _)| group.contains(other))
                {
                    text += &format!("  {} -> {} ({reason})\n", short(file), short(other));
                }
            }
        }
        text
    }
}

impl Modules {
    /// Whether a module knows a name: as a child, an import, or an item of its own.
    fn knows(&self, module: &[String], name: &str) -> bool {
        self.parts.contains_key(&child(module, name))
            || self.parts[module].iter().any(|part| {
                part.items.iter().any(|item| item == name)
                    || part.uses.iter().any(|import| import.alias == name)
            })
    }

    fn resolve(&self, module: &[String], path: &[String], depth: usize) -> Option<Target> {
        if depth > 16 {
            return None;
        }
        let (mut module, mut rest) = (module.to_vec(), path);
        while let [first, after @ ..] = rest {
            match first.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()?),
                _ => break,
            }
            rest = after;
        }
        let [name, after @ ..] = rest else {
            return Some(Target::Module(module));
        };
        let inner = child(&module, name);
        if self.parts.contains_key(&inner)
            && let Some(target) = self.resolve(&inner, &inside(after), depth + 1)
        {
            return Some(target);
        }
        let parts = self.parts.get(&module)?;
        let defining = parts
            .iter()
            .filter(|part| part.items.iter().any(|item| item == name));
        let files: Vec<PathBuf> = defining.map(|part| part.file.clone()).collect();
        if !files.is_empty() {
            return after.is_empty().then_some(Target::Item(files));
        }
        let through = |alias: &str| {
            parts
                .iter()
                .flat_map(|part| &part.uses)
                .find(|import| import.alias == alias)
        };
        if let Some(import) = through(name) {
            let path: Vec<String> = import.path.segments.iter().chain(after).cloned().collect();
            // A name may be that of the module that it comes from: `use crate::list::list`.
            if path != rest {
                return self.resolve(&module, &path, depth + 1);
            }
        }
        parts
            .iter()
            .flat_map(|part| &part.uses)
            .filter(|import| import.alias == "*")
            .find_map(
                |import| match self.resolve(&module, &import.path.segments, depth + 1)? {
                    Target::Module(from) if from != module => {
                        self.resolve(&from, &inside(rest), depth + 1)
                    }
                    _ => None,
                },
            )
    }
}

fn child(module: &[String], name: &str) -> Vec<String> {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

/// A path that begins in the module itself.
fn inside(rest: &[String]) -> Vec<String> {
    ["self".to_owned()]
        .into_iter()
        .chain(rest.iter().cloned())
        .collect()
}

/// The crates with more than a handful of files, and their roots.
fn roots() -> Vec<PathBuf> {
    let crates = tree::root().join("crates");
    let mut roots: Vec<PathBuf> = std::fs::read_dir(crates)
        .unwrap()
        .map(|entry| entry.unwrap().path().join("src"))
        .filter_map(|source| {
            ["lib.rs", "main.rs"]
                .map(|root| source.join(root))
                .into_iter()
                .find(|root| root.exists())
        })
        .collect();
    roots.sort();
    assert!(roots.len() >= 13, "where are the crates? {roots:?}");
    roots
}

#[test]
fn no_cycle_of_imports_between_files() {
    let reports = roots()
        .into_iter()
        .map(|root| Imports::of(&root, &tree::from_disk).report(root.parent().unwrap()));
    let cycles: String = reports.collect();
    assert!(cycles.is_empty(), "{cycles}");
}

/// The report on a planted crate.
fn planted(files: &'static [(&'static str, &'static str)]) -> String {
    let read = move |file: &Path| {
        let name = file.to_str().unwrap();
        files
            .iter()
            .find(|(planted, _)| *planted == name)
            .map(|(_, text)| (*text).to_owned())
    };
    Imports::of(Path::new("src/lib.rs"), &read).report(Path::new("src"))
}

#[test]
fn a_module_and_its_child_that_use_each_other_are_a_cycle() {
    let report = planted(&[
        ("src/lib.rs", "mod list;"),
        (
            "src/list.rs",
            "mod node; pub struct List; use node::Node; fn first() -> Node { loop {} }",
        ),
        ("src/list/node.rs", "pub struct Node(super::List);"),
    ]);
    assert!(
        report.contains("between 2 files")
            && report.contains("list.rs -> list/node.rs (line 1: node::Node)"),
        "{report}"
    );
}

#[test]
fn a_cycle_through_re_exports_globs_aliases_and_macros_is_seen() {
    let report = planted(&[
        (
            "src/lib.rs",
            "mod a; mod b; mod c; pub mod face { pub use crate::a::*; pub use crate::b::B as Other; }",
        ),
        (
            "src/a.rs",
            "pub struct A; fn f() { go!(crate::face::Other::new()) }",
        ),
        (
            "src/b.rs",
            "pub struct B; use crate::c; fn f() { c::call() }",
        ),
        ("src/c.rs", "pub fn call() { let _ = super::face::A; }"),
    ]);
    assert!(report.contains("between 3 files"), "{report}");
}

#[test]
fn a_re_export_that_its_own_file_uses_is_an_import() {
    let report = planted(&[
        ("src/lib.rs", "mod list;"),
        (
            "src/list.rs",
            "mod node; pub use node::Node; pub struct List(Node);",
        ),
        (
            "src/list/node.rs",
            "use super::List; pub struct Node(*const List);",
        ),
    ]);
    assert!(report.contains("between 2 files"), "{report}");
}

#[test]
fn what_is_no_import_makes_no_cycle() {
    let report = planted(&[
        ("src/lib.rs", "pub mod list; pub use list::List;"),
        (
            "src/list.rs",
            "mod node; mod walk; pub use node::Node; pub use walk::walk; pub struct List;",
        ),
        (
            "src/list/node.rs",
            "use super::List; pub struct Node(*const List); #[cfg(test)] mod tests { use crate::list::walk; }",
        ),
        (
            "src/list/walk.rs",
            "use crate::{List, list::Node}; pub fn walk(_: &List, _: &Node) {}",
        ),
    ]);
    assert!(report.is_empty(), "{report}");
}
