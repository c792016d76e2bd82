//! Programs in C.

use crate::Leftover;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program, or what else `options` say, into a file that goes with what is returned beside it. `None`,
/// and a line, where there is no C compiler (`$CC`, or `cc`).
///
/// # Panics
/// If the source does not compile.
#[must_use]
pub fn compile(source: &Path, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let program = std::env::temp_dir().join(format!("latchwork-{}-{name}", std::process::id()));
    let leftover = Leftover::new(program.clone());
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let built = Command::new(&compiler)
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([program.as_os_str(), source.as_os_str()])
        .args(options)
        .status();
    match built {
        Ok(status) => {
            assert!(status.success(), "{}", source.display());
            Some((program, leftover))
        }
        Err(error) => {
            eprintln!("skipped: no C compiler ({}): {error}", compiler.display());
            None
        }
    }
}
