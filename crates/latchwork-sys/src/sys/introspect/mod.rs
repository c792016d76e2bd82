//! Information about files, memory and threads for reports, without allocation.

mod maps;
mod output;
mod own_ids;
mod path;
mod symbol;
mod thread;

pub(super) use self::maps::Mapping;
pub use self::maps::{
    is_shared_memory, keeps_what_it_is, write_place, write_static, write_variable,
};
pub use self::output::{
    append_to, duplicate, duplicate_number, identity, with_variable, write, write_directory,
};
pub use self::own_ids::shows_own_ids;
pub(super) use self::path::open;
pub(super) use self::thread::is_process_killed;
pub use self::thread::{
    fields_after_name, priority_of, read_beginning, shows_process, sleeps_at, stack, thread_state,
};
pub use super::errno::error_name;
