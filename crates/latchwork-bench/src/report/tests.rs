//! Reports of made-up results.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;
use crate::result::{Better, Distribution, Machine, Params, Row, SCHEMA, Spread, Unit, Warning};
use crate::scenarios;

/// A row whose rounds lie within 5 % of the median.
pub(crate) fn row(contestant: &str, median: f64, ratio: Option<f64>) -> Row {
    let spread = |median: f64| Spread {
        median,
        min: median * 0.95,
        max: median * 1.05,
    };
    Row {
        contestant: contestant.to_owned(),
        params: Params::default(),
        unit: Unit::Ns,
        better: Better::Lower,
        figure: spread(median),
        ratio: ratio.map(|ratio| match ratio {
            1.0 => Spread {
                median: 1.0,
                min: 1.0,
                max: 1.0,
            },
            ratio => spread(ratio),
        }),
        extra: BTreeMap::new(),
        each: Vec::new(),
        durations: None,
    }
}

pub(crate) fn result(base: &str, rows: Vec<Row>) -> ScenarioResult {
    ScenarioResult {
        schema: SCHEMA,
        scenario: "heap".into(),
        machine: Machine {
            cpu: "a | CPU".into(),
            cpus: 2,
            kernel: "6.18.0".into(),
            libc: "glibc 2.36".into(),
        },
        run: None,
        rounds: 5,
        base: base.into(),
        rows,
        warnings: vec![Warning::Noisy {
            text: "close <other> programs".into(),
        }],
    }
}

const HOSTILE: &str = "a<b>&\"c\"|d_e*";

fn hostile() -> ScenarioResult {
    let mut rows = vec![
        row(HOSTILE, 10.0, Some(1.0)),
        row("latchwork heap", 900.0, Some(90.0)),
    ];
    rows[1].extra.insert("published_core2_us".into(), 0.5);
    rows[1].extra.insert("page_faults".into(), 3.0);
    result(HOSTILE, rows)
}

/// A directory for one test, removed with its contents.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.path().join(file)).unwrap()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        files_in(self.path())
    }
}

/// The names of the files in a directory, sorted.
pub(crate) fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

fn open(directory: &Path) -> Result<Report, Error> {
    let heap = scenarios::ALL.iter().find(|one| one.name() == "heap");
    Report::open(directory, heap.map(std::slice::from_ref).unwrap())
}

fn texts(svg: &str) -> Vec<String> {
    let document = roxmltree::Document::parse(svg).unwrap();
    document
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "text")))
        .map(|node| node.text().unwrap().trim().to_owned())
        .collect()
}

#[test]
fn a_report_holds_all_that_was_measured() {
    let scratch = Scratch::new();
    // The directory is created, with its parents.
    let directory = scratch.path().join("some").join("where");
    let mut report = open(&directory).unwrap();
    let result = hostile();
    report
        .describe("what runs", Some("a talk, page 9"), &result)
        .unwrap();
    assert_eq!(report.path(), directory.join("report.md"));

    let text = fs::read_to_string(report.path()).unwrap();
    for said in [
        "## heap",
        "what runs",
        "It repeats a talk, page 9.",
        r"a \| CPU, 2 CPUs, Linux 6.18.0, glibc 2.36",
        "5 rounds, median and range; ratio to",
        "| latchwork heap | ns | 900 | 855 – 945 | 90.00 | 85.50 – 94.50 | 3.00 | 0.50 |",
        "| page faults | published core2 us |",
        r"- close \<other\> programs",
        "](heap.svg)",
        "](heap.json)",
    ] {
        assert!(text.contains(said), "{said} is not in:\n{text}");
    }
    let json = fs::read_to_string(directory.join("heap.json")).unwrap();
    assert_eq!(ScenarioResult::read_all(&json).unwrap(), [result]);

    let shown = texts(&fs::read_to_string(directory.join("heap.svg")).unwrap());
    for said in [
        "heap",
        "latchwork heap",
        "900",
        "× 90.0",
        "published, core2",
    ] {
        assert!(
            shown.iter().any(|text| text == said),
            "{said} is not in {shown:?}"
        );
    }
}

