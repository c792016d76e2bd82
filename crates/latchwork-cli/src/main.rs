//! The `latchwork` command.

fn main() {}
