//! Which files may name what, and how long a file may be.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    imports::Imports,
    tree::{self, Modules, Part, Read},
};

/// The crates of the library, from the lowest.
const LIBRARY: [&str; 5] = [
    "latchwork-sys",
    "latchwork-sync",
    "latchwork-region",
    "latchwork-check",
    "latchwork",
];

fn library_root(name: &str) -> PathBuf {
    tree::root().join("crates").join(name).join("src/lib.rs")
}

/// The paths that a file names, as the crate root of another crate sees them: `use libc::fork as f; f()` is
/// `libc::fork`.
fn foreign_paths<'a>(
    part: &'a Part,
    names: &'a [&str],
) -> impl Iterator<Item = (&'a [String], usize)> {
    let imports = part.uses.iter().map(|import| &import.path);
    imports
        .chain(&part.paths)
        .chain(&part.calls)
        .filter_map(|path| {
            names
                .contains(&path.segments[0].as_str())
                .then_some((&path.segments[..], path.line))
        })
}

/// What breaks a rule: `file:line: what`.
fn broken(
    root: &Path,
    read: Read<'_>,
    rule: impl Fn(&Part, &mut dyn FnMut(usize, &str)),
) -> Vec<String> {
    let modules = Modules::read(root, read);
    let mut found = Vec::new();
    for part in modules.parts.values().flatten() {
        rule(part, &mut |line, what| {
            found.push(format!("{}:{line}: {what}", part.file.display()))
        });
    }
    found
}

/// Only `latchwork-sys` calls the system: elsewhere libc and rustix lend types and constants.
fn system_call(part: &Part, found: &mut dyn FnMut(usize, &str)) {
    for (path, line) in foreign_paths(part, &["libc", "rustix"]) {
        let last = path.last().unwrap();
        let is_type =
            last.starts_with(char::is_uppercase) || last.ends_with("_t") || last.starts_with("c_");
        let is_module = path.len() == 1
            || matches!(path, [_, module] if ["fd", "io"].contains(&module.as_str()));
        if !is_type && !is_module || path.last().is_some_and(|last| last == "*") {
            found(line, &path.join("::"));
        }
    }
}

#[test]
fn only_sys_makes_system_calls() {
    let calls: Vec<String> = LIBRARY[1..]
        .iter()
        .flat_map(|name| broken(&library_root(name), &tree::from_disk, system_call))
        .collect();
    assert!(
        calls.is_empty(),
        "system calls outside latchwork-sys:\n{}",
        calls.join("\n")
    );
    let planted = "use libc::{c_int, pid_t, fork as f}; use rustix::{fd::OwnedFd, io::Errno, process}; \
                   fn a() -> c_int { let _ = rustix::io::Errno::AGAIN; unsafe { libc::kill(f(), 0) } }";
    let found = broken(
        Path::new("src/lib.rs"),
        &|_| Some(planted.into()),
        system_call,
    );
    assert_eq!(found.len(), 3, "{found:?}");
}

/// Atomics come from `latchwork_sys::atomic`, which is loom's in a model.
fn named_atomic(part: &Part, found: &mut dyn FnMut(usize, &str)) {
    for (path, line) in foreign_paths(part, &["core", "std", "loom"]) {
        if path.get(1).is_some_and(|name| name == "sync")
            && path.get(2).is_some_and(|name| name == "atomic")
        {
            found(line, &path.join("::"));
        }
    }
}

#[test]
fn only_one_file_names_atomics() {
    // Each names them in implementations of traits for them.
    let allowed = [
        "latchwork-sys/src/atomic.rs",
        "latchwork-sync/src/torn_safe.rs",
    ];
    let named: Vec<String> = LIBRARY
        .iter()
        .flat_map(|name| broken(&library_root(name), &tree::from_disk, named_atomic))
        .filter(|place| !allowed.iter().any(|file| place.contains(file)))
        .collect();
    assert!(
        named.is_empty(),
        "atomics named outside atomic.rs:\n{}",
        named.join("\n")
    );
    let planted =
        "use std::sync::{Arc, atomic::AtomicU32}; fn a() { core::sync::atomic::fence(Release) }";
    let found = broken(
        Path::new("src/lib.rs"),
        &|_| Some(planted.into()),
        named_atomic,
    );
    assert_eq!(found.len(), 2, "{found:?}");
}

