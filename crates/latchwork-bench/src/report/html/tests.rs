//! Pages of made-up results, and of whatever results a variable names.

use std::collections::BTreeSet;

use super::questions::{QUESTIONS, Who};
use super::verdict::{Outcome, verdicts};
use super::*;
use crate::report::tests::{result, row};
use crate::result::{Better, Distribution, Kind, Row, Spread, Unit, Variant};

const HOSTILE: &str = "<script>alert('\"&\")</script>";

/// A result of this scenario.
fn of(scenario: &str, base: &str, rows: Vec<Row>) -> ScenarioResult {
    ScenarioResult {
        scenario: scenario.into(),
        ..result(base, rows)
    }
}

/// The page as XML, which it is but for the first line and the elements of the head that have no end.
fn parsed(page: &str) -> String {
    let body = page.strip_prefix("<!DOCTYPE html>").expect("HTML");
    let mut text = String::new();
    for part in body.split_inclusive('>') {
        let is_meta = part.trim_start().starts_with("<meta");
        text += if is_meta { "" } else { part };
    }
    let document = roxmltree::Document::parse(&text);
    assert!(document.is_ok(), "{:?}", document.err());
    text
}

/// All text of the page's body, and the number of elements of a class.
fn texts(page: &str) -> String {
    let text = parsed(page);
    let document = roxmltree::Document::parse(&text).unwrap();
    let body = document
        .descendants()
        .find(|node| node.has_tag_name("body"))
        .unwrap();
    let texts = body.descendants().filter(|node| node.is_text());
    texts
        .filter_map(|node| node.text())
        .collect::<Vec<_>>()
        .join(" ")
}

fn count(page: &str, class: &str) -> usize {
    let text = parsed(page);
    let document = roxmltree::Document::parse(&text).unwrap();
    let has = |node: &roxmltree::Node<'_, '_>| {
        let classes = node.attribute("class").unwrap_or("");
        classes.split(' ').any(|one| one == class)
    };
    document.descendants().filter(has).count()
}

fn with_tasks(mut row: Row, tasks: u32) -> Row {
    row.params.tasks = Some(tasks);
    row
}

fn disturbed(mut row: Row) -> Row {
    row.extra.insert("disturbed_rounds".into(), 5.0);
    row
}

fn loaded_result() -> ScenarioResult {
    let mut rows = Vec::new();
    for tasks in [1, 2, 4] {
        rows.push(with_tasks(row("malloc", 10.0, Some(1.0)), tasks));
        rows.push(with_tasks(row("latchwork heap", 20.0, Some(2.0)), tasks));
    }
    // The ratio of a disturbed row is not there.
    rows[5] = disturbed(with_tasks(row("latchwork heap", 123_456.0, None), 4));
    let mut result = of("heap", "malloc", rows);
    result.warnings.push(Warning::Load {
        text: "the load average was 7".into(),
    });
    result
}

