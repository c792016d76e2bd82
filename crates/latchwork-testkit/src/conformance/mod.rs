//! Conformance to RTEMS: its own tables of pre- and post-conditions, run against an implementation.
//!
//! | part | contents |
//! | --- | --- |
//! | [`Table`] | one action: conditions, states, and which follow from which (`data/rtems`) |
//! | [`Combination`] | one combination of pre-condition states, and what the table says of it |
//! | [`Applicable`] | which states a user of semaphores can bring about or observe, and why not the others |
//! | [`Driver`] | brings about the pre-condition states, acts, and returns what it observes |
//! | [`Report`] | passed, failed, not applicable, skipped; as a table and as JSON |
//! | [`semaphores`] | the drivers for semaphores, over any type that implements [`semaphores::ClassicSemaphores`] |
//!
//! ```
//! use latchwork_testkit::conformance::{Driver, Seen, Table};
//!
//! // A semaphore of count 1, that is.
//! let mut driver = |combination: &latchwork_testkit::conformance::Combination| {
//!     let free = combination.pre("Count") == "Positive";
//!     Ok(Seen::new()
//!         .state("Status", if free { "Ok" } else { "Unsat" })
//!         .state("Count", if free { "MinusOne" } else { "Nop" }))
//! };
//! let report = Table::named("score/sem/seize-try").conform(&mut driver);
//! assert_eq!((report.passed, report.failed.len()), (2, 0));
//! ```

mod applicable;
mod combination;
mod driver;
mod report;
pub mod semaphores;
mod table;

pub use applicable::{Applicable, Applies};
pub use combination::{Combination, NOT_APPLICABLE, Outcome};
pub use driver::{Driver, NotApplicable, Seen};
pub use report::{ActionReport, Failure, Report, Wrong};
pub use table::{Condition, State, Table};