/// The first use of a lock takes no lock of the loader's: a library that is being loaded holds it, and its constructor
/// may wait for a thread that uses a lock. `thread_local!`, and rustix's clock, which looks up the vDSO, take it.
fn loaders_lock(part: &Part, found: &mut dyn FnMut(usize, &str)) {
    for (path, line) in foreign_paths(part, &["rustix"]) {
        if path.get(1).is_some_and(|name| name == "time")
            || path.last().is_some_and(|name| name == "sched_getcpu")
        {
            found(line, &path.join("::"));
        }
    }
    for call in part.calls.iter().filter(|call| {
        call.segments
            .last()
            .is_some_and(|name| name == "thread_local")
    }) {
        found(call.line, "thread_local!");
    }
}

#[test]
fn no_lock_path_takes_the_loaders_lock() {
    // Models, definitions of what replaces `thread_local!`, and the variable of a fault's handler.
    let allowed = [
        "/model",
        "_loom.rs",
        "sys/each_thread.rs",
        "sys/own_record.rs",
        "region/heap/fault.rs",
    ];
    let taken: Vec<String> = LIBRARY
        .iter()
        .flat_map(|name| broken(&library_root(name), &tree::from_disk, loaders_lock))
        .filter(|place| !allowed.iter().any(|file| place.contains(file)))
        .collect();
    assert!(
        taken.is_empty(),
        "what takes the loader's lock:\n{}",
        taken.join("\n")
    );
    let planted = "use rustix::time::clock_gettime; std::thread_local! { static A: u32 = 0; } fn f() { thread_local!(static B: u8 = 1); }";
    let found = broken(
        Path::new("src/lib.rs"),
        &|_| Some(planted.into()),
        loaders_lock,
    );
    assert_eq!(found.len(), 3, "{found:?}");
}

