//! The recorded lock order: a graph whose nodes are classes of locks, or single locks, and whose edges say which was
//! wanted while which was held. `detect/order.rs` describes it, and searches it.

pub(crate) mod graph;
pub(crate) mod level;
mod recycle;
mod store;
