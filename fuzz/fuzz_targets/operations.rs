//! Sequences of operations in one process, and a reference model.
#![no_main]

use latchwork_fuzz::operations::{Input, run};

libfuzzer_sys::fuzz_target!(|input: Input| run(input));
