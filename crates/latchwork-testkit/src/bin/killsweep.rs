//! The table of the kill sweep: `killsweep LINES RESULT`.
//!
//! LINES is the file to which the tests have appended what they tried (`step::Outcome`). RESULT is written as one object
//! of JSON, and the table goes to standard output, in Markdown. `ci/killsweep.sh` runs both.

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

fn sweep(lines: &str, result: &str) -> io::Result<()> {
    let rows = rows(&std::fs::read_to_string(lines)?)?;
    if rows.is_empty() {
        return Err(io::Error::other(format!("{lines} has no lines")));
    }
    let report = json!({
        "schema": "latchwork-killsweep/1",
        "day": said("date", &["-u", "+%F"]),
        "kernel": said("uname", &["-sr"]),
        "machine": said("uname", &["-m"]),
        "version": said("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        "kills": std::env::var("LATCHWORK_KILLS").ok(),
        "rows": rows,
    });
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

/// The lines, in the order of program, kind, test and operation: that in which tests end says nothing.
fn rows(lines: &str) -> io::Result<Vec<Value>> {
    let parse = |line: &str| serde_json::from_str(line).map_err(io::Error::from);
    let mut rows: Vec<Value> = lines.lines().map(parse).collect::<Result<_, _>>()?;
    let key = |row: &Value| {
        ["program", "kind", "test", "operation"].map(|name| text(row, name).to_owned())
    };
    rows.sort_by_key(key);
    Ok(rows)
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_default()
}

fn number(row: &Value, name: &str) -> u64 {
    row[name].as_u64().unwrap_or_default()
}

fn table(rows: &[Value]) -> String {
    let mut table = String::from(
        "| program | kind | operation | test | instructions | points | killed at | asleep | double kills | outcomes |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut sums = BTreeMap::<&str, u64>::new();
    for row in rows {
        let [program, kind, operation, test] =
            ["program", "kind", "operation", "test"].map(|name| text(row, name));
        let counts = ["instructions", "points", "killed", "asleep", "double"];
        for name in counts {
            *sums.entry(name).or_default() += number(row, name);
        }
        let [instructions, points, killed, asleep, double] = counts.map(|name| number(row, name));
        let outcomes: Vec<String> = row["outcomes"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(words, count)| format!("{count} {words}"))
            .collect();
        let outcomes = outcomes.join(", ");
        table += &format!(
            "| {program} | {kind} | {operation} | {test} | {instructions} | {points} | {killed} | {asleep} | {double} | \
             {outcomes} |\n"
        );
    }
    let sum = |name: &str| sums.get(name).copied().unwrap_or_default();
    table += &format!(
        "\n{} operations, {} instructions, {} points; killed at {} of them, and {} times asleep; {} of these kills hit \
         a task that was to recover from another one.\n",
        rows.len(),
        sum("instructions"),
        sum("points"),
        sum("killed"),
        sum("asleep"),
        sum("double")
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
                   "killed": killed, "asleep": 1, "double": 2, "outcomes": {"holds": 3, "died": 1}})
            .to_string()
        };
        let rows = rows(&format!("{}\n{}\n", line("b", 4), line("a", 5))).unwrap();
        let table = table(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[2],
            "| a | k | o | t | 10 | 9 | 5 | 1 | 2 | 1 died, 3 holds |"
        );
        assert!(lines[3].starts_with("| b | k | o | t | 10 | 9 | 4 |"));
        assert_eq!(
            lines[5],
            "2 operations, 20 instructions, 18 points; killed at 9 of them, and 2 times asleep; 4 of these kills hit \
             a task that was to recover from another one."
        );
        assert!(super::rows("{\"cut").is_err());
    }
}
