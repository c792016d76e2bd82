//! Information about files, memory and threads for reports, without allocation.

mod error_name;
mod maps;
mod output;
mod path;
mod stack;
mod symbol;
mod thread;

pub use self::error_name::error_name;
pub use self::maps::{
    is_shared_memory, keeps_what_it_is, write_place, write_static, write_variable,
};
pub use self::output::{
    append_to, duplicate, duplicate_number, identity, with_variable, write, write_directory,
};
pub use self::stack::stack;
pub use self::thread::{priority_of, read_beginning, sleeps_at, thread_state};
