//! Files of regions that somebody has written into, under inspection and attached.
#![no_main]

use latchwork_fuzz::image::{Input, run};

libfuzzer_sys::fuzz_target!(|input: Input| run(&input));
