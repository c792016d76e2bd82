//! Pages of made-up results, and those of the documentation.

use std::fs;
use std::path::Path;

use super::super::beside::{about, exact};
use super::super::tests::{Scratch, files_in, result, row};
use super::super::{Report, read_results};
use super::*;
use crate::Error;
use crate::published::{GENERIC_MUTEX, NPTL};
use crate::result::{Run, Unit, Variant};

/// A row of `inversion`.
fn interval(contestant: &str, case: Variant, milliseconds: f64) -> Row {
    let mut row = row(contestant, milliseconds * 1000.0, None);
    row.unit = Unit::Us;
    row.params.case = Some(case);
    row
}

fn inversion() -> ScenarioResult {
    let rows = vec![
        interval("glibc normal", Variant::Undisturbed, 6.0),
        interval("glibc normal", Variant::Disturbed, 66.0),
        interval("glibc PI", Variant::Disturbed, 9.0),
        interval("latchwork wait-wake", Variant::Undisturbed, 6.0),
        interval("latchwork wait-wake", Variant::Disturbed, 60.0),
        interval("latchwork inherit", Variant::Disturbed, 9.0),
    ];
    ScenarioResult {
        scenario: "inversion".into(),
        run: Some(Run {
            date: "2026-01-31".into(),
            command: "latchwork bench inversion --quick".into(),
            version: "0.1.0".into(),
            class: "SCHED_OTHER".into(),
            quick: true,
            virtual_machine: true,
            seconds: None,
        }),
        ..result("glibc normal", rows)
    }
}

fn assert_says(text: &str, said: &[&str]) {
    for said in said {
        assert!(text.contains(said), "{said} is not in:\n{text}");
    }
}

#[test]
fn a_page_has_published_figures_ours_and_their_factors() {
    let text = page(&NPTL, &[inversion()]);
    assert_says(
        &text,
        &[
            "# Recent new features in NPTL\n\nH. Kumagai, CELF Technical Jamboree 16, 2007. ",
            "## Priority inversion\n\n*There* (pages 9 and 10): ",
            "| longest interval, µs | the talk | 16,000 | 805,000, × 50.3 | 23,000, × 1.44 |\n",
            "|  | **here**: glibc: normal, PI | 6,000 (5,700 – 6,300) | 66,000 (62,700 – 69,300), × 11.0 | 9,000 \
             (8,550 – 9,450), × 1.50 |\n",
            "| 60,000 (57,000 – 63,000), × 10.0 | 9,000 (8,550 – 9,450), × 1.50 |\n",
            "What differs, and why:\n\n- ",
            "virtual machine, Linux 6.18.0, glibc 2.36, SCHED\\_OTHER. 5 rounds; the [results](inversion.json). \
             Measured on 2026-01-31 by Latchwork 0.1.0, with `latchwork bench inversion --quick`. It was a quick run",
            "- close \\<other\\> programs\n",
            "](inversion.svg)",
            "## Not repeated\n\n- pages 12 and 13: ",
        ],
    );
    assert_says(
        &text,
        &["No other program was seen to disturb the 6 rows of which that can be told."],
    );
    // It was not measured, but its published figures are there.
    assert_says(
        &text,
        &[
            "*Here*: not measured in this run; `latchwork bench call-overhead` does.",
            "| lock and unlock, µs | the talk | 1.8 | 4.3, × 2.39 |\n",
            "| lock and unlock, ns | the talk | × 1 | × 1.5 | × 5 | × 15 |\n",
        ],
    );
    assert!(!text.contains("](call-overhead.svg)") && !text.contains("durations.svg"));
    // In the document's order.
    let at = |title: &str| text.find(title).unwrap();
    assert!(at("## Priority inversion") < at("## The cost of a free mutex"));
    assert!(at("## Waiting and waking between") < at("## Messages between"));
}

#[test]
fn disturbed_figures_are_marked_and_have_no_factor() {
    let mut result = inversion();
    result.rows[1].extra.insert("disturbed_rounds".into(), 3.0);
    result.rows[3].extra.insert("disturbed_rounds".into(), 5.0);
    result.rows[5].extra.insert("disturbed_rounds".into(), 1.0);
    let text = page(&NPTL, &[result]);
    assert_says(
        &text,
        &[
            "| ! 66,000 (62,700 – 69,300) | 9,000 (8,550 – 9,450), × 1.50 |\n",
            // Not even where only the base was disturbed.
            "| ! 6,000 (5,700 – 6,300) | 60,000 (57,000 – 63,000) | 9,000 (8,550 – 9,450) |\n",
            "Of 6 rows of which that can be told, other programs disturbed 3 in some round, and 2 in half of the rounds or \
             more.",
        ],
    );
}

