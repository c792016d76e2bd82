//! A directory that is removed with its files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory for temporary files, until it is dropped.
pub(crate) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Creates one whose name contains `purpose`.
    pub(crate) fn new(purpose: &str) -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Relaxed: only the number has to be unique.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("latchwork-{purpose}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // An error is ignored: leftovers do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
