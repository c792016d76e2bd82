//! Findings, and their ways out of the process.

pub(crate) mod board_reader;
pub(crate) mod finding;
pub(crate) mod findings;
pub(crate) mod json;
pub(crate) mod order_file;
pub(crate) mod sink;
pub(crate) mod words;
