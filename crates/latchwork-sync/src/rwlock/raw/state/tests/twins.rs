//! The negative twins of the exploration: each planted mistake is detected.

use super::*;

fn must_detect(mistake: Mistake, programs: [&[Section]; TASKS], fault: &str) {
    let scene = Scene {
        programs,
        starving: true,
        mistake: Some(mistake),
    };
    let found = scene.explore::<ReadersFirst>();
    assert!(found.is_err_and(|trace| trace.starts_with(fault)));
}

#[test]
fn twin_vacancy_without_its_kind_is_detected() {
    must_detect(Mistake::OneVacancy, THE_SAME_HALF, "no task is inside");
}

#[test]
fn twin_vacancy_that_is_hidden_is_detected() {
    let programs: [&[_]; TASKS] = [&[Reads], &[Writes], &[Writes]];
    must_detect(Mistake::NoVacancy, programs, "no task is inside");
}

#[test]
fn twin_reader_that_enters_and_forgets_others_is_detected() {
    let programs: [&[_]; TASKS] = [&[Reads], &[Reads], &[WritesAndReads]];
    must_detect(Mistake::EntrantForgetsReaders, programs, "a task sleeps");
}

#[test]
fn twin_reader_that_takes_an_id_for_readers_is_detected() {
    let programs: [&[_]; TASKS] = [&[Reads], &[Writes], &[]];
    must_detect(
        Mistake::TakesIdForReaders,
        programs,
        "a writer is not alone",
    );
}
