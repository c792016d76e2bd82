//! Why a thread cannot be a task.

/// Why the calling thread cannot be a task or own robust locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// No memory for the thread's record.
    #[error("no memory for the thread's record: {0}")]
    Memory(rustix::io::Errno),
    /// The kernel, or a sandbox, refuses robust lists.
    #[error("the system refuses robust lists: {0}")]
    RobustList(rustix::io::Errno),
    /// The C library's robust mutexes have an unknown layout.
    #[error("this C library's robust mutexes have an unknown layout (offset {0})")]
    ForeignLayout(isize),
    /// The thread has ended, except for destructors, and what it held belongs to its process now.
    #[error("the thread has ended, and what it held is its process's now")]
    Ended,
}
