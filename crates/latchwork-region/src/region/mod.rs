//! Shared memory at one address in every task that joins it.
//!
//! A region holds a heap, a table of its tasks, and named objects. Every process maps it at the same address, so
//! ordinary pointers are valid in all of them: a linked list is a linked list. A task may be killed at any
//! instruction; the other tasks detect its death and clean up after it (see [`Region::sweep`]).
//!
//! | to | use |
//! | --- | --- |
//! | create a region, find it by its name | [`RegionOptions`] |
//! | find each other's data | [`Region::object`]; in a struct, [`Object`] |
//! | say which types may be in it | [`Shareable`], [`TornSafe`]: derive them; [`PinnedFields`] for robust locks in fields |
//! | store growing data | [`Vec`], [`String`], [`HashMap`], [`List`], [`Box`] |
//! | change data in a robust lock | [`Edit`]: `lock.lock()?.edit().push(1)` |
//! | change several numbers atomically | [`Undo`] |
//! | return memory | [`Vec::shrink_to_fit`], [`HashMap::shrink_to_fit`], [`Region::trim`] |
//! | inspect from outside, clean up | [`inspect`], [`leftovers`] |
//!
//! ```
//! use latchwork::mutex::{Mutex, Robust};
//! use latchwork::region::RegionOptions;
//!
//! let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
//! let hits = region.object("hits", || Mutex::robust(0u64))?;
//! *hits.lock().unwrap() += 1;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What safety rests on
//!
//! A region's file is memory that contains pointers. Safe code is sound under one condition: the file was made by
//! this library, and only this library writes it while a process has it mapped. A file is validated before use:
//! identity, layout, sizes, lock words, heap, names. The contents of the *objects* are not validated, and could not
//! be: a well-formed file can contain an object whose pointer leads anywhere. A file that another user owns is
//! therefore refused ([`RegionOptions::trust_any_owner`] is `unsafe`). A program that writes the file by other means
//! breaks the contract, even if each of its calls is safe: through a descriptor from [`Region::file`], or through the
//! name in `/dev/shm`, just as through `/proc/self/mem`.
//!
//! # How it works
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | options | `create.rs`, `attach.rs`, `grow.rs` | create; attach and validate; grow |
//! | region | `inner.rs`, `handle.rs`, `lifetime.rs` | a mapped region, a handle on it, how long it stays mapped |
//! | registry | `registry.rs`, `region_id.rs` | the regions of this process, by address; how containers name them |
//! | header and layout | `header.rs` | offsets of all tables, fingerprint |
//! | task | `task.rs` | the calling thread joins and leaves |
//! | task table | `task_table.rs` | slots, life-words, generations |
//! | `park` | `park.rs`, `cancel.rs` | sleep until another task makes progress or dies; end such a sleep |
//! | sweep | `sweep.rs` | clean up after dead tasks |
//! | events | `events.rs` | a task's pending events, and the events that it waits for |
//! | heap | `heap/` | blocks, private to a task or shared |
//! | named objects | `names.rs`, `objects.rs` | find each other's data |
//! | inspection | `inspect.rs`, `leftovers.rs` | inspect from outside, clean up |
//! | containers | `container.rs`, `boxed.rs`, `vec.rs`, … | Box, Vec, String, HashMap, List |

mod attach;
mod boxed;
mod cancel;
mod container;
mod create;
mod detach;
mod error;
#[doc(hidden)]
pub mod events;
#[cfg(feature = "foreign")]
#[doc(hidden)]
pub mod foreign;
mod grow;
mod handle;
mod hash_map;
mod header;
#[doc(hidden)]
pub mod heap;
mod inbox;
mod inner;
pub mod inspect;
pub mod leftovers;
mod lifetime;
mod list;
#[doc(hidden)]
pub mod liveness;
mod lookup;
mod names;
mod object;
mod objects;
mod park;
mod pinned;
mod receivers;
mod region_id;
mod registry;
mod shareable;
mod string;
mod sweep;
mod task;
mod task_id;
mod task_table;
mod transfer;
mod undo;
mod vec;
#[doc(hidden)]
pub mod wait_record;
mod word;

pub use crate::edit::Edit;
pub use crate::relocatable::Relocatable;
#[doc(hidden)]
pub use crate::relocatable::{NoContainer, PinsFields};
pub use crate::torn_safe::TornSafe;
pub use boxed::Box;
pub use create::RegionOptions;
pub use detach::DetachError;
pub use error::{AttachError, CreateError, NameError, ObjectError, PushError, StorageError};
pub use handle::Region;
pub use hash_map::{HashMap, HashMapMut};
pub use heap::{AllocError, Corruption, HeapStats};
pub use latchwork_derive::{Shareable, TornSafe};
pub use list::{List, ListMut};
#[doc(hidden)]
pub use names::SpareKind;
pub use object::Object;
#[doc(hidden)]
pub use objects::Reused;
#[doc(hidden)]
pub use pinned::PinnedParts;
pub use pinned::{PinnedFields, each_pinned, each_pinned_mut};
use shareable::fingerprint_of;
#[doc(hidden)]
pub use shareable::type_path;
pub use shareable::{Shareable, fingerprint};
pub use string::{String, StringMut};
pub use sweep::Swept;
pub use task_id::TaskId;
pub use task_table::Orphans;
pub use undo::{Cells, Transaction, Undo, UndoError, UndoMut};
pub use vec::{Vec, VecMut};

#[doc(hidden)]
pub use inbox::{Inbox, LOCK as QUEUE_LOCK};
#[doc(hidden)]
pub use inner::Inner;
#[doc(hidden)]
pub use lookup::{
    check_record, check_records, contains, has_only_own_task, join_at, own_recorded_priority,
    recorded_priority, write_object_name,
};
#[doc(hidden)]
pub use park::Parked;
#[doc(hidden)]
pub use task::Task;
