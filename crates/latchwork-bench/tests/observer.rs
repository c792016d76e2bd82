//! A process that names all scenarios and their contestants is not observed by the checker: it would measure other locks,
//! semaphores, queues and allocations than programs use. In a program of its own, since a process is observed as a whole.

use clap::Parser;
use latchwork_bench::Args;
use latchwork_sync::hook::is_observed;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: Args,
}

#[test]
fn to_name_all_contestants_does_not_begin_to_observe() {
    assert!(!is_observed());
    let line = Line::parse_from(["test", "all", "--only", "no such contestant"]);
    let error = latchwork_bench::run(&line.bench).unwrap_err();
    assert!(error.to_string().contains("no such contestant"), "{error}");
    assert!(!is_observed());
}
