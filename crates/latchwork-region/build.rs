//! Tells the library which compiler builds it: the layout of an `Option` is that compiler's.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let compiler = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let said = Command::new(compiler).arg("-vV").output();
    let said = said.map_or_else(
        |_| "unknown".into(),
        |said| String::from_utf8_lossy(&said.stdout).replace('\n', " "),
    );
    println!("cargo::rustc-env=LATCHWORK_COMPILER={said}");
}
