//! The compiler, as a user of the library calls it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The newest build of the library in the folder of this very executable.
fn library(folder: &Path) -> PathBuf {
    let built = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_it = name.starts_with("liblatchwork-") && name.ends_with(".rlib");
        Some((entry.metadata().ok()?.modified().ok()?, entry.path())).filter(|_| is_it)
    };
    let entries = std::fs::read_dir(folder).unwrap();
    let newest = entries.flatten().filter_map(built).max();
    newest.expect("this test depends on the library").1
}

/// A call that finds the library.
pub fn rustc() -> Command {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let mut command = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    command
        .arg("--edition=2024")
        .arg(format!("-Ldependency={}", folder.display()))
        .arg(format!("--extern=latchwork={}", library(folder).display()));
    command
}
