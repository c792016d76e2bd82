//! RTEMS's classic interface to the objects of a region: semaphores, events and message queues, by names and ids, with
//! RTEMS's constants and status codes, and its order of checks.
//!
//! The objects are in a table of the region. The table's capacity is set when it is created, as RTEMS's tables are
//! configured. An id means the same object in every process, and never a later object (until 4096 objects have had its
//! entry). A pointer that may be null in C is an `Option` here.
//!
//! | RTEMS | here |
//! | --- | --- |
//! | one system, one table | one table in each region |
//! | a task | a thread that has used the region |
//! | nodes | one, [`LOCAL_NODE`] |
//! | schedulers | [`SCHEDULER`], of all processors, unless [`ClassicOptions::scheduler`] declares others |
//! | priorities of a task in several schedulers | one: a Linux thread has no more |
//! | fatal errors of broken mutexes | [`Status::OwnerDied`], besides RTEMS's own codes |
//! | clock ticks | their length is set when the table is created, 10 ms by default as in RTEMS |
//!
//! ```
//! use latchwork::classic::{self, Classic, ClassicOptions, Status};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let options = ClassicOptions::new().semaphores(8).message_queues(8);
//! let rtems = Classic::create(&region, &options)?;
//! let mut jobs = 0;
//! let name = classic::build_name(*b"JOBS");
//! let status = rtems.semaphore_create(name, 1, classic::PRIORITY, 0, Some(&mut jobs));
//! assert_eq!(status, Status::Successful);
//! assert_eq!(rtems.semaphore_obtain(jobs, classic::WAIT, classic::NO_TIMEOUT), Status::Successful);
//! assert_eq!(rtems.semaphore_obtain(jobs, classic::NO_WAIT, 0), Status::Unsatisfied);
//! assert_eq!(rtems.semaphore_release(jobs), Status::Successful);
//!
//! let (mut mail, mut buffer, mut size) = (0, [0; 16], 0);
//! rtems.message_queue_create(classic::build_name(*b"MAIL"), 3, 16, 0, Some(&mut mail));
//! assert_eq!(rtems.message_queue_send(mail, Some(b"hello")), Status::Successful);
//! let status = rtems.message_queue_receive(
//!     mail, Some(&mut buffer), Some(&mut size), classic::NO_WAIT, classic::NO_TIMEOUT);
//! assert_eq!((status, &buffer[..size]), (Status::Successful, &b"hello"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Crash:* an entry of the table is in use exactly while its object exists: one store creates the object, one ends it.
//! A task that is killed in a directive has carried it out or not.
//!
//! *An id's entry may get another object at any moment.* A reader of several fields of an entry therefore reads the
//! field that distinguishes the objects (a semaphore's key, a queue's life) before and after. The fields between are
//! stored with Release, after the end of the previous object, and read with Acquire: a reader that sees the next
//! object's value also sees that end.

mod content;
mod event;
mod handle;
mod instances;
mod message_queue;
mod processors;
mod scheduler;
mod semaphore;
mod status;
mod table;
mod task;

pub use event::*;
pub use handle::{Classic, ClassicError};
pub use instances::MAX_SCHEDULERS;
pub use message_queue::message_queue_buffer_size;
pub use processors::{processor_set, processors_in};
pub use status::*;
pub use table::ClassicOptions;
