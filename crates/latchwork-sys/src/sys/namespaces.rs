//! The PID namespace of this process, and threads of others, as its `/proc` shows them.
#![allow(unsafe_code)]

use super::cancellation::Undisturbed;
use super::wiped::Wiped;
use super::{inspect, introspect, memory};
use crate::atomic::{AtomicU32, Ordering};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// As [`memory::pid_namespace`], remembered since this process asked first; 0 if it is not known. A process that has lost
/// its `/proc` since then still knows; the child of a fork, which may be in another namespace, asks again.
pub fn own() -> u32 {
    // SAFETY: a number.
    static KNOWN: Wiped<AtomicU32> = unsafe { Wiped::new() };
    let Ok(known) = KNOWN.get() else {
        return memory::pid_namespace().unwrap_or(0) as u32;
    };
    // Relaxed: a number that every thread of the process would find.
    if known.load(Ordering::Relaxed) == 0 {
        known.store(
            memory::pid_namespace().unwrap_or(0) as u32,
            Ordering::Relaxed,
        );
    }
    known.load(Ordering::Relaxed)
}

/// How to find a thread in `/proc` by its ID in its own PID namespace.
#[derive(Debug)]
pub struct Threads {
    /// The PID namespace whose IDs are those of `/proc`; 0 if that is not the calling process's.
    direct: u64,
    /// The processes of all others, by namespace and the ID there.
    others: OnceCell<HashMap<(u64, u32), u32>>,
    /// The threads of the processes that were looked at: their IDs here, by those in their own namespaces.
    threads: RefCell<HashMap<u32, HashMap<u32, u32>>>,
    /// How many threads may still be read again, to find those that were started meanwhile.
    left: Cell<usize>,
}

/// Threads that are read again, in all. (A file may name any number that do not exist.)
const READ_AGAIN: usize = 50_000;

impl Threads {
    /// The threads of all visible processes.
    #[must_use]
    pub fn visible() -> Self {
        let own = memory::pid_namespace().unwrap_or(0);
        let direct = if introspect::shows_own_ids() { own } else { 0 };
        Self {
            direct,
            others: OnceCell::new(),
            threads: RefCell::default(),
            left: Cell::new(READ_AGAIN),
        }
    }

    /// The IDs by which `/proc` shows a process and its thread; `None` if it does not. Only those of another namespace need
    /// a look.
    #[must_use]
    pub fn find(&self, namespace: u64, process: u32, thread: u32) -> Option<(u32, u32)> {
        if namespace == self.direct && namespace != 0 {
            return Some((process, thread));
        }
        let _undisturbed = Undisturbed::begin();
        let others = self.others.get_or_init(|| {
            let all = inspect::processes().unwrap_or_default();
            let key = |id: &u32| {
                let of = namespace_of(*id)?;
                Some((of, own_id(Path::new(&format!("/proc/{id}")))?))
            };
            all.iter().filter_map(|id| Some((key(id)?, *id))).collect()
        });
        let process = *others.get(&(namespace, process))?;
        let mut known = self.threads.borrow_mut();
        let was_known = known.contains_key(&process);
        let threads = known.entry(process).or_insert_with(|| threads_of(process));
        if was_known && !threads.contains_key(&thread) {
            let left = self.left.get().checked_sub(threads.len().max(1))?;
            self.left.set(left);
            *threads = threads_of(process);
        }
        Some((process, *threads.get(&thread)?))
    }
}

/// The threads of a process: their IDs here, by those in their own PID namespace.
fn threads_of(process: u32) -> HashMap<u32, u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let ids = |entry: fs::DirEntry| {
        let here = entry.file_name().to_str()?.parse().ok()?;
        Some((own_id(&entry.path())?, here))
    };
    entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(ids)
        .collect()
}

fn namespace_of(process: u32) -> Option<u64> {
    let link = rustix::fs::stat(format!("/proc/{process}/ns/pid")).ok()?;
    Some(link.st_ino)
}

/// The ID of the thread with this directory, in its own PID namespace.
fn own_id(directory: &Path) -> Option<u32> {
    let status = fs::read_to_string(directory.join("status")).ok()?;
    let ids = status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?;
    ids.split_ascii_whitespace().last()?.parse().ok()
}
