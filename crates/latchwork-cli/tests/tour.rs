//! The tour, as a user starts it.

use std::process::{Command, Output, Stdio};

fn tour(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_latchwork"))
        .arg("tour")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn all_figures_agree_after_the_kill_with_any_number_of_workers() {
    for workers in ["1", "2", "8", "32"] {
        let output = tour(&["--workers", workers]);
        let text = text(&output);
        assert!(output.status.success(), "{workers} workers: {text}");
        assert!(text.contains("SIGKILL to index-worker-"), "{text}");
        assert!(text.contains("All figures agree."), "{text}");
        assert!(!text.contains("NO "), "{text}");
    }
}

#[test]
fn a_directory_that_is_none_is_an_error() {
    let output = tour(&["--path", "/nonexistent"]);
    assert!(!output.status.success());
    assert!(text(&output).contains("No such file"), "{}", text(&output));
}

#[test]
fn a_directory_without_text_is_an_error() {
    let empty = std::env::temp_dir().join(format!("latchwork-tour-{}", std::process::id()));
    std::fs::create_dir(&empty).unwrap();
    let output = tour(&["--path", empty.to_str().unwrap()]);
    std::fs::remove_dir(&empty).unwrap();
    assert!(!output.status.success());
    assert!(
        text(&output).contains("too little text"),
        "{}",
        text(&output)
    );
}

#[test]
fn no_process_is_left() {
    let output = tour(&["--workers", "3"]);
    let text = text(&output);
    let workers: Vec<u32> = text
        .lines()
        .filter_map(|line| line.split_once(" is process ")?.1.trim().parse().ok())
        .collect();
    assert_eq!(workers.len(), 4, "{text}");
    for pid in workers {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        assert!(!name.starts_with("index-worker"), "{pid} is still there");
    }
}
