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
//! | read, without the right to write | [`RegionOptions::observe`] |
//! | attach a file only if all that it holds is sound | [`RegionOptions::checked`], [`Validate`] |
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
//! identity, layout, sizes, lock words, heap, names. The contents of the *objects* are validated by a [checked
//! attach](RegionOptions::checked) only, to which the program declares their types; without it, a well-formed file can
//! contain an object whose pointer leads anywhere. A file that another user owns is
//! therefore refused ([`RegionOptions::trust_any_owner`] is `unsafe`). A program that writes the file by other means
//! breaks the contract, even if each of its calls is safe: through a descriptor from [`Region::file`], or through the
//! name in `/dev/shm`, just as through `/proc/self/mem`. So does one that gives up or changes the lock (`flock`) of that
//! descriptor, by which other processes know that the region is in use.

mod attach;
mod boxed;
mod container;
mod create;
mod error;
#[doc(hidden)]
pub mod events;
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
mod lookout;
mod lookup;
mod names;
mod object;
mod objects;
mod observer;
mod owners;
mod park;
mod pinned;
mod region_id;
mod registry;
mod shareable;
mod spares;
mod string;
mod sweep;
mod task;
mod task_id;
mod task_table;
mod transfer;
mod undo;
mod validate;
mod vanished;
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
pub use error::{
    AttachError, CreateError, NameError, ObjectError, PushError, StorageError, Unsound,
};
pub use handle::{DetachError, Region};
pub use hash_map::{HashMap, HashMapMut};
pub use heap::{AllocError, Corruption, HeapStats};
pub use latchwork_derive::{Shareable, TornSafe, Validate};
pub use list::{List, ListMut};
pub use object::Object;
pub use observer::Observer;
pub use pinned::{PinnedFields, each_pinned, each_pinned_mut};
use shareable::fingerprint_of;
pub use shareable::{Shareable, fingerprint};
pub use string::{String, StringMut};
pub use sweep::Swept;
pub use task_id::TaskId;
pub use task_table::Orphans;
pub use undo::{Cells, Transaction, Undo, UndoError, UndoMut};
pub use validate::{KnownContent, Validate, Validator};
pub use vec::{Vec, VecMut};

#[doc(hidden)]
pub use self::{
    inbox::{Inbox, LOCK as QUEUE_LOCK},
    inner::Inner,
    lookup::{
        check_record, check_records, contains, files, has_messages, has_only_own_task, join_at,
        own_recorded_priority, recorded_priority, spans_pid_namespaces, write_object_name,
    },
    names::SpareKind,
    objects::Reused,
    pinned::PinnedParts,
    shareable::type_path,
    task::Task,
    validate::{Content, ReusedContent},
    wait_record::Parked,
};
#[cfg(feature = "foreign")]
#[doc(hidden)]
pub use park::foreign;