#[test]
fn names_are_shown_as_they_are() {
    let scratch = Scratch::new();
    open(scratch.path())
        .unwrap()
        .describe("what runs", Some("a talk, page 9"), &hostile())
        .unwrap();
    let text = scratch.read("report.md");
    assert!(
        text.contains(r#"| a\<b\>\&"c"\|d\_e\* | ns | 10.0 |"#),
        "{text}"
    );
    let shown = texts(&scratch.read("heap.svg"));
    assert!(shown.iter().any(|text| text == HOSTILE), "{shown:?}");
}

#[test]
fn every_chart_is_well_formed_and_stays_inside() {
    let net = {
        let mut row = row("net", 0.0, None);
        row.figure.min = -0.2;
        row
    };
    let cases = [
        vec![],
        vec![row("nothing", 0.0, None)],
        vec![net.clone(), row("more", 5.0, None)],
        vec![
            net,
            row("little", 0.001, None),
            row("much", 1_000_000.0, None),
        ],
        vec![row(&"long ".repeat(40), 1.0, Some(1.0))],
    ];
    for rows in cases {
        let svg = chart::draw(&result("base", rows)).unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let number = |node: &roxmltree::Node<'_, '_>, name: &str| {
            node.attribute(name)
                .map(|value| value.parse::<f64>().unwrap())
        };
        let height = number(&document.root_element(), "height").unwrap();
        for node in document.descendants() {
            for (name, most) in [("x", 900.0), ("cx", 900.0), ("y", height), ("cy", height)] {
                if let Some(place) = number(&node, name) {
                    assert!((0.0..=most).contains(&place), "{name} {place} in {svg}");
                }
            }
            for size in ["width", "height"] {
                assert!(number(&node, size).is_none_or(|size| size >= 0.0), "{svg}");
            }
        }
    }
}

/// A row whose durations are these, each of them so many times.
fn timed(contestant: &str, ratio: f64, tasks: u32, durations: &[(u64, u64)]) -> Row {
    let mut row = row(contestant, 1.0, Some(ratio));
    row.params.tasks = Some(tasks);
    let durations = durations.iter().copied().collect();
    row.durations = Distribution::new("interval", &durations);
    row
}

#[test]
fn histograms_show_the_base_in_two_cases_and_the_best_contestant() {
    let millisecond = 1_000_000;
    let rows = vec![
        timed(
            "no protocol",
            1.0,
            2,
            &[(5 * millisecond, 200), (16 * millisecond, 3)],
        ),
        timed("latchwork inherit", 0.9, 2, &[(5 * millisecond, 200)]),
        timed(
            "no protocol",
            1.0,
            3,
            &[(5 * millisecond, 90), (805 * millisecond, 1)],
        ),
        timed(
            "latchwork inherit",
            0.1,
            3,
            &[(5 * millisecond, 200), (23 * millisecond, 2)],
        ),
        timed("latchwork wait-wake", 1.1, 3, &[(900 * millisecond, 2)]),
        timed("other PI", 0.1, 3, &[(5 * millisecond, 2)]),
    ];
    let mut result = result("no protocol", rows);
    let svg = panels::draw(&result).unwrap().unwrap();
    let shown = texts(&svg);
    for said in [
        "heap: interval",
        "tasks 2",
        "tasks 3",
        "max 16 ms, p99.9 16 ms, n 203",
        "max 805 ms, p99.9 805 ms, n 91",
        "latchwork inherit",
        "max 23 ms, p99.9 23 ms, n 202",
    ] {
        assert!(shown.iter().any(|text| text == said), "{said}: {shown:?}");
    }
    assert!(!svg.contains("wait-wake") && !svg.contains("other PI"));

    let scratch = Scratch::new();
    open(scratch.path())
        .unwrap()
        .describe("what runs", Some("a talk, page 9"), &result)
        .unwrap();
    assert_eq!(scratch.read("heap-durations.svg"), svg);
    let text = scratch.read("report.md");
    assert!(text.contains("](heap-durations.svg)"), "{text}");

    // One case: no first panel. A disturbed base: nothing to compare with.
    result.rows.retain(|row| row.params.tasks == Some(3));
    let shown = texts(&panels::draw(&result).unwrap().unwrap());
    assert!(!shown.iter().any(|text| text.starts_with("max 16 ms")));
    result.rows[0].extra.insert("disturbed_rounds".into(), 5.0);
    assert_eq!(panels::draw(&result).unwrap(), None);
    let mut report = open(scratch.path()).unwrap();
    report.describe("what runs", None, &result).unwrap();
    assert_eq!(scratch.files(), ["heap.json", "heap.svg", "report.md"]);
    assert!(!scratch.read("report.md").contains("durations.svg"));
}

#[test]
fn histograms_of_few_or_extreme_durations_are_well_formed() {
    for durations in [
        &[(0, 1)][..],
        &[(u64::MAX, 1)],
        &[(3, 1), (60_000_000_000, u64::MAX / 2)],
        &[(1_000_000, 5)],
    ] {
        let long = "<long> ".repeat(40);
        let rows = vec![
            timed(&long, 1.0, 1, durations),
            timed("other", 2.0, 1, &[(10, 1)]),
        ];
        let svg = panels::draw(&result(&long, rows)).unwrap().unwrap();
        let document = roxmltree::Document::parse(&svg).unwrap();
        for node in document.descendants() {
            for (name, most) in [
                ("x", 900.0),
                ("y", 330.0),
                ("width", 900.0),
                ("height", 330.0),
            ] {
                if let Some(place) = node.attribute(name) {
                    let place: f64 = place.parse().unwrap();
                    assert!((0.0..=most).contains(&place), "{name} {place} in {svg}");
                }
            }
        }
    }
}

#[test]
fn a_second_run_overwrites_its_own_files_alone() {
    let scratch = Scratch::new();
    fs::write(scratch.path().join("notes.md"), "mine").unwrap();
    fs::write(scratch.path().join("spawn.json"), "of another run").unwrap();
    let mut first = hostile();
    open(scratch.path())
        .unwrap()
        .describe("what runs", Some("a talk, page 9"), &first)
        .unwrap();
    let files = scratch.files();
    assert_eq!(
        files,
        [
            "heap.json",
            "heap.svg",
            "notes.md",
            "report.md",
            "spawn.json"
        ]
    );

    first.rows.truncate(1);
    let mut report = open(scratch.path()).unwrap();
    // Old files stay until there is something new.
    assert!(scratch.read("report.md").contains("latchwork heap"));
    report
        .describe("what runs", Some("a talk, page 9"), &first)
        .unwrap();
    report
        .describe("what runs", Some("a talk, page 9"), &first)
        .unwrap();
    assert_eq!(scratch.files(), files);
    assert_eq!(scratch.read("notes.md"), "mine");
    assert_eq!(scratch.read("spawn.json"), "of another run");
    let text = scratch.read("report.md");
    assert!(!text.contains("latchwork heap"), "{text}");
    assert_eq!(text.matches("## heap").count(), 1);
    assert!(!scratch.read("heap.svg").contains("latchwork heap"));
    assert!(!scratch.read("heap.json").contains("latchwork heap"));
}

#[test]
fn an_unwritable_directory_is_refused_before_measuring() {
    let scratch = Scratch::new();
    let refusal = |directory: &Path| {
        let Err(error) = open(directory) else {
            panic!("{} was accepted", directory.display());
        };
        error.to_string()
    };

    let file = scratch.path().join("file");
    fs::write(&file, "mine").unwrap();
    let said = refusal(&file);
    let expected = format!(
        "cannot write {}: it is not a directory, which a report needs",
        file.display()
    );
    assert_eq!(said, expected);
    assert!(refusal(&file.join("below")).contains(&file.display().to_string()));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");

    // A file system in which not even root can create files.
    assert!(refusal(Path::new("/proc/self")).starts_with("cannot write /proc/self/heap.svg"));

    let dangling = scratch.path().join("dangling");
    symlink("/nonexistent/report", &dangling).unwrap();
    assert!(refusal(&dangling).starts_with("cannot write"));

    let taken = scratch.path().join("taken");
    fs::create_dir_all(taken.join("report.md")).unwrap();
    assert!(refusal(&taken).contains("taken/report.md"));
    assert_eq!(fs::read_dir(&taken).unwrap().count(), 1);
}

#[test]
fn rows_that_were_disturbed_are_marked_and_not_drawn() {
    let mut rows = vec![
        row("malloc", 20.0, Some(1.0)),
        row("latchwork heap", 0.05, None),
        row("other heap", 30.0, Some(1.5)),
    ];
    rows[1].extra.insert("disturbed_rounds".into(), 3.0);
    rows[2].extra.insert("disturbed_rounds".into(), 2.0);
    let mut result = result("malloc", rows);
    let chart = chart::draw(&result).unwrap();
    assert!(
        chart.contains("other heap") && chart.contains("malloc"),
        "{chart}"
    );
    assert!(!chart.contains("latchwork heap"), "{chart}");
    assert!(chart.contains("not drawn, since disturbed: 1"), "{chart}");
    let cells = table::cells(&result);
    let marked = |cell: &&Vec<String>| cell.iter().any(|cell| cell.starts_with("! "));
    let marked: Vec<_> = cells.iter().filter(marked).collect();
    assert!(
        marked.len() == 1 && marked[0][0] == "latchwork heap",
        "{cells:?}"
    );
    // All of them: a chart without bars.
    for row in &mut result.rows {
        row.extra.insert("disturbed_rounds".into(), 5.0);
    }
    let chart = chart::draw(&result).unwrap();
    assert!(chart.contains("not drawn, since disturbed: 3"), "{chart}");
    roxmltree::Document::parse(&chart).unwrap();
}
