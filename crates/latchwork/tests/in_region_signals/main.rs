//! Region locks in signal handlers that interrupt the taking and releasing of others.
#![cfg(not(loom))]

#[cfg(target_arch = "x86_64")]
mod at_each_instruction;
#[cfg(target_arch = "x86_64")]
#[path = "../region_form_support/mod.rs"]
mod region_form_support;
#[cfg(target_arch = "x86_64")]
#[path = "../single_step/mod.rs"]
mod single_step;

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn handlers_at_each_instruction_take_other_locks_and_fork() {
    println!("skipped: only on x86-64 can a thread trap its own instructions");
}
