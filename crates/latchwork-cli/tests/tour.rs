//! The tour, as a user starts it.

use latchwork_testkit::Leftover;
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
    // Of all the text there is, and of some of it, as that takes a build for tests a while.
    for (workers, limit) in [("1", "1"), ("2", "64"), ("8", "1"), ("32", "1")] {
        let output = tour(&["--workers", workers, "--limit", limit]);
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
    let empty = Texts::new("empty", &[]);
    let output = tour(&["--path", empty.0.path().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(
        text(&output).contains("too little text"),
        "{}",
        text(&output)
    );
}

/// A directory of files, which goes with this.
struct Texts(Leftover);

impl Texts {
    fn new(name: &str, texts: &[&str]) -> Self {
        let directory = Leftover::folder(name);
        for (number, text) in texts.iter().enumerate() {
            std::fs::write(directory.path().join(number.to_string()), text).unwrap();
        }
        Self(directory)
    }

    fn tour(&self, arguments: &[&str]) -> (bool, String) {
        let path = ["--path", self.0.path().to_str().unwrap()];
        let output = tour(&[&path, arguments].concat());
        (output.status.success(), text(&output))
    }
}

#[test]
fn a_piece_without_words_does_not_hold_up_the_tour() {
    let texts = Texts::new("no-words", &["one", "-----", "three"]);
    let (success, text) = texts.tour(&[]);
    assert!(success, "{text}");
    assert!(text.contains("All figures agree."), "{text}");
}

#[test]
fn words_may_be_of_any_script() {
    let chinese = "锁、队列和共享内存。".repeat(2000);
    let texts = Texts::new("chinese", &[&chinese, &chinese, &chinese]);
    let (success, text) = texts.tour(&[]);
    assert!(success, "{text}");
    assert!(text.contains("队列和共享内存 6000"), "{text}");
}

#[test]
fn a_directory_without_words_is_an_error() {
    let texts = Texts::new("signs", &["-----", "=====", "....."]);
    let (success, text) = texts.tour(&[]);
    assert!(!success);
    assert!(text.contains("no words"), "{text}");
}

#[test]
fn a_limit_beyond_all_bounds_is_none() {
    let texts = Texts::new("limit", &["one", "two", "three"]);
    let (success, text) = texts.tour(&["--limit", "17592186044416"]);
    assert!(success, "{text}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let output = Command::new(env!("CARGO_BIN_EXE_latchwork"))
        .args(["tour", "--limit", "1"])
        .stdin(Stdio::null())
        .stdout(write)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(text(&output), "");
}

#[test]
fn the_help_names_the_limit_of_workers() {
    let help = text(&tour(&["--help"]));
    assert!(help.contains("1 to 63"), "{help}");
    let output = tour(&["--workers", "64"]);
    assert!(!output.status.success());
}

#[test]
fn no_process_is_left() {
    let output = tour(&["--workers", "3", "--limit", "1"]);
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
