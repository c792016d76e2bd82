//! The sentences of the pages' descriptions, and the places in the test programs that show them.
//!
//! A program cites a sentence, or the beginning of it, before it shows that it is so:
//!
//! ```c
//! /* lw_queue(3) says: The handle still has to be closed */
//! CHECK_IS(lw_queue_close(queue), 0);
//! ```

use super::Page;
use super::errors::{lines_of_programs, plain};

/// The pages of which each sentence is shown, or listed.
pub const SHOWN: [&str; 5] = ["lw_cond", "lw_once", "lw_queue", "lw_rwlock", "lw_sem"];

/// Sentences that these programs do not show: pages, words, and why.
pub const NOT_SHOWN: [(&str, &str, &str); 25] = [
    ("lw_cond", "Call the wait in a loop", "a demand"),
    (
        "lw_cond",
        "The names in the synopsis are generic",
        "sentences.c, for each kind",
    ),
    (
        "lw_cond",
        "would wake one waiter, which might have another",
        "it may",
    ),
    (
        "lw_cond",
        "does not wake all waiters at once",
        "condvar_release.rs",
    ),
    (
        "lw_cond",
        "It wakes each waiter at about the time",
        "condvar_release.rs",
    ),
    (
        "lw_once",
        "Each of these processes passes the address",
        "a demand",
    ),
    (
        "lw_queue",
        "There are two kinds of queues",
        "the next ones say which",
    ),
    ("lw_queue", "(A task is a thread.)", "a definition"),
    (
        "lw_queue",
        "The sections below describe functions",
        "it says nothing else",
    ),
    (
        "lw_queue",
        "Do not read or close the descriptor",
        "a demand",
    ),
    (
        "lw_queue",
        "lw_queue_create() makes the queue of this name",
        "all do so",
    ),
    (
        "lw_queue",
        "Any task may be killed at any instruction",
        "the kill sweeps",
    ),
    (
        "lw_queue",
        "If the sender of a message is killed",
        "the kill sweeps",
    ),
    (
        "lw_queue",
        "If the caller is killed, the first few",
        "the kill sweeps",
    ),
    (
        "lw_queue",
        "It can be larger than capacity after",
        "Rust's tests of deaths",
    ),
    (
        "lw_rwlock",
        "lw_rwlock_consistent() and lw_rwlock_unlock_inconsistent() are",
        "manual.rs",
    ),
    (
        "lw_rwlock",
        "lw_rwlock_init_hand_off() is for the first",
        "manual.rs",
    ),
    (
        "lw_rwlock",
        "A writer would wait for itself",
        "it would hang",
    ),
    (
        "lw_rwlock",
        "is handed off to a task that has waited for 5 ms, as the other",
        "rwlock.rs",
    ),
    (
        "lw_rwlock",
        "The time of the other locks is fixed",
        "no function changes it",
    ),
    (
        "lw_rwlock",
        "The lock admitted the caller while the caller polled",
        "rwlock_traced.rs",
    ),
    ("lw_rwlock", "They may not have been asleep", "they may"),
    (
        "lw_rwlock",
        "the traced functions are as fast as the others",
        "fast_path.rs",
    ),
    (
        "lw_rwlock",
        "The locks contain no counters",
        "types.h shows it",
    ),
    ("lw_rwlock", "A program that needs statistics", "a demand"),
];

impl Page {
    /// The sentences of the description. Texts that introduce a list end with a colon.
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut sentence = String::new();
        let (mut is_tag, mut is_table) = (false, false);
        let mut end = |sentence: &mut String| {
            if !sentence.is_empty() {
                sentences.push(core::mem::take(sentence));
            }
        };
        for line in self.section("DESCRIPTION") {
            // A table has no sentences.
            is_table = line == ".TS" || is_table && line != ".TE";
            if is_table {
                continue;
            }
            let begins = [".PP", ".SS", ".TP", ".IP", ".TE"];
            if begins.iter().any(|macro_| line.starts_with(macro_)) {
                end(&mut sentence);
            } else if !is_tag {
                let text = plain(line);
                if !sentence.is_empty() && !text.is_empty() {
                    sentence.push(' ');
                }
                sentence += &text;
                if text.trim_end_matches(')').ends_with('.') {
                    end(&mut sentence);
                }
            }
            is_tag = line == ".TP";
        }
        end(&mut sentence);
        sentences
    }
}

/// A place in a test program that says which sentence it shows.
pub struct Saying {
    /// The file and the line.
    pub place: String,
    pub page: String,
    pub words: String,
    /// Whether a check comes soon after it.
    pub is_checked: bool,
}

/// All sentences that the programs of the tests cite.
pub fn sayings() -> Vec<Saying> {
    let mut sayings = Vec::new();
    for (file, lines) in lines_of_programs() {
        for (at, line) in lines.iter().enumerate() {
            let inside = line.trim().strip_prefix("/* ");
            let inside = inside.map(|rest| rest.trim_end_matches([' ', '\\']));
            let inside = inside.and_then(|rest| rest.strip_suffix(" */"));
            let Some((page, words)) = inside.and_then(|rest| rest.split_once("(3) says: ")) else {
                continue;
            };
            let mut soon = lines[at + 1..].iter().take(12);
            sayings.push(Saying {
                place: format!("{file}:{}", at + 1),
                page: page.to_owned(),
                words: words.to_owned(),
                is_checked: soon.any(|line| line.contains("CHECK")),
            });
        }
    }
    sayings
}
