//! Programs into which the command has loaded a library: what checked ones publish on their boards, and replaced mutexes.

use super::actor::{Actor, c_program};
use super::common::{run, stdout};
use super::seen;

/// The checker in it knows its place only.
#[test]
fn a_static_of_a_checked_program_has_the_name_of_its_symbol() {
    let Some((program, _folder)) = c_program() else {
        return;
    };
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_latchwork"));
    command.args(["run", "--check", "--"]).arg(program);
    command.env("LATCHWORK_CHECK", "quiet");
    let actor = Actor::start(command);
    let look = seen(&actor, |look| look.0["cycles"] != serde_json::json!([]));
    let waited = look.task("ada")["waits_for"][0].as_u64().unwrap();
    let lock = &look.0["locks"][waited as usize];
    assert_eq!(lock["name"], "hang:second", "{lock:#}");
}

#[test]
fn replaced_mutexes_are_shown_with_their_owners() {
    let Some((program, _folder)) = c_program() else {
        return;
    };
    for kind in ["--mutex=tp", "--mutex=wait-wake"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_latchwork"));
        command.args(["run", kind, "--quiet", "--"]).arg(&program);
        let actor = Actor::start(command);
        let look = seen(&actor, |look| look.0["cycles"] != serde_json::json!([]));
        assert_eq!(look.cycles(), [["ada", "bob"]], "{kind}");
    }
}

#[test]
fn a_checked_program_publishes_since_when_and_where() {
    let actor = Actor::role("checked", "");
    let look = seen(&actor, |look| look.waiters("the ledger").len() == 1);
    let ledger = look.lock("the ledger");
    assert_eq!(ledger["type"], "mutex", "{ledger:#}");
    assert_eq!(look.owner(&ledger).as_deref(), Some("holder"));
    assert_eq!(look.waiters("the ledger"), ["wanting"]);
    let hold = &ledger["holds"][0];
    assert!(hold["held_ms"].is_u64(), "{ledger:#}");
    let wanting = look.task("wanting");
    assert_eq!(wanting["waited_is_exact"], true, "{wanting:#}");
    for place in [&hold["at"], &wanting["waits_at"], &ledger["made_at"]] {
        let place = place.as_str().unwrap_or_default();
        assert!(
            place.contains("roles.rs:"),
            "{place} in {ledger:#} {wanting:#}"
        );
    }
    let text = stdout(&run(&["locks", "--pid", &actor.pid().to_string()]));
    for part in ["HELD FOR", "ACQUIRED AT", "roles.rs:"] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn findings_of_a_checked_program_are_listed_newest_first() {
    let actor = Actor::role("reported", "");
    let look = seen(&actor, |look| {
        look.0["reports"]
            .as_array()
            .is_some_and(|all| all.len() == 2)
    });
    let reports = &look.0["reports"];
    for (report, number, rule, verdict) in [
        (&reports[0], 2, "no-double-unlock", "MISUSE"),
        (&reports[1], 1, "one-order", "POTENTIAL DEADLOCK"),
    ] {
        assert_eq!(report["number"], number, "{report:#}");
        assert_eq!(report["rule"], rule, "{report:#}");
        assert_eq!(report["verdict"], verdict, "{report:#}");
        let text = report["text"].as_str().unwrap();
        let id = report["id"].as_str().unwrap();
        assert!(
            text.starts_with(&format!("== latchwork: {verdict} [{rule}] {id}\n"))
                && text.ends_with(&format!("to suppress: {rule} {id}\n")),
            "{text}"
        );
        assert!(
            text.contains(report["summary"].as_str().unwrap()),
            "{report:#}"
        );
    }
    assert_eq!(reports[1]["summary"], "order right -> left -> right");
}

#[test]
fn a_board_with_arbitrary_contents_is_read_to_its_end() {
    let actor = Actor::role("board", "");
    let pid = actor.pid().to_string();
    for args in [
        &["locks", "--pid", &pid, "--json"][..],
        &["locks", "--all"],
        &["ps"],
        &["top", "--once", "--all", "--pane", "tasks"],
        &[
            "top", "--once", "--pane", "findings", "--filter", &pid, "--size", "200x90",
        ],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?} {output:?}");
        let text = stdout(&output);
        // JSON is for programs.
        let speaks = |letter: char| letter.is_control() && letter != '\n';
        assert!(
            args.contains(&"--json") || !text.contains(speaks),
            "{args:?} {text:?}"
        );
        assert!(
            !args.contains(&"findings") || text.matches(&pid).count() > 20,
            "{text}"
        );
    }
    assert!(actor.finish());
}
