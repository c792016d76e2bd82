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
pub const SHOWN: [&str; 6] = [
    "lw_cond",
    "lw_mutex",
    "lw_once",
    "lw_queue",
    "lw_rwlock",
    "lw_sem",
];

/// Sentences that these programs do not show: pages, words, and why.
pub const NOT_SHOWN: [(&str, &str, &str); 65] = [
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
    ("lw_mutex", "A task is a thread.", "a definition"),
    ("lw_mutex", "A waiter is a task that waits", "a definition"),
    (
        "lw_mutex",
        "Without contention, a lock and an unlock each take one",
        "fast.c, inlined.rs",
    ),
    (
        "lw_mutex",
        "Mutexes with a ceiling are an exception",
        "fast.c, inlined.rs",
    ),
    (
        "lw_mutex",
        "for all kinds except recursive mutexes",
        "manual.rs",
    ),
    ("lw_mutex", "for robust mutexes.", "manual.rs"),
    ("lw_mutex", "for mutexes with a ceiling.", "manual.rs"),
    (
        "lw_mutex",
        "for mutexes with a ceiling that are not robust",
        "manual.rs",
    ),
    (
        "lw_mutex",
        "for throughput mutexes: lw_tp_mutex_t",
        "manual.rs",
    ),
    (
        "lw_mutex",
        "A call with another kind does not compile",
        "manual.rs",
    ),
    (
        "lw_mutex",
        "Processes can also share mutexes of all robust types",
        "bodies",
    ),
    (
        "lw_mutex",
        "They cannot share recursive mutexes",
        "no call shows it",
    ),
    (
        "lw_mutex",
        "(There is none for region mutexes",
        "no call shows it",
    ),
    (
        "lw_mutex",
        "(A checked mutex of lw_migrate(3) must not",
        "a demand",
    ),
    (
        "lw_mutex",
        "The layouts are those of the Rust library",
        "with_rust.rs",
    ),
    (
        "lw_mutex",
        "a mutex that Rust code has initialised",
        "with_rust.rs",
    ),
    (
        "lw_mutex",
        "the mutex stays locked until the process ends, because",
        "with_rust.rs",
    ),
    (
        "lw_mutex",
        "For region mutexes the exception is another one",
        "a reference",
    ),
    (
        "lw_mutex",
        "a waiter then writes one line to standard error",
        "throughput_dead_owner.rs",
    ),
    (
        "lw_mutex",
        "If a thread uses several regions, the fast path",
        "no result shows it",
    ),
    (
        "lw_mutex",
        "Mutexes of the other regions take a function call",
        "no result shows it",
    ),
    (
        "lw_mutex",
        "a task that waits notices it within 4 milliseconds",
        "in_region.rs",
    ),
    (
        "lw_mutex",
        "If one task has had the lock for that long",
        "in_region.rs",
    ),
    (
        "lw_mutex",
        "lw_region_tp_mutex_t is the form for many tasks",
        "advice",
    ),
    (
        "lw_mutex",
        "It always hands off after 5 milliseconds",
        "in_region_throughput.rs",
    ),
    (
        "lw_mutex",
        "Here the first waiter in the queue notices",
        "in_region_throughput.rs",
    ),
    (
        "lw_mutex",
        "If that waiter dies, the other waiters notice it",
        "in_region_throughput.rs",
    ),
    (
        "lw_mutex",
        "the thread also held a mutex of the same region that Rust",
        "with_rust.rs",
    ),
    (
        "lw_mutex",
        "All mutexes of that region that the thread held then stay",
        "with_rust.rs",
    ),
    (
        "lw_mutex",
        "The waiters of a throughput mutex form a queue",
        "throughput_hand_off.rs",
    ),
    (
        "lw_mutex",
        "a task that does not wait in the queue can take it ahead",
        "throughput_hand_off.rs",
    ),
    (
        "lw_mutex",
        "This has a bound: a waiter that has been the first",
        "throughput_hand_off.rs",
    ),
    (
        "lw_mutex",
        "real-time tasks are preferred: the next unlock",
        "throughput_hand_off.rs",
    ),
    (
        "lw_mutex",
        "the caller took it without a wait in the queue",
        "throughput_traced.rs",
    ),
    (
        "lw_mutex",
        "There may have been none: the mark can stay",
        "it may",
    ),
    (
        "lw_mutex",
        "the two traced functions are as fast as",
        "fast_path.rs",
    ),
    (
        "lw_mutex",
        "the traced unlock of a robust mutex is a function call",
        "inlined.rs",
    ),
    (
        "lw_mutex",
        "The mutexes contain no counters",
        "types.h shows it",
    ),
    ("lw_mutex", "A program that needs statistics", "a demand"),
    (
        "lw_mutex",
        "If the caller itself holds the mutex, the call waits for ever",
        "it would hang",
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
