//! Models of the reader/writer lock whose parts are region locks, with lives as a region's task table has them.
#![cfg(loom)]
#![allow(unsafe_code)]

#[path = "loom_robust_rwlock_support/mod.rs"]
mod support;

use latchwork::model::Scene;
use latchwork::mutex::InRegion;
use support::{
    Kind, Shared, a_reader_and_a_writer, a_writer_dies_at_the_gate, at_every_step,
    one_writes_while_it_reads, three_writers,
};

type Two = Shared<2, InRegion>;

models_of! {
    InRegion: in_region, naps end: false;
    readers_and_writers_get_in_and_a_writer_is_alone
    one_more_reader_than_there_are_seats_waits_for_one
    a_waiter_that_gives_up_leaves_no_task_asleep
    a_writer_gets_in_whenever_a_reader_dies
    a_reader_gets_in_whenever_a_reader_dies_in_the_last_seat
    a_reader_gets_in_whenever_a_writer_dies
    a_writer_gets_in_whenever_a_writer_dies
    two_survivors_get_in_whenever_a_task_dies
    writing_while_reading_never_waits
    a_successor_in_its_slot_is_not_taken_for_a_dead_task
    ;
    twin_reader_that_waits_as_a_writer_is_detected: RobustRwLockForgetsOwnSeat, "deadlock", one_writes_while_it_reads::<InRegion>;
    twin_reader_that_checks_once_is_detected: RobustRwLockChecksOnce, "Causality violation", a_reader_and_a_writer::<InRegion>;
    twin_reader_whose_check_overtakes_its_seat_is_detected: RobustRwLockReaderUnordered, "Causality violation", a_reader_and_a_writer::<InRegion>;
    twin_writer_whose_check_overtakes_its_gate_is_detected: RobustRwLockWriterUnordered, "Causality violation", a_reader_and_a_writer::<InRegion>;
    twin_writer_that_does_not_record_that_it_is_inside_is_detected: RobustRwLockForgetsWriting, "nobody said so", |scene| at_every_step(scene, 2, Two::write, &[Two::read]);
    twin_death_that_is_hidden_is_detected: RobustRwLockHidesDeath, "nobody said so", |scene| at_every_step(scene, 2, Two::write, &[Two::write]);
    twin_death_that_tore_nothing_and_is_reported_is_detected: RobustRwLockReportsAllDeaths, "a report of a death that changed nothing", |scene| at_every_step(scene, 2, Two::write, &[Two::read]);
    twin_waiter_that_misses_deaths_is_detected: RegionSleeperMissesDeaths, "deadlock", |scene| at_every_step(scene, 2, Two::read, &[Two::write]);
    twin_successor_taken_for_the_dead_task_is_detected: RegionIgnoresGenerations, "deadlock", support::a_successor_reads_and_writes::<InRegion>;
    twin_gate_that_a_dead_waiter_keeps_is_detected: RegionGateKeptByDead, "deadlock", a_writer_dies_at_the_gate::<InRegion>;
    twin_gate_whose_hand_off_wakes_nobody_is_detected: RegionHandOffWakesNobody, "deadlock", a_writer_dies_at_the_gate::<InRegion>;
    twin_gate_that_wakes_nobody_is_detected: RegionGateWakesNobody, "deadlock", three_writers::<InRegion>;
}