/// The parts of a folder, and which of the other parts each may use. A part is a file or a folder.
type Parts = [(&'static str, &'static [&'static str])];

/// The parts of `latchwork`.
const FACADE: &Parts = &[
    ("queue", &[]),
    ("event", &[]),
    ("semaphore", &[]),
    ("coproc", &[]),
    ("classic", &["queue", "event", "semaphore"]),
    (
        "probe",
        &["queue", "event", "semaphore", "classic", "coproc"],
    ),
];

/// The parts of the checker, which other files of its folder may use.
const CHECKER: &Parts = &[
    ("record", &[]),
    ("detect", &["record"]),
    ("report", &["record", "detect"]),
    ("observe", &["record", "detect", "report"]),
];

/// The imports between the parts of a folder that they may not have. With `alone`, a part may not use other files of
/// the folder either.
fn upward(imports: &Imports, folder: &str, parts: &Parts, alone: bool) -> Vec<String> {
    // The first name below the folder, with or without `.rs`.
    let top = |file: &Path| {
        let below = file
            .components()
            .skip_while(|part| part.as_os_str() != folder)
            .nth(1)?;
        Path::new(below.as_os_str())
            .file_stem()?
            .to_str()
            .map(str::to_owned)
    };
    let mut found = Vec::new();
    for (file, others) in &imports.0 {
        let Some((name, may)) = parts
            .iter()
            .find(|(name, _)| top(file).is_some_and(|top| top == *name))
        else {
            continue;
        };
        for (other, reason) in others {
            let Some(used) = top(other) else { continue };
            let is_part = parts.iter().any(|(name, _)| *name == used);
            if used != *name && !may.contains(&used.as_str()) && (is_part || alone) {
                found.push(format!("{} uses {used} ({reason})", file.display()));
            }
        }
    }
    found
}

#[test]
fn the_parts_of_the_facade_use_only_what_is_below() {
    let found = upward(
        &Imports::of(&library_root("latchwork"), &tree::from_disk),
        "src",
        FACADE,
        false,
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
    let planted = |file: &Path| {
        Some(match file.to_str()? {
            "src/lib.rs" => "mod queue; mod semaphore; mod classic;".to_owned(),
            "src/queue.rs" => {
                "use crate::semaphore; pub struct Queue; fn f() { semaphore::obtain() }".to_owned()
            }
            "src/semaphore.rs" => "pub fn obtain() {}".to_owned(),
            "src/classic.rs" => "use super::queue::Queue; struct Classic(Queue);".to_owned(),
            _ => return None,
        })
    };
    let found = upward(
        &Imports::of(Path::new("src/lib.rs"), &planted),
        "src",
        FACADE,
        false,
    );
    assert!(
        found.len() == 1 && found[0].starts_with("src/queue.rs uses semaphore"),
        "{found:?}"
    );
}

#[test]
fn the_checker_records_then_detects_then_reports() {
    let imports = Imports::of(&library_root("latchwork-check"), &tree::from_disk);
    let found = upward(&imports, "check", CHECKER, true);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let planted = |file: &Path| {
        Some(match file.to_str()? {
            "src/lib.rs" => "mod check;".to_owned(),
            "src/check/mod.rs" => "mod record; mod report; pub mod hook;".to_owned(),
            "src/check/record.rs" => {
                "use super::report::text; fn f() { text(); super::hook::taken() }".to_owned()
            }
            "src/check/report.rs" => "use crate::check::record; pub fn text() {}".to_owned(),
            "src/check/hook.rs" => "pub fn taken() {}".to_owned(),
            _ => return None,
        })
    };
    let found = upward(
        &Imports::of(Path::new("src/lib.rs"), &planted),
        "check",
        CHECKER,
        true,
    );
    assert_eq!(found.len(), 2, "{found:?}");
}

/// All sources of the workspace's crates, examples and tests, with their texts.
fn all_sources() -> Vec<(PathBuf, String)> {
    let root = tree::root();
    let mut sources = Vec::new();
    for folder in ["crates", "examples"] {
        for entry in walk(&root.join(folder)) {
            let text = fs::read_to_string(&entry).unwrap();
            sources.push((entry.strip_prefix(&root).unwrap().to_owned(), text));
        }
    }
    sources
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else if path.extension().is_some_and(|kind| {
            ["rs", "c", "h", "hpp", "cpp"]
                .iter()
                .any(|known| kind == *known)
        }) {
            found.push(path);
        }
    }
    found.sort();
    found
}

const LONGEST: usize = 500;

fn too_long(sources: &[(PathBuf, String)]) -> Vec<String> {
    let length = |(file, text): &(PathBuf, String)| {
        let lines = text.lines().count();
        (lines > LONGEST).then(|| format!("{}: {lines} lines", file.display()))
    };
    sources.iter().filter_map(length).collect()
}

#[test]
fn no_file_is_longer_than_five_hundred_lines() {
    let found = too_long(&all_sources());
    assert!(
        found.is_empty(),
        "longer than {LONGEST} lines:\n{}",
        found.join("\n")
    );
    assert_eq!(
        too_long(&[
            ("a.rs".into(), "\n".repeat(501)),
            ("b.rs".into(), "\n".repeat(500))
        ])
        .len(),
        1
    );
}

/// The folders and files above `latchwork-region` that contain unsafe code; elsewhere above it the compiler denies it.
/// A new one is added here, with the reason why no safe function of a lower layer does.
const UNSAFE: [(&str, &str); 11] = [
    (
        "latchwork-check/src/check/record/",
        "the board and the graph are memory that other processes map, or arenas",
    ),
    (
        "latchwork-check/src/check/report/sink.rs",
        "the buffer of a report is the thread's",
    ),
    (
        "latchwork-check/src/check/mod.rs",
        "a section of functions that run before `main`",
    ),
    (
        "latchwork-check/src/check/checked.rs",
        "implements the unsafe traits of locks",
    ),
    (
        "latchwork-check/src/check/rwlock.rs",
        "implements the unsafe traits of locks",
    ),
    (
        "latchwork/src/classic/content.rs",
        "validates the table in a region's memory",
    ),
    (
        "latchwork/src/classic/handle.rs",
        "a table in a region's memory",
    ),
    (
        "latchwork/src/coproc/",
        "processes: clone, descriptors, memory after a fork",
    ),
    (
        "latchwork/src/event.rs",
        "waits on words of another task's slot",
    ),
    (
        "latchwork/src/queue/",
        "messages are bytes of a region that tasks hand to each other",
    ),
    (
        "latchwork/src/semaphore/",
        "waiters are linked through their records in a region",
    ),
];

fn has_unsafe(text: &str) -> bool {
    text.lines()
        .any(|line| line.trim_start().starts_with('#') && line.contains("allow(unsafe_code"))
}

#[test]
fn above_the_regions_only_listed_files_have_unsafe_code() {
    let (mut unlisted, mut unused) = (Vec::new(), UNSAFE.map(|(place, _)| place).to_vec());
    for (file, text) in all_sources() {
        let Some(file) = file.to_str().and_then(|file| file.strip_prefix("crates/")) else {
            continue;
        };
        let is_above = [
            "latchwork-check/src/",
            "latchwork/src/",
            "latchwork-derive/src/",
        ]
        .iter()
        .any(|part| file.starts_with(part));
        if is_above && has_unsafe(&text) {
            match UNSAFE.iter().find(|(place, _)| file.starts_with(place)) {
                Some((place, _)) => unused.retain(|other| other != place),
                None => unlisted.push(file.to_owned()),
            }
        }
    }
    assert!(
        unlisted.is_empty(),
        "unsafe code in files that are not listed: {unlisted:?}"
    );
    assert!(
        unused.is_empty(),
        "listed, but without unsafe code: {unused:?}"
    );
    assert!(has_unsafe("    #[allow(unsafe_code)]") && !has_unsafe("// allow(unsafe_code)"));
}
