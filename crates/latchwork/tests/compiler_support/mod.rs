//! The compiler, as a user of the library calls it.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The newest build of the library in a folder.
fn library(folder: &Path) -> Option<PathBuf> {
    let built = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_it = name.starts_with("liblatchwork-") && name.ends_with(".rlib");
        Some((entry.metadata().ok()?.modified().ok()?, entry.path())).filter(|_| is_it)
    };
    let entries = std::fs::read_dir(folder).ok()?;
    Some(entries.flatten().filter_map(built).max()?.1)
}

/// The folder of this very executable, and of what was built with it.
fn own_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}

fn compiler() -> Command {
    Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
}

fn with(library: &Path, folders: &[&Path]) -> Command {
    let mut command = compiler();
    command
        .arg("--edition=2024")
        .arg(format!("--extern=latchwork={}", library.display()));
    for folder in folders {
        command.arg(format!("-Ldependency={}", folder.display()));
    }
    command
}

/// A call that finds the library.
pub fn rustc() -> Command {
    let folder = own_folder();
    let library = library(&folder).expect("this test depends on the library");
    with(&library, &[&folder])
}

/// A call that compiles for another target and finds the library that was built for it beside this one; `None`, and a
/// line that names what is missing, if there is none, or if the compiler lacks the target.
pub fn rustc_for(target: &str) -> Option<Command> {
    let mut asks = compiler();
    asks.args(["--target", target, "--print", "target-libdir"]);
    let answer = asks.output().expect("the compiler's folder of libraries");
    if !Path::new(String::from_utf8_lossy(&answer.stdout).trim()).is_dir() {
        println!("skipped: the compiler has no standard library for {target}");
        return None;
    }
    // TARGET/PROFILE/deps, and TARGET/TRIPLE/PROFILE/deps.
    let own = own_folder();
    let profile = own.parent().unwrap();
    let there = profile.parent().unwrap().join(target);
    let there = there.join(profile.file_name().unwrap()).join("deps");
    let Some(library) = library(&there) else {
        println!("skipped: {} has no library for {target}", there.display());
        return None;
    };
    let mut command = with(&library, &[&there, &own]);
    command.args(["--target", target]);
    Some(command)
}

/// Whether the compiler is there.
pub fn has_rustc() -> bool {
    let mut command = compiler();
    command.arg("-V").stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
