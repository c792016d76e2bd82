//! Rules of the source that the compiler does not check: no cycle of imports between the files of a crate, the order of
//! the layers inside `latchwork`, which files may name what, the length of a file, the files that documents name, and the tests
//! that the contract names.
//!
//! A rule that nobody has seen fail proves nothing: each has a test in which a planted source breaks it.

mod blocks;
mod contract;
mod documents;
mod examples;
mod imports;
mod links;
mod rules;
mod tree;
