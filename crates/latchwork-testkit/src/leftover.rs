//! Files that a test must not leave behind.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// All of them, for a watchdog that ends the process.
static ALL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file that is removed when this is dropped, or the watchdog ends the test, if it exists.
#[derive(Debug)]
pub struct Leftover {
    path: PathBuf,
}

impl Leftover {
    /// Takes care of a file that may or may not come to exist.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(path.clone());
        Self { path }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Leftover {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        ALL.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|path| *path != self.path);
    }
}

pub(crate) fn remove_all() {
    // Not waiting for the lock: whoever holds it may be what hangs.
    if let Ok(all) = ALL.try_lock() {
        for path in &*all {
            let _ = std::fs::remove_file(path);
        }
    }
}
