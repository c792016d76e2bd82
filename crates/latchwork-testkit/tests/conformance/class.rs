//! The model's classes of semaphores.

use latchwork_testkit::conformance::semaphores::attribute;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Counting,
    Simple,
    Binary,
    Inherit,
    Ceiling,
    MrsP,
}

/// The class that attributes ask for; `None` if they contradict each other.
pub fn class_of(attributes: u32) -> Option<Class> {
    use attribute::{BINARY, CEILING, INHERIT, MRSP, PRIORITY, SIMPLE_BINARY};
    let needs_priority = match attributes & !PRIORITY {
        0 => return Some(Class::Counting),
        SIMPLE_BINARY => return Some(Class::Simple),
        BINARY => return Some(Class::Binary),
        kind if kind == BINARY | INHERIT => Class::Inherit,
        kind if kind == BINARY | CEILING => Class::Ceiling,
        kind if kind == BINARY | MRSP => Class::MrsP,
        _ => return None,
    };
    (attributes & PRIORITY != 0).then_some(needs_priority)
}
