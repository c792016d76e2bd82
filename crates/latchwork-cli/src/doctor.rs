//! `latchwork doctor`: what this system has, allows and lacks.

use crate::json;
use crate::style::{self, Align, Cell, Table};
use latchwork::probe::{Features, Finding, Group, Status};
use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    kernel: &'a str,
    libc: &'a str,
    cpus: u32,
    page_bytes: usize,
    /// Whether nothing required is missing.
    ok: bool,
    features: Vec<Feature<'a>>,
}

#[derive(Serialize)]
struct Feature<'a> {
    name: &'static str,
    group: &'static str,
    since: Option<String>,
    status: &'static str,
    value: &'a str,
    used_for: &'static str,
    fallback: &'static str,
    consequence: &'static str,
}

/// Fails if something required is missing.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> io::Result<ExitCode> {
    let features = Features::probe();
    match args.json {
        true => print_json(features, out)?,
        false => print_tables(features, out)?,
    }
    Ok(if features.obstacles().next().is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

const GROUPS: [(Group, &str, &str); 4] = [
    (Group::Required, "required", "Required"),
    (Group::Optional, "optional", "Optional"),
    (Group::Privilege, "privilege", "Privileges"),
    (Group::Limit, "limit", "Limits"),
];

fn status(finding: &Finding) -> &'static str {
    match finding.status {
        Status::Available => "available",
        Status::Missing => "missing",
        Status::NotPermitted => "not permitted",
        _ => "unknown",
    }
}

fn since(finding: &Finding) -> Option<String> {
    finding
        .since
        .map(|(major, minor)| format!("{major}.{minor}"))
}

fn print_json(features: &Features, out: &mut impl Write) -> io::Result<()> {
    let group = |finding: &Finding| {
        GROUPS
            .iter()
            .find(|group| group.0 == finding.group)
            .map_or("other", |group| group.1)
    };
    let report = Report {
        schema: "latchwork-doctor/1",
        kernel: &features.kernel,
        libc: &features.libc,
        cpus: features.cpus,
        page_bytes: features.page_bytes,
        ok: features.obstacles().next().is_none(),
        features: features
            .findings
            .iter()
            .map(|finding| Feature {
                name: finding.name,
                group: group(finding),
                since: since(finding),
                status: status(finding),
                value: &finding.value,
                used_for: finding.used_for,
                fallback: finding.fallback,
                consequence: finding.consequence(),
            })
            .collect(),
    };
    json::write_pretty(out, &report)
}

fn print_tables(features: &Features, out: &mut impl Write) -> io::Result<()> {
    let Features {
        kernel,
        libc,
        cpus,
        page_bytes,
        ..
    } = features;
    let cpus = style::count(*cpus as usize, "CPU", "CPUs");
    writeln!(
        out,
        "Linux {kernel}, {}, {libc}, {cpus}, pages of {}",
        std::env::consts::ARCH,
        style::bytes(*page_bytes as u64)
    )?;
    for (group, _, title) in GROUPS {
        writeln!(out, "\n{}", Cell::new(style::STRONG, title))?;
        let mut table = Table::new(&[("", Align::Left); 4]);
        for finding in features.of(group) {
            table.push(row(finding));
        }
        table.write(out)?;
    }
    let obstacles: Vec<_> = features.obstacles().map(|finding| finding.name).collect();
    match obstacles.as_slice() {
        [] => writeln!(
            out,
            "\n{}",
            Cell::new(
                style::GOOD,
                "This system has everything that Latchwork requires."
            )
        ),
        names => writeln!(
            out,
            "\n{}",
            Cell::new(
                style::BAD,
                format!(
                    "Latchwork cannot work on this system: it has no {}.",
                    names.join(", no ")
                )
            )
        ),
    }
}

fn row(finding: &Finding) -> Vec<Cell> {
    // A limit is neither good nor bad, unless it forbids something.
    let (style, word) = match (finding.status, finding.group) {
        (Status::Available, Group::Limit) => (style::PLAIN, "·"),
        (Status::Available, _) => (style::GOOD, "yes"),
        (Status::Missing, Group::Required) => (style::BAD, "no"),
        (Status::Missing, _) => (style::DOUBTFUL, "no"),
        (Status::NotPermitted, Group::Required) => (style::BAD, "denied"),
        (Status::NotPermitted, _) => (style::DOUBTFUL, "denied"),
        _ => (style::DOUBTFUL, "?"),
    };
    let since = match finding.status {
        Status::Missing => since(finding).map(|version| format!("since {version}")),
        _ => None,
    };
    let value = if finding.value.is_empty() {
        since.unwrap_or_default()
    } else {
        finding.value.clone()
    };
    vec![
        Cell::new(style, word),
        Cell::plain(finding.name),
        Cell::new(style::FAINT, value),
        Cell::plain(finding.consequence()),
    ]
}
