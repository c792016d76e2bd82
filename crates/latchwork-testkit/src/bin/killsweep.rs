//! The table of the kill sweep: `killsweep LINES RESULT`.
//!
//! LINES is the file to which the tests have appended what they tried (`step::Outcome`). RESULT is one object of JSON: if it
//! exists, the counts and seeds are added to it. The table of all goes to standard output, in Markdown. `ci/killsweep.sh`
//! and `ci/kernels.sh` run both; the latter says in `LATCHWORK_KERNEL` on which kernel the tests ran.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [lines, result] = &arguments[..] else {
        eprintln!("usage: killsweep LINES RESULT");
        return ExitCode::from(2);
    };
    match sweep(lines, result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("killsweep: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The schema of RESULT. Files of other schemas are replaced.
const SCHEMA: &str = "latchwork-killsweep/2";

fn sweep(lines: &str, result: &str) -> io::Result<()> {
    let new = parsed(&std::fs::read_to_string(lines)?)?;
    if new.is_empty() {
        return Err(io::Error::other(format!("{lines} has no lines")));
    }
    let before = std::fs::read_to_string(result).unwrap_or_default();
    let before: Value = serde_json::from_str(&before).unwrap_or_default();
    let is_known = before["schema"] == SCHEMA;
    let list = |name: &str| {
        let list = before[name].as_array().filter(|_| is_known);
        list.cloned().unwrap_or_default()
    };
    let mut runs = list("runs");
    runs.push(json!({
        "day": said("date", &["-u", "+%F"]),
        "kernel": std::env::var("LATCHWORK_KERNEL").ok().or_else(|| said("uname", &["-sr"])),
        "machine": said("uname", &["-m"]),
        "version": said("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        "points": std::env::var("LATCHWORK_POINTS").ok(),
        "sweeps": std::env::var("LATCHWORK_SWEEPS").ok(),
        "killed": sum(&new, "killed"),
        "double": sum(&new, "double"),
        "apart": sum(&new, "apart"),
    }));
    let rows = merged(list("rows").into_iter().chain(new));
    let report = json!({ "schema": SCHEMA, "runs": runs, "rows": rows });
    let text = serde_json::to_string_pretty(&report)? + "\n";
    std::fs::write(result, text)?;
    io::stdout().write_all(table(&rows).as_bytes())
}

/// What a program says, in one line.
fn said(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success()).then(|| text.trim().to_owned())
}

fn parsed(lines: &str) -> io::Result<Vec<Value>> {
    let parse = |line: &str| serde_json::from_str(line).map_err(io::Error::from);
    lines.lines().map(parse).collect()
}

/// What is added up; of the instructions and points of an operation, which differ from run to run, the most count.
const SUMS: [&str; 4] = ["killed", "asleep", "double", "apart"];
const MOST: [&str; 2] = ["instructions", "points"];

/// One row for each operation, in the order of program, kind, test and operation, with the counts and seeds of all lines.
fn merged(lines: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut rows = BTreeMap::<[String; 4], Value>::new();
    for line in lines {
        let key = ["program", "kind", "test", "operation"].map(|name| text(&line, name).to_owned());
        // A row of the file has "seeds", a line of a test has "seed".
        let mut seeds = line["seeds"].as_array().cloned().unwrap_or_default();
        seeds.extend(line.get("seed").cloned());
        let row = rows.entry(key).or_insert_with(|| {
            let mut row = line.clone();
            for name in SUMS.iter().chain(&MOST) {
                row[name] = 0.into();
            }
            row["outcomes"] = json!({});
            row["seeds"] = json!([]);
            row.as_object_mut().map(|row| row.remove("seed"));
            row
        });
        for name in SUMS {
            row[name] = (number(row, name) + number(&line, name)).into();
        }
        for name in MOST {
            row[name] = number(row, name).max(number(&line, name)).into();
        }
        for (words, count) in line["outcomes"].as_object().into_iter().flatten() {
            let before = row["outcomes"][words].as_u64().unwrap_or_default();
            row["outcomes"][words] = (before + count.as_u64().unwrap_or_default()).into();
        }
        if let Some(all) = row["seeds"].as_array_mut() {
            all.extend(seeds);
        }
    }
    rows.into_values().collect()
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_default()
}

fn sum(rows: &[Value], name: &str) -> u64 {
    rows.iter().map(|row| number(row, name)).sum()
}

fn table(rows: &[Value]) -> String {
    let mut table = String::from(
        "| program | kind | operation | test | instructions | points | killed | asleep | double kills | in their own PID namespaces | \
         outcomes |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let [program, kind, operation, test] =
            ["program", "kind", "operation", "test"].map(|name| text(row, name));
        let counts = [
            "instructions",
            "points",
            "killed",
            "asleep",
            "double",
            "apart",
        ];
        let [instructions, points, killed, asleep, double, apart] =
            counts.map(|name| number(row, name));
        let outcomes: Vec<String> = row["outcomes"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(words, count)| format!("{count} {words}"))
            .collect();
        let outcomes = outcomes.join(", ");
        table += &format!(
            "| {program} | {kind} | {operation} | {test} | {instructions} | {points} | {killed} | {asleep} | {double} | \
             {apart} | {outcomes} |\n"
        );
    }
    let sum = |name| sum(rows, name);
    table += &format!(
        "\n{} operations, {} instructions, {} points; killed {} times at an instruction, {} times asleep, and {} times as \
         they recovered from another kill; {} of the tasks that were not recovering were in PID namespaces of their own.\n",
        rows.len(),
        sum("instructions"),
        sum("points"),
        sum("killed"),
        sum("asleep"),
        sum("double"),
        sum("apart")
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_a_row_for_each_line_and_their_sums() {
        let line = |program: &str, killed: u64| {
            json!({"program": program, "kind": "k", "test": "t", "operation": "o", "instructions": 10, "points": 9,
                   "killed": killed, "asleep": 1, "double": 2, "apart": 3, "outcomes": {"holds": 3, "died": 1}})
            .to_string()
        };
        let rows = merged(
            parsed(&format!("{}\n{}\n", line("b", 4), line("a", 5)))
                .unwrap()
                .into_iter(),
        );
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[2],
            "| a | k | o | t | 10 | 9 | 5 | 1 | 2 | 3 | 1 died, 3 holds |"
        );
        assert!(lines[3].starts_with("| b | k | o | t | 10 | 9 | 4 |"));
        assert_eq!(
            lines[5],
            "2 operations, 20 instructions, 18 points; killed 9 times at an instruction, 2 times asleep, and 4 times as \
             they recovered from another kill; 6 of the tasks that were not recovering were in PID namespaces of their own."
        );
        assert!(parsed("{\"cut").is_err());
    }

    #[test]
    fn a_second_run_adds_to_the_counts_and_the_seeds_of_the_first() {
        let line = |seed: &str, outcome: &str| {
            json!({"program": "a", "operation": "o", "instructions": 10, "points": 9, "killed": 2, "asleep": 0, "double": 1,
                   "seed": seed, "outcomes": {outcome: 2}})
        };
        let first = merged([line("0x1", "holds")].into_iter());
        assert_eq!(first[0]["seeds"], json!(["0x1"]));
        let more = [line("0x2", "holds"), line("0x3", "died")];
        let all = merged(first.into_iter().chain(more));
        assert_eq!(all.len(), 1);
        assert_eq!(
            [&all[0]["killed"], &all[0]["points"], &all[0]["double"]],
            [6, 9, 3]
        );
        assert_eq!(all[0]["outcomes"], json!({"holds": 4, "died": 2}));
        assert_eq!(all[0]["seeds"], json!(["0x1", "0x2", "0x3"]));
    }
}
