//! The headers as texts, for the benchmark: it measures what they add to a program, also where the repository is not.

macro_rules! header {
    ($name:literal) => {
        ($name, include_str!(concat!("../include/", $name)))
    };
}

/// `migrate.h` and what it includes in C: names relative to the directory of the headers, and contents.
#[doc(hidden)]
pub const MIGRATION: &[(&str, &str)] = &[
    header!("latchwork.h"),
    header!("latchwork/base.h"),
    header!("latchwork/generic.h"),
    header!("latchwork/migrate-generic.h"),
    header!("latchwork/mutex.h"),
    header!("latchwork/rwlock.h"),
    header!("latchwork/types.h"),
    header!("latchwork/wait.h"),
    header!("migrate.h"),
];
