//! The report as one page of HTML that needs no network: what Latchwork is best at, what it costs, and where it loses;
//! then each scenario with its plots, and the published figures beside ours.
//!
//! Plots are inline SVG and boxes, with places in per cent: the page fits any width. Colours are variables of
//! `page.css`, for light and dark. Texts are escaped by maud. A row that other programs disturbed is in no plot and in
//! no verdict, only in the tables, with a mark.

mod bars;
mod curves;
mod histograms;
mod questions;
mod scale;
mod scaling;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::BTreeSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::result::{ScenarioResult, Warning};
use crate::scenarios::{self, Scenario};
use crate::table::{headline, meaning, origin};
use tables::inline;

const STYLE: &str = include_str!("page.css");

/// The page on these results.
pub(super) fn page(results: &[ScenarioResult]) -> String {
    let verdicts = verdict::verdicts(results);
    let known: Vec<(&'static dyn Scenario, &ScenarioResult)> = scenarios::ALL
        .iter()
        .filter_map(|scenario| {
            let mut results = results.iter();
            Some((
                *scenario,
                results.find(|result| result.scenario == scenario.name())?,
            ))
        })
        .collect();
    let is_missing =
        |scenario: &&&dyn Scenario| !known.iter().any(|(one, _)| one.name() == scenario.name());
    let missing: Vec<_> = scenarios::ALL.iter().filter(is_missing).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Latchwork: benchmark report" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "Latchwork, measured" }
                    (machine(results))
                }
                (loaded(results))
                main {
                    (summary::cards(&verdicts, results))
                    (summary::table(&verdicts, results))
                    nav aria-label="Scenarios" {
                        @for (scenario, _) in &known { a href=(format!("#{}", scenario.name())) { (scenario.name()) } }
                        a href="#scale" { "scale" }
                        a href="#published" { "published figures" }
                    }
                    @for (scenario, result) in &known { (section(*scenario, result)) }
                    (scaling::section(results))
                    section id="published" {
                        h2 { "Beside the published figures" }
                        p.note {
                            "Published figures stand above ours. × is a figure divided by that of the first column in the \
                             same row: compare these factors, not the figures, since the machines differ. ! marks a figure \
                             that other programs disturbed."
                        }
                        (tables::published(results))
                    }
                    @if !missing.is_empty() {
                        section id="missing" {
                            h2 { "Not measured" }
                            ul { @for scenario in &missing {
                                li { b { (scenario.name()) } ": " (inline(scenario.about())) ". "
                                    code { "latchwork bench " (scenario.name()) } }
                            } }
                        }
                    }
                }
                footer { (footer(results)) }
            }
        }
    };
    page.into_string()
}

/// The machine and the runs: one line if all results have the same.
fn machine(results: &[ScenarioResult]) -> Markup {
    let machines: BTreeSet<String> = results.iter().map(headline).collect();
    let runs = || results.iter().filter_map(|result| result.run.as_ref());
    let dates: BTreeSet<&str> = runs().map(|run| run.date.as_str()).collect();
    let versions: BTreeSet<&str> = runs().map(|run| run.version.as_str()).collect();
    let quick = runs().filter(|run| run.quick).count();
    let list = |words: BTreeSet<&str>| words.into_iter().collect::<Vec<_>>().join(", ");
    html! {
        @for machine in &machines { p.machine { (machine) } }
        p.note {
            (results.len()) " scenarios"
            @if !dates.is_empty() { ", measured on " (list(dates)) " with version " (list(versions)) }
            @if quick > 0 {
                @if quick == results.len() { ". Quick runs" } @else { ". Quick runs in " (quick) " of them" }
                ": fewer cases, short samples"
            }
            @if machines.len() > 1 { ". Results of " (machines.len()) " machines: each scenario names its own" }
            "."
        }
    }
}

/// A warning on top, if other programs were running.
fn loaded(results: &[ScenarioResult]) -> Markup {
    let rows: usize = results.iter().map(|result| result.rows.len()).sum();
    let disturbed: usize = results
        .iter()
        .map(|result| {
            let marked = result
                .rows
                .iter()
                .filter(|row| row.is_disturbed(result.rounds));
            marked.count()
        })
        .sum();
    let has_load = |result: &&ScenarioResult| {
        let mut warnings = result.warnings.iter();
        warnings.any(|warning| matches!(warning, Warning::Load { .. }))
    };
    let busy: Vec<&str> = results
        .iter()
        .filter(has_load)
        .map(|result| result.scenario.as_str())
        .collect();
    let unoptimised = results.iter().any(|result| {
        let mut warnings = result.warnings.iter();
        warnings.any(|warning| matches!(warning, Warning::Unoptimised { .. }))
    });
    html! {
        @if !busy.is_empty() || disturbed > 0 {
            div.alert role="alert" {
                b { "Measured on a loaded machine. " }
                "Other programs were running during " (busy.len()) " of " (results.len()) " scenarios. "
                @if disturbed > 0 {
                    (disturbed) " of " (rows) " rows stayed disturbed: they are neither drawn nor compared. "
                } @else {
                    "Each of the " (rows) " rows was measured in enough undisturbed rounds, or cannot be checked. "
                }
                "End other programs and measure again before you rely on these figures."
            }
        }
        @if unoptimised {
            div.alert role="alert" { b { "Built without optimisation." } " These figures mean nothing: build with --release." }
        }
    }
}

fn section(scenario: &dyn Scenario, result: &ScenarioResult) -> Markup {
    let source = scenario.source().map(|source| source.to_string());
    html! {
        section.scenario id=(result.scenario) {
            h2 { (result.scenario) }
            p { (inline(scenario.about())) "." }
            p.note {
                "It " (inline(&origin(source.as_deref()))) ". " (meaning(result)) ". " (headline(result)) "."
                @if let Some(run) = &result.run {
                    " Measured on " (run.date) ": " code { (run.command) }
                }
            }
            @if result.rows.is_empty() {
                p.none { b { "This scenario could not run here." } @if result.warnings.is_empty() { " It has no rows." } }
                ul.warnings { @for warning in &result.warnings { li { (warning.text()) } } }
            } @else {
                (curves::curves(result))
                (histograms::histograms(result))
                h3 { "Ratios" }
                p.note { "A bar ends at the median of the rounds; the whisker goes from the least round to the greatest." }
                (legend())
                (bars::bars(result))
                (tables::complete(result))
                @if !result.warnings.is_empty() {
                    details.data { summary { "Warnings of the run: " (result.warnings.len()) }
                        ul.warnings { @for warning in &result.warnings { li { (warning.text()) } } }
                    }
                }
            }
        }
    }
}

fn legend() -> Markup {
    html! {
        ul.legend.sides {
            li { i.ours {} "Latchwork" } li { i.base {} "base of the ratios" } li { i.other {} "others" } li { i.floor {} "physical floor" }
        }
    }
}

fn footer(results: &[ScenarioResult]) -> Markup {
    let commands: Vec<&str> = results
        .iter()
        .filter_map(|result| result.run.as_ref())
        .map(|run| run.command.as_str())
        .collect();
    html! {
        "Made by latchwork bench from the results (JSON) beside this page. "
        @if !commands.is_empty() {
            details { summary { "The commands that measure these results again" }
                pre { @for command in &commands { (command) "\n" } }
            }
        }
    }
}
