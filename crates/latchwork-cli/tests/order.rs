//! `latchwork order`: the order of locks over several runs.

use latchwork_testkit::Leftover;
use std::process::Command;

fn edge(from: &str, to: &str) -> String {
    format!(
        r#"{{"schema":"latchwork-order-1","from":"{from}","to":"{to}","from_kind":"mutex","to_kind":"mutex","held_at":"a.rs:1:1","wanted_at":"a.rs:2:2"}}"#
    )
}

/// Files in a folder that goes when the test ends.
struct Files(Leftover);

impl Files {
    fn new(name: &str, contents: &[(&str, &[String])]) -> Self {
        let folder = Leftover::folder(name);
        for (file, lines) in contents {
            std::fs::write(folder.path().join(file), lines.join("\n")).unwrap();
        }
        Self(folder)
    }

    fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_latchwork"))
            .current_dir(self.0.path())
            .arg("order")
            .args(arguments)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }
}

#[test]
fn a_new_edge_is_named_and_fails() {
    let old = [edge("a", "b"), edge("b", "c")];
    let new = [edge("a", "b"), edge("c", "a"), edge("a", "d")];
    let files = Files::new("diff", &[("old", &old), ("new", &new)]);
    let (is_success, text) = files.run(&["diff", "old", "new"]);
    assert!(!is_success);
    assert!(
        text.contains("new edge a -> d  (held a.rs:1:1, wanted a.rs:2:2)"),
        "{text}"
    );
    assert!(text.contains("new edge c -> a"), "{text}");
    assert_eq!(text.matches("potential deadlock").count(), 1, "{text}");
    assert!(files.run(&["diff", "new", "new"]).0);
}

#[test]
fn a_cycle_that_no_run_has_alone_is_detected_in_the_merged_file() {
    let files = Files::new(
        "merge",
        &[
            ("one", &[edge("a", "b")]),
            ("two", &[edge("b", "a"), edge("a", "b")]),
        ],
    );
    assert!(files.run(&["show", "one"]).0);
    let (is_success, merged) = files.run(&["merge", "one", "two"]);
    assert!(is_success);
    assert_eq!(merged.lines().count(), 2, "{merged}");
    let (is_success, text) = files.run(&["show", "one", "two"]);
    assert!(!is_success);
    assert_eq!(text.matches("cycle: ").count(), 1, "{text}");
}

#[test]
fn a_malformed_line_is_refused_by_its_number() {
    let files = Files::new("bad", &[("bad", &[edge("a", "b"), "nonsense".into()])]);
    let (is_success, text) = files.run(&["show", "bad"]);
    assert!(!is_success);
    assert!(text.contains("bad, line 2"), "{text}");
}

#[test]
fn the_complete_part_of_a_truncated_file_is_read() {
    let cut_off = edge("b", "c")[..40].to_owned();
    let gone_on = cut_off.clone() + &edge("c", "d");
    let files = Files::new("cut", &[("one", &[edge("a", "b"), gone_on, cut_off])]);
    let (is_success, text) = files.run(&["show", "one"]);
    assert!(is_success);
    for part in [
        "a -> b  (",
        "c -> d  (",
        "one, line 2 is cut",
        "one, line 3 is cut",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let (_, merged) = files.run(&["merge", "one"]);
    assert_eq!(merged.matches("\"from\":").count(), 2, "{merged}");
}

#[test]
fn names_in_a_file_cannot_control_the_terminal() {
    let edges = [
        edge(r"a\u001b[2J", "b"),
        edge("b", r"a\u001b[2J"),
        edge("c", r"\u009b1m"),
    ];
    let files = Files::new("hostile", &[("one", &edges), ("none", &[])]);
    for arguments in [&["show", "one"][..], &["diff", "none", "one"]] {
        let (_, text) = files.run(arguments);
        assert!(text.contains("a\u{fffd}[2J -> b"), "{text}");
        let is_control = |letter: char| letter.is_control() && letter != '\n';
        assert!(!text.contains(is_control), "{text:?}");
    }
}
