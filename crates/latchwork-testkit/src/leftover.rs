//! Files that a test must not leave behind.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// All leftovers, for a watchdog that ends the process.
static ALL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file, or a folder with its contents. It is removed, if it exists, when this is dropped or when the watchdog ends
/// the test.
#[derive(Debug)]
pub struct Leftover {
    path: PathBuf,
    /// For a folder: a lock that is held as long as this process lives, or a child that it has forked meanwhile.
    _lock: Option<File>,
}

impl Leftover {
    /// Removes a file later, which need not exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::with_lock(path.into(), None)
    }

    /// A unique region name, and the file of that name in `/dev/shm`. Files that killed tests have left there are
    /// removed now.
    #[must_use]
    pub fn region(what: &str) -> (String, Self) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let shared = Path::new("/dev/shm");
        let maker = |entry: &Path| {
            let name = entry.file_name()?.to_str()?;
            let (process, _) = name.strip_prefix("latchwork-test-")?.split_once('-')?;
            process.parse::<u32>().ok()
        };
        for entry in std::fs::read_dir(shared).into_iter().flatten().flatten() {
            let maker = maker(&entry.path());
            if maker.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
                remove(&entry.path());
            }
        }
        // Relaxed: only the number's uniqueness matters.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("test-{}-{number}-{what}", std::process::id());
        let file = Self::new(shared.join(format!("latchwork-{name}")));
        (name, file)
    }

    /// A new folder in Cargo's target directory. If the test is killed, the next test that makes a folder removes it.
    ///
    /// # Panics
    /// If it cannot be created.
    #[must_use]
    pub fn folder(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = parent();
        std::fs::create_dir_all(&parent).expect("a folder for folders");
        let turn = File::open(&parent).expect("a folder that was just made");
        lock(&turn, libc::LOCK_EX);
        remove_abandoned(&parent);
        // Relaxed: only the number's uniqueness matters.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder of a new name");
        let own = File::open(&path).expect("a folder that was just made");
        lock(&own, libc::LOCK_EX);
        // The lock is released by an explicit call, since a child that is forked at this moment has the file open, too.
        lock(&turn, libc::LOCK_UN);
        Self::with_lock(path, Some(own))
    }

    fn with_lock(path: PathBuf, lock: Option<File>) -> Self {
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path.clone());
        Self { path, _lock: lock }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        remove(&self.path);
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|path| *path != self.path);
    }
}

/// The directory for folders: in the target directory, if the program lies where Cargo puts tests.
fn parent() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let is_cargos = |folder: &&Path| folder.ends_with("deps");
    let target = program.parent().filter(is_cargos);
    let target = target.and_then(|deps| deps.ancestors().nth(2));
    match target {
        Some(target) => target.join("tmp/tests"),
        None => std::env::temp_dir().join("latchwork-tests"),
    }
}

/// Removes the folders of killed tests: those that no process has locked.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let folder = File::open(entry.path());
        if folder.is_ok_and(|folder| lock(&folder, libc::LOCK_EX | libc::LOCK_NB)) {
            remove(&entry.path());
        }
    }
}

fn lock(file: &File, operation: i32) -> bool {
    loop {
        // SAFETY: the descriptor is open.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return true;
        }
        if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return false;
        }
    }
}

fn remove(path: &Path) {
    let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
}

pub(crate) fn remove_all() {
    // This does not wait for the lock: its holder may be the one that hangs.
    if let Ok(all) = ALL.try_lock() {
        all.iter().for_each(|path| remove(path));
    }
}

#[cfg(test)]
mod tests {
    use super::Leftover;
    use crate::Child;

    #[test]
    fn files_of_a_killed_test_are_removed_by_the_next_one() {
        let mut child = Child::fork(|| {
            let folder = Leftover::folder("killed");
            std::fs::write(folder.path().join("file"), "text").unwrap();
            std::mem::forget(folder);
            loop {
                std::thread::park();
            }
        });
        let pid = child.pid();
        let parent = super::parent();
        let of_child = move || {
            let entries = std::fs::read_dir(&parent).into_iter().flatten().flatten();
            entries
                .filter(|entry| {
                    let name = entry.file_name().into_string().unwrap();
                    name.starts_with(&format!("killed-{pid}-"))
                })
                .find(|entry| entry.path().join("file").exists())
        };
        while of_child().is_none() {
            std::thread::yield_now();
        }
        let mine = Leftover::folder("living");
        assert!(of_child().is_some(), "its owner lives");
        child.kill();
        let path = mine.path().to_owned();
        drop(mine);
        assert!(!path.exists());
        drop(Leftover::folder("living"));
        assert!(of_child().is_none());
    }
}
