//! Findings, and their ways out of the process.
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | findings | `finding.rs`, `findings.rs` | one value for each; one function that makes it for each kind |
//! | names | `words.rs` | addresses, sites and tasks as text |
//! | formats | `text.rs`, `json.rs` | for people and programs |
//! | destinations | `sink.rs` | the reporter, standard error, the JSON file, the board; suppressions |
//! | files | `order_file.rs` | the lock order, for `latchwork order` |
//! | tools | `board_reader.rs` | the board of a process, as another process reads it |

pub(crate) mod board_reader;
pub(crate) mod finding;
pub(crate) mod findings;
pub(crate) mod json;
pub(crate) mod order_file;
pub(crate) mod sink;
pub(crate) mod text;
pub(crate) mod words;