#[test]
fn a_page_is_well_formed_and_needs_no_network() {
    let page = page(&[loaded_result()]);
    parsed(&page);
    for outside in [
        "http:", "https:", "//cdn", "<script", "<link", "<img", "url(", "@import",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(page.contains("width=device-width"));
}

#[test]
fn a_page_names_every_scenario_measured_or_not() {
    let page = page(&[loaded_result()]);
    let text = texts(&page);
    for scenario in scenarios::ALL {
        assert!(text.contains(scenario.name()), "{}", scenario.name());
    }
    assert!(
        text.contains("Not measured") && text.contains("latchwork bench spawn"),
        "{text}"
    );
    assert!(page.contains(r#"id="heap""#) && !page.contains(r#"id="spawn""#));
    // No results at all.
    parsed(&super::page(&[]));
}

#[test]
fn hostile_names_are_text() {
    let mut rows = vec![
        row("malloc", 10.0, Some(1.0)),
        row(HOSTILE, 900.0, Some(90.0)),
        row("latchwork heap", 5.0, Some(0.5)),
    ];
    for (index, row) in rows.iter_mut().enumerate() {
        row.params.case = Some(Variant::Pair);
        row.params.size = Some(64);
        row.extra.insert(HOSTILE.into(), 1.0);
        let durations = [(1_000 * (index as u64 + 1), 5)].into_iter().collect();
        row.durations = Distribution::new(HOSTILE, &durations);
    }
    rows.extend(rows.clone().into_iter().map(|mut row| {
        row.params.size = Some(128);
        row
    }));
    let mut result = of("heap", "malloc", rows);
    result.machine.cpu = HOSTILE.into();
    result.warnings = vec![Warning::Noisy {
        text: HOSTILE.into(),
    }];
    let page = page(&[result]);
    assert!(!page.contains("<script"), "{page}");
    assert!(texts(&page).contains(HOSTILE));
}

#[test]
fn a_loaded_machine_is_named_on_top_and_no_disturbed_row_is_drawn() {
    let quiet = {
        let mut result = loaded_result();
        result.rows.retain(|row| !row.is_disturbed(result.rounds));
        result.warnings.clear();
        result
    };
    let (loaded, quiet) = (page(&[loaded_result()]), page(&[quiet]));
    assert!(texts(&loaded).contains("Measured on a loaded machine"));
    assert!(!texts(&quiet).contains("Measured on a loaded machine"));
    let first = loaded.find("role=\"alert\"").unwrap();
    assert!(first < loaded.find("id=\"verdicts\"").unwrap());
    // The same bars and points; the table has the row, marked.
    assert_eq!(count(&loaded, "bar"), count(&quiet, "bar"));
    assert_eq!(count(&loaded, "bar"), 5);
    let dots = |page: &str| {
        let text = parsed(page);
        let document = roxmltree::Document::parse(&text).unwrap();
        let dots = document
            .descendants()
            .filter(|node| node.attribute("class") == Some("dots"));
        dots.map(|node| node.attribute("d").unwrap().matches('M').count())
            .sum::<usize>()
    };
    assert_eq!((dots(&loaded), dots(&quiet)), (5, 5));
    assert!(count(&loaded, "disturbed") >= 2, "in two tables");
    assert!(texts(&loaded).contains("! latchwork heap"));
    assert!(texts(&loaded).contains("123456"));
}

#[test]
fn a_disturbed_row_decides_nothing() {
    let rows = |ours: Row| vec![row("malloc", 10.0, Some(1.0)), ours];
    let mut lost = row("latchwork heap", 100.0, None);
    lost.params.size = Some(64);
    let mut base = rows(disturbed(lost.clone()));
    base[0].params.size = Some(64);
    assert!(verdicts(&[of("heap", "malloc", base.clone())]).is_empty());
    base[1] = lost;
    let results = [of("heap", "malloc", base)];
    let found = verdicts(&results);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].outcome(), Outcome::Worse);
}

#[test]
fn a_case_is_decided_only_beyond_the_spread() {
    let spread = |median: f64, min: f64, max: f64| Spread { median, min, max };
    for (ours, theirs, better, outcome) in [
        (
            spread(5.0, 4.0, 6.0),
            spread(10.0, 9.0, 11.0),
            Better::Lower,
            Outcome::Better,
        ),
        (
            spread(5.0, 4.0, 9.5),
            spread(10.0, 9.0, 11.0),
            Better::Lower,
            Outcome::Even,
        ),
        (
            spread(20.0, 12.0, 21.0),
            spread(10.0, 9.0, 11.0),
            Better::Lower,
            Outcome::Worse,
        ),
        (
            spread(20.0, 12.0, 21.0),
            spread(10.0, 9.0, 11.0),
            Better::Higher,
            Outcome::Better,
        ),
    ] {
        let mut rows = vec![row("malloc", 1.0, None), row("latchwork heap", 1.0, None)];
        for (row, figure) in rows.iter_mut().zip([theirs, ours]) {
            row.figure = figure;
            row.better = better;
            row.params.size = Some(16);
        }
        let results = [of("heap", "malloc", rows)];
        let found = verdicts(&results);
        assert_eq!(found[0].outcome(), outcome, "{ours:?} {theirs:?}");
        let advantage = found[0].middle().advantage;
        assert_eq!(
            advantage.median > 1.0,
            ours.median < theirs.median || better == Better::Higher
        );
    }
}

#[test]
fn the_best_of_each_side_meet_and_floors_do_not() {
    let rows = vec![
        row("glibc normal", 20.0, Some(1.0)),
        row("std", 10.0, Some(0.5)),
        row("floor two-rmw", 1.0, Some(0.05)),
        row("latchwork wait-wake", 8.0, Some(0.4)),
        row("latchwork throughput", 30.0, Some(1.5)),
    ];
    let results = [of("call-overhead", "glibc normal", rows)];
    let found = verdicts(&results);
    let duel = found[0].middle();
    assert_eq!(
        (
            duel.ours.contestant.as_str(),
            duel.theirs.contestant.as_str()
        ),
        ("latchwork wait-wake", "std")
    );
    assert!((duel.advantage.median - 1.25).abs() < 1e-9);
}

#[test]
fn a_scenario_that_could_not_run_is_named_with_its_reason() {
    let mut result = of("inversion", "glibc normal", Vec::new());
    result.warnings = vec![Warning::Skipped {
        text: "glibc PI skipped: not permitted; it needs CAP_SYS_NICE".into(),
    }];
    let text = texts(&page(&[result]));
    assert!(
        text.contains("This scenario could not run here.") && text.contains("CAP_SYS_NICE"),
        "{text}"
    );
}

#[test]
fn each_plot_has_its_data_below() {
    let page = page(&[loaded_result()]);
    let text = parsed(&page);
    let document = roxmltree::Document::parse(&text).unwrap();
    let plots = document.descendants().filter(|node| {
        let class = node.attribute("class").unwrap_or("");
        ["panel", "bars"]
            .iter()
            .any(|plot| class.split(' ').any(|one| one == *plot))
    });
    let mut seen = 0;
    for plot in plots {
        let is_data = |node: &roxmltree::Node<'_, '_>| node.attribute("class") == Some("data");
        let inside = plot.descendants().any(|node| is_data(&node));
        let after = plot.next_siblings().any(|node| is_data(&node));
        assert!(inside || after, "{:?}", plot.attribute("class"));
        seen += 1;
    }
    assert!(seen >= 4, "{seen}");
}

#[test]
fn each_question_is_about_contestants_of_its_scenario() {
    for question in QUESTIONS {
        let scenario = scenarios::ALL
            .iter()
            .find(|one| one.name() == question.scenario);
        let scenario = scenario.unwrap_or_else(|| panic!("{}", question.scenario));
        let known: BTreeSet<&str> = scenario.contestants().iter().map(|one| one.name).collect();
        for who in [&question.ours, &question.theirs] {
            if let Who::Named(names) = who {
                let is_known = names.iter().any(|name| known.contains(name));
                assert!(
                    is_known,
                    "{}: none of {names:?} is in {known:?}",
                    question.about
                );
            }
        }
    }
}

#[test]
fn kinds_of_tasks_are_compared_where_contestants_are_the_same() {
    let mut rows = Vec::new();
    for (kind, median) in [
        (Kind::Threads, 1.0),
        (Kind::Processes, 2.0),
        (Kind::Coprocs, 1.5),
    ] {
        let mut row = row("pipe", median, Some(median));
        row.params.kind = Some(kind);
        row.unit = Unit::Us;
        rows.push(row);
    }
    let results = [of("context-switch", "pipe", rows)];
    let found = verdicts(&results);
    assert_eq!(found.len(), 1);
    assert!((found[0].middle().advantage.median - 4.0 / 3.0).abs() < 1e-9);
}

/// To look at a page: LATCHWORK_PAGE names a directory with results, in which the page is written.
#[test]
fn a_page_of_given_results_is_well_formed() {
    let Some(directory) = std::env::var_os("LATCHWORK_PAGE") else {
        return;
    };
    let directory = std::path::Path::new(&directory);
    let results: Vec<ScenarioResult> = crate::report::read_results(directory)
        .unwrap()
        .into_iter()
        .map(|(_, result)| result)
        .collect();
    let page = page(&results);
    std::fs::write(directory.join("report.html"), &page).unwrap();
    parsed(&page);
}
