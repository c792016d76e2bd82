//! Rules of the source that the compiler does not check: no cycle of imports between the files of a crate, the order of
//! the layers inside `latchwork`, which files may name what, and the length of a file.
//!
//! A rule that nobody has seen fail proves nothing: each has a test in which a planted source breaks it.

mod imports;
mod rules;
mod tree;
