//! What the tests of programs under the checker have in common.
#![allow(dead_code, reason = "each of them uses a part")]

use latchwork_testkit::{Leftover, output_of};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The interposer that Cargo has built for the test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.with_file_name("liblatchwork_preload_check.so");
    assert!(library.is_file(), "{}", library.display());
    library
}

/// Compiles a program of `programs`; `None` without a compiler.
pub fn compile(source: &str, name: &str, options: &[&str]) -> Option<(PathBuf, Leftover)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    latchwork_testkit::compile(&directory.join(source), name, options)
}

/// What a program has said, and what was found in it.
pub struct Outcome {
    pub output: Output,
    pub findings: Vec<Value>,
}

impl Outcome {
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// A field of each finding.
    pub fn each(&self, field: &str) -> Vec<String> {
        let text = |finding: &Value| finding[field].as_str().unwrap_or_default().to_owned();
        self.findings.iter().map(text).collect()
    }
}

/// Runs a case of a program under the checker. The program gets the path of the findings as its second argument, and
/// must end well.
pub fn run_case(program: &Path, case: &str, words: &str) -> Outcome {
    let folder = Leftover::folder("findings");
    let json = folder.path().join("jsonl");
    let child = Command::new(program)
        .arg(case)
        .arg(&json)
        .env("LD_PRELOAD", library())
        .env(
            "LATCHWORK_CHECK",
            format!("{words},json={}", json.display()),
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output_of(child);
    let lines = std::fs::read_to_string(&json).unwrap_or_default();
    let findings = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let outcome = Outcome {
        output,
        findings: findings.collect(),
    };
    let status = outcome.output.status;
    assert!(status.success(), "{case}: {status}: {}", outcome.errors());
    outcome
}
