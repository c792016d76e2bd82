//! The C interface with arbitrary arguments: ids, sizes and options of `classic.h`, and the functions of `lw_` with null
//! pointers where the manual calls them an error.

mod classic;
mod objects;

use arbitrary::Arbitrary;

// The functions below are of this crate, although no name of it is used.
extern crate latchwork_c;

/// One input.
#[derive(Arbitrary, Debug)]
pub enum Input {
    Classic(Vec<classic::Step>),
    Objects(Vec<objects::Step>),
}

/// Carries the calls out. What is wrong with their arguments is a status.
pub fn run(input: Input) {
    match input {
        Input::Classic(steps) => classic::run(steps),
        Input::Objects(steps) => objects::run(steps),
    }
}
