//! Planted faults, and harmless programs that resemble faults: each real fault is reported, with its tasks, locks and
//! places, and nothing else is.
//!
//! Each row of the table is a program of its own, in a process that is killed after its report, or that ends by itself.

mod bounds;
mod conditions;
mod containers;
mod elsewhere;
mod evidence;
mod growth;
mod harmless;
mod inversions;
mod kinds;
mod live;
mod misuse;
mod objects;
mod order;
mod owned;
mod processes;
mod report_stack;
mod run;
mod unsignallable;

use run::Row;

fn table() -> Vec<Row> {
    let parts = [
        misuse::rows(),
        live::rows(),
        order::rows(),
        evidence::rows(),
        conditions::rows(),
        processes::rows(),
        elsewhere::rows(),
        owned::rows(),
        objects::rows(),
        inversions::rows(),
        unsignallable::rows(),
        containers::rows(),
        harmless::rows(),
        bounds::rows(),
    ];
    parts.into_iter().flatten().collect()
}

#[test]
fn every_planted_fault_is_reported_and_no_harmless_program() {
    let table = table();
    let only = std::env::var("LATCHWORK_FAULT").ok();
    let rows = || {
        table
            .iter()
            .filter(|row| only.as_ref().is_none_or(|only| row.name.contains(only)))
    };
    let mut wrong = Vec::new();
    for row in rows() {
        if let Err(why) = row.run() {
            println!("{}: {why}", row.name);
            wrong.push(&row.name);
        }
    }
    let faults = rows().filter(|row| row.is_fault()).count();
    let harmless = rows().filter(|row| !row.is_fault()).count();
    println!("{faults} faults, {harmless} harmless programs");
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(only.is_some() || faults >= 60 && harmless >= 20);
}
