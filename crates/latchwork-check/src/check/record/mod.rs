//! What is recorded: all data of the checker, and how they are read and changed. Nothing here reports.
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | the calling thread | `own.rs`, `own/held_locks.rs`, `wait.rs` | its list of held locks and its current wait, and their publication |
//! | the board | `layout.rs`, `board.rs` | what every thread holds and wants, where any process can read it |
//! | other processes | `remote_board.rs` | texts and locks of their boards |
//! | holders | `holder.rs` | the task that holds a lock, in the lock's own memory |
//! | locks | `known.rs`, `tag.rs` | names and classes of locks; what a checked lock carries |
//! | places | `sites.rs` | source locations and names as texts on the board |
//! | conditions | `condition.rs` | the tasks that wait for one, and with which mutex |
//! | lock order | `order_graph/` | the edges between classes of locks |
//! | rules and settings | `rule.rs`, `settings.rs`, `totals.rs` | what is checked, and what was counted |
//! | basics | `bounded.rs`, `standard_error.rs`, `report_fd.rs` | texts of fixed size; the descriptors that reports are written to |

pub(crate) mod board;
pub(crate) mod bounded;
pub(crate) mod condition;
pub(crate) mod holder;
pub(crate) mod known;
pub mod layout;
pub(crate) mod order_graph;
pub(crate) mod own;
pub(crate) mod remote_board;
pub(crate) mod report_fd;
pub(crate) mod rule;
pub(crate) mod settings;
pub(crate) mod sites;

pub(crate) mod standard_error;
pub(crate) mod tag;
pub(crate) mod totals;
pub(crate) mod wait;
