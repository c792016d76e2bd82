//! Test bodies that several crates run: what every lock must do, whichever language it is used from.
//!
//! A crate implements `Contestant` for its locks, and for another library's, which shows that the body is right; a macro
//! makes the tests.

pub mod condvar;
pub mod kill;
pub mod mutex;
pub mod rwlock;
