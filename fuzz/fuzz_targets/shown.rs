//! Files of regions that somebody has written into, as the command shows them.
#![no_main]

use latchwork_fuzz::image::{Input, show};

libfuzzer_sys::fuzz_target!(|input: Input| show(&input));
