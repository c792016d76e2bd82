//! Helpers for the tests of Latchwork.
