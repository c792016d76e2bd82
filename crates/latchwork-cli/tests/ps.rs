//! `latchwork ps` on regions of this process and of others.

mod common;

use common::{ANONYMOUS, Holder, Named, region, run, stdout, unique};
use latchwork::region::RegionOptions;

fn tasks(region: &serde_json::Value) -> Vec<(String, String, u64)> {
    let tasks = region["contents"]["tasks"].as_array().unwrap();
    let task = |task: &serde_json::Value| {
        (
            task["name"].as_str().unwrap().into(),
            task["state"].as_str().unwrap().into(),
            task["pid"].as_u64().unwrap(),
        )
    };
    tasks.iter().map(task).collect()
}

#[test]
fn a_named_region_is_shown_with_tasks_objects_and_process() {
    let named = Named::new("named");
    let holder = Holder::of(&named.0);
    let pid = u64::from(holder.pid());
    let region = region(&named.0);
    assert_eq!(region["path"].as_str(), named.path().to_str());
    assert_eq!(
        tasks(&region),
        [
            ("first".into(), "alive".into(), pid),
            ("second".into(), "alive".into(), pid)
        ]
    );
    assert_eq!(region["contents"]["objects"][0]["name"], "answer");
    assert_eq!(region["contents"]["objects"][0]["bytes"], 8);
    assert_eq!(region["contents"]["creator"], pid);
    assert_eq!(region["contents"]["pid_namespace_is_ours"], true);
    assert_eq!(region["openings"][0]["pid"], pid);
    assert_eq!(region["processes"][0]["parent"], std::process::id());
    assert!(region["processes"][0]["rss_bytes"].as_u64().unwrap() > 0);
    assert!(
        region["contents"]["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .all(|task| task["cpu_ms"].is_u64())
    );
    let committed = region["contents"]["heap_committed_bytes"].as_u64().unwrap();
    let allocated = region["contents"]["heap_allocated_bytes"].as_u64().unwrap();
    assert!(
        8 <= allocated && allocated <= committed && committed <= 4 << 20,
        "{allocated} of {committed}"
    );
    let text = stdout(&run(&["ps", &named.0]));
    for part in [
        named.0.as_str(),
        "first",
        "second",
        "alive",
        &holder.pid().to_string(),
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn an_anonymous_region_is_listed_through_its_process() {
    let label = unique("memfd");
    let holder = Holder::of(&format!("{ANONYMOUS}{label}"));
    let region = region(&label);
    assert!(region["path"].is_null());
    assert_eq!(region["openings"][0]["pid"], holder.pid());
    assert_eq!(tasks(&region).len(), 2);
}

#[test]
fn memory_that_one_process_has_twice_is_one_region() {
    let label = unique("twice");
    let own = RegionOptions::new()
        .max_bytes(1 << 20)
        .label(&label)
        .create_anonymous()
        .unwrap();
    let again = own.file().try_clone_to_owned().unwrap();
    let region = region(&label);
    let openings = region["openings"].as_array().unwrap();
    // A child that another test is just starting has them, too, until it executes the command.
    let mine = openings
        .iter()
        .filter(|opening| opening["pid"] == std::process::id());
    assert_eq!(mine.count(), 2, "{openings:?}");
    drop(again);
}

#[test]
fn a_child_is_listed_below_its_parent() {
    let named = Named::new("tree");
    let holder = Holder::of(&named.0);
    let own = RegionOptions::new().attach(&named.0).unwrap();
    own.join("parent").unwrap();
    let text = stdout(&run(&["ps", &named.0]));
    let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
    assert!(line("parent") < line("first"), "{text}");
    assert!(
        text.contains("   first"),
        "indented below its parent: {text}"
    );
    drop(holder);
}

#[test]
fn dead_tasks_are_shown_until_they_are_swept() {
    let named = Named::new("dead");
    let holder = Holder::of(&named.0);
    let pid = u64::from(holder.pid());
    holder.kill();
    assert_eq!(
        tasks(&region(&named.0)),
        [
            ("first".into(), "dead".into(), pid),
            ("second".into(), "dead".into(), pid)
        ]
    );
    assert!(stdout(&run(&["ps", &named.0])).contains("2 tasks died"));
    let own = RegionOptions::new().attach(&named.0).unwrap();
    assert_eq!(tasks(&region(&named.0)), []);
    assert_eq!(region(&named.0)["contents"]["deaths"], 2);
    drop(own);
}

#[test]
fn a_name_cannot_control_the_terminal() {
    let label = unique("\x1b[31mred\x07");
    let own = RegionOptions::new()
        .max_bytes(1 << 20)
        .label(&label)
        .create_anonymous()
        .unwrap();
    own.join("\x1b]0;title\x07").unwrap();
    let text = stdout(&run(&["ps", &label]));
    assert!(text.contains("red") && text.contains("title"), "{text}");
    assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
    assert_eq!(
        region(&label)["contents"]["tasks"][0]["name"],
        "\x1b]0;title\x07"
    );
}

#[test]
fn an_unknown_name_is_reported() {
    let name = unique("nobody");
    let output = run(&["ps", &name]);
    assert!(output.stdout.is_empty(), "{output:?}");
    let output = run(&["ps", &name, "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["regions"].as_array().unwrap().len(), 0);
}
