//! The C interface with arbitrary arguments.
#![no_main]

use latchwork_fuzz::c::{Input, run};

libfuzzer_sys::fuzz_target!(|input: Input| run(input));
