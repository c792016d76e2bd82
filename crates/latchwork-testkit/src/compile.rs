//! Compiling programs in C.

use crate::Leftover;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program (or whatever `options` request) into a file of this name, in a folder that is removed with the
/// second result. Prints a line and returns `None` if there is no C compiler (`$CC`, or `cc`).
///
/// # Panics
/// If the source does not compile.
#[must_use]
pub fn compile(source: &Path, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let folder = Leftover::folder("compiled");
    let program = folder.path().join(name);
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(&compiler)
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([program.as_os_str(), source.as_os_str()])
        .args(options)
        .status();
    match built {
        Ok(status) => {
            assert!(status.success(), "{}", source.display());
            Some((program, folder))
        }
        Err(error) => {
            eprintln!("skipped: no C compiler ({}): {error}", compiler.display());
            None
        }
    }
}