#[test]
fn sizes_have_no_range_and_only_documents_with_results_are_listed() {
    let size = |contestant: &str, bytes: f64| {
        let mut row = row(contestant, bytes, None);
        row.unit = Unit::Bytes;
        row.params.case = Some(Variant::Size);
        row
    };
    let rows = vec![size("semaphores in C", 8.0), size("mutexes in C", 4.0)];
    let result = ScenarioResult {
        scenario: "footprint".into(),
        ..result("glibc normal", rows)
    };
    let results = [result];
    let text = page(&GENERIC_MUTEX, &results);
    assert_says(
        &text,
        &[
            "| the object, bytes | kernel | 20 | 16, × 0.80 | – |\n",
            "|  | **here**: `migrate.h` | 8 | 4, × 0.50 | – |\n",
            "*Here*: the run of \"Sizes\".\n",
        ],
    );
    // A row of which no cell, or the first alone, was measured is left out.
    assert!(!text.contains("POSIX semaphore, wait-wake"), "{text}");
    let titles: Vec<_> = documents(&results).iter().map(|one| one.title).collect();
    assert_eq!(titles, ["generic mutex subsystem"]);
}

#[test]
fn numbers_are_as_long_as_they_mean_something() {
    for (value, said) in [
        (49_065_154.0, "49,065,154"),
        (1000.0, "1,000"),
        (804.6, "804.6"),
        (20.0, "20"),
        (1.8, "1.8"),
        (0.000_437, "0.0004"),
        (0.0, "0"),
    ] {
        assert_eq!(exact(value), said);
    }
    for (value, said) in [
        (1_234_567.8, "1,234,568"),
        (-1234.0, "-1,234"),
        (123.4, "123"),
        (1.234, "1.23"),
        (16.0, "16"),
        (0.012_34, "0.0123"),
        (-0.05, "-0.05"),
        (0.0, "0"),
    ] {
        assert_eq!(about(value), said);
    }
}

/// The report on the results in `directory`, in a directory of its own.
fn again(directory: &Path) -> Result<Scratch, Error> {
    let results = read_results(directory)?;
    let scratch = Scratch::new();
    let found: Vec<&dyn Scenario> = results.iter().map(|(scenario, _)| *scenario).collect();
    let mut report = Report::open(scratch.path(), &found)?;
    for (scenario, result) in results {
        report.add(scenario, result)?;
    }
    Ok(scratch)
}

#[test]
fn a_report_is_made_again_from_its_results() {
    let first = Scratch::new();
    fs::write(first.path().join("inversion.json"), inversion().to_json()).unwrap();
    fs::write(first.path().join("other.json"), "of another program").unwrap();
    let second = again(first.path()).unwrap();
    let files = [
        "inversion.json",
        "inversion.svg",
        "nptl.md",
        "report.html",
        "report.md",
    ];
    assert_eq!(second.files(), files);
    assert_eq!(second.read("nptl.md"), page(&NPTL, &[inversion()]));
    let text = second.read("report.md");
    assert_says(&text, &["[Recent new features in NPTL](nptl.md)"]);

    fs::write(first.path().join("heap.json"), inversion().to_json()).unwrap();
    let error = again(first.path()).err().unwrap().to_string();
    assert!(
        error.ends_with("heap.json: it has no result of heap"),
        "{error}"
    );
    let empty = Scratch::new();
    let error = again(empty.path()).err().unwrap();
    assert!(matches!(error, Error::NoResults { .. }), "{error}");
}

/// `latchwork bench report docs/results` writes them.
#[test]
fn the_pages_of_the_documentation_are_made_from_its_results() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
    let made = again(&directory).unwrap();
    let hint = "`latchwork bench report docs/results` writes it";
    // The page of HTML is large, and not kept in the repository.
    let kept = |files: Vec<String>| -> Vec<String> {
        let is_kept = |file: &String| file != "report.html";
        files.into_iter().filter(is_kept).collect()
    };
    assert_eq!(kept(made.files()), kept(files_in(&directory)), "{hint}");
    for file in kept(made.files()) {
        let found = fs::read_to_string(directory.join(&file)).unwrap();
        assert!(
            found == made.read(&file),
            "docs/results/{file} is not up to date: {hint}"
        );
    }
    let contents = fs::read_to_string(directory.join("../results.md")).unwrap();
    for document in published::ALL {
        let link = format!("](results/{}.md)", document.page.unwrap());
        assert!(
            contents.contains(&link),
            "docs/results.md has no link to {}",
            document.title
        );
        assert!(
            made.files()
                .contains(&format!("{}.md", document.page.unwrap()))
        );
    }
}
