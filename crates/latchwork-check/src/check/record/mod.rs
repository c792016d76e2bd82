//! What is recorded: all data of the checker, and how they are read and changed. Nothing here reports.

pub(crate) mod board;
pub(crate) mod bounded;
pub(crate) mod condition;
pub(crate) mod holder;
pub(crate) mod known;
pub mod layout;
pub(crate) mod order_graph;
pub(crate) mod own;
pub(crate) mod process;
pub(crate) mod remote_board;
pub(crate) mod rule;
pub(crate) mod settings;
pub(crate) mod sites;
pub(crate) mod standard_error;
pub(crate) mod tag;
pub(crate) mod totals;
pub(crate) mod wait;
