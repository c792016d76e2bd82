//! Why a call failed: an error number for C, and the error's text for `lw_error_text`.

use core::cell::Cell;
use core::ffi::{c_char, c_int};
use core::fmt::{self, Display, Write};
use latchwork::classic::ClassicError;
use latchwork::foreign::Undisturbed;
use latchwork::queue::{ControlError, QueueError, ReceiveError, SendError, WatchError};
use latchwork::region::{
    AllocError, AttachError, CreateError, DetachError, NameError, ObjectError, StorageError,
};
use libc::{
    EACCES, EADDRINUSE, EAGAIN, EBADMSG, EBUSY, EDEADLK, EEXIST, EIDRM, EINVAL, EIO, EMFILE,
    EMSGSIZE, ENOENT, ENOMEM, ENOSPC, EPERM, EPROTO, ETIMEDOUT, EXDEV,
};

const BYTES: usize = 256;

thread_local! {
    /// It needs no destructor, so its first use takes no lock of the loader's.
    static TEXT: [Cell<u8>; BYTES] = const { [const { Cell::new(0) }; BYTES] };
}

/// Writes a C string, and cuts it off at a character's end.
struct Writer<'a> {
    to: &'a [Cell<u8>],
    at: usize,
}

impl Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            let bytes = character.len_utf8();
            if self.at + bytes >= self.to.len() {
                return Err(fmt::Error);
            }
            let mut encoded = [0; 4];
            character.encode_utf8(&mut encoded);
            for byte in &encoded[..bytes] {
                self.to[self.at].set(*byte);
                self.at += 1;
            }
            self.to[self.at].set(0);
        }
        Ok(())
    }
}

/// An error that C gets as a number.
pub(crate) trait Failure: Display {
    fn number(&self) -> c_int;
}

/// The number of an error whose text was kept for the calling thread.
pub(crate) struct Number(pub(crate) c_int);

impl<E: Failure> From<E> for Number {
    fn from(failure: E) -> Self {
        Self(failed(failure.number(), failure))
    }
}

/// Runs the body of a function that C calls, with cancellation disabled: 0, or the error's number.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Number>) -> c_int {
    let _undisturbed = Undisturbed::begin();
    call_often(body)
}

/// As [`call`], for a body whose cold places disable cancellation themselves: `sys/cancellation.rs` of `latchwork-sys`
/// says which.
#[inline]
pub(crate) fn call_often(body: impl FnOnce() -> Result<(), Number>) -> c_int {
    body().err().map_or(0, |Number(number)| number)
}

/// Keeps the text of an error, and returns its number.
pub(crate) fn failed(number: c_int, text: impl Display) -> c_int {
    TEXT.with(|to| {
        to[0].set(0);
        // A text that is too long is cut off.
        let _ = write!(Writer { to, at: 0 }, "{text}");
    });
    number
}

#[unsafe(no_mangle)]
extern "C" fn lw_error_text() -> *const c_char {
    TEXT.with(|text| text.as_ptr().cast())
}

/// A wrong argument.
pub(crate) struct Invalid(pub(crate) &'static str);

/// Refuses a null pointer where there must be something.
pub(crate) fn given<T>(pointer: Option<T>) -> Result<T, Invalid> {
    pointer.ok_or(Invalid("a pointer is NULL"))
}

/// Stores a result, if C wants it.
pub(crate) fn store<T>(to: Option<&mut T>, value: T) {
    if let Some(to) = to {
        *to = value;
    }
}

impl Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0)
    }
}

impl Failure for Invalid {
    fn number(&self) -> c_int {
        EINVAL
    }
}

impl Failure for NameError {
    fn number(&self) -> c_int {
        EINVAL
    }
}

impl Failure for CreateError {
    fn number(&self) -> c_int {
        match self {
            Self::Capacity { .. } => EINVAL,
            Self::Name(error) => error.number(),
            Self::Exists => EEXIST,
            Self::AddressTaken(_) => EADDRINUSE,
            Self::NoAddress(_) | Self::OutOfMemory(_) => ENOMEM,
            Self::TooManyRegions => EMFILE,
            Self::UnknownPidNamespace => EXDEV,
            Self::System { error, .. } => error.raw_os_error(),
            _ => EIO,
        }
    }
}

impl Failure for AttachError {
    fn number(&self) -> c_int {
        match self {
            Self::Name(error) => error.number(),
            Self::NotFound => ENOENT,
            Self::Permission => EACCES,
            Self::NotARegion | Self::Truncated { .. } | Self::Damaged(_) | Self::Unsound(_) => {
                EBADMSG
            }
            Self::InUse => EBUSY,
            Self::OtherBuild { .. } => EPROTO,
            Self::AddressTaken { .. } => EADDRINUSE,
            Self::OtherPidNamespace { .. } | Self::UnknownPidNamespace => EXDEV,
            Self::TooManyRegions | Self::TooManyAttachments => EMFILE,
            Self::TaskTableFull { .. } | Self::Validating => EAGAIN,
            Self::ThreadEnding => EPERM,
            Self::System { error, .. } => error.raw_os_error(),
            // The thread's own record cannot be made.
            Self::Task(_) => ENOMEM,
            _ => EIO,
        }
    }
}

impl Failure for AllocError {
    fn number(&self) -> c_int {
        ENOMEM
    }
}

impl Failure for ObjectError {
    fn number(&self) -> c_int {
        match self {
            Self::Attach(error) => error.number(),
            Self::Alloc(error) => error.number(),
            Self::Name(error) => error.number(),
            Self::DirectoryFull { .. } => ENOSPC,
            Self::NotFound => ENOENT,
            Self::OtherType => EEXIST,
            Self::Damaged => EBADMSG,
            Self::Locked(_) => EDEADLK,
            Self::NamesThreads => EXDEV,
            _ => EIO,
        }
    }
}

impl Failure for StorageError {
    fn number(&self) -> c_int {
        match self {
            Self::Attach(error) => error.number(),
            Self::Alloc(error) => error.number(),
            Self::TooLong => EMSGSIZE,
            Self::NamesThreads => EXDEV,
            _ => EIO,
        }
    }
}

impl Failure for DetachError {
    fn number(&self) -> c_int {
        match self {
            Self::Holding { .. } => EBUSY,
            Self::Task(_) => ENOMEM,
            _ => EIO,
        }
    }
}

impl Failure for ClassicError {
    fn number(&self) -> c_int {
        match self {
            Self::Object(error) => error.number(),
            Self::OtherOptions { .. } => EEXIST,
            _ => EINVAL,
        }
    }
}

impl Failure for QueueError {
    fn number(&self) -> c_int {
        match self {
            Self::Capacity { .. } => EINVAL,
            Self::OtherOptions { .. } => EEXIST,
            Self::Object(error) => error.number(),
            _ => EIO,
        }
    }
}

impl Failure for SendError {
    fn number(&self) -> c_int {
        match self {
            Self::Full => EAGAIN,
            Self::TimedOut => ETIMEDOUT,
            Self::TooLong { .. } => EMSGSIZE,
            Self::Deleted => EIDRM,
            Self::OtherRegion => EXDEV,
            Self::Attach(error) => error.number(),
            _ => EIO,
        }
    }
}

impl Failure for ReceiveError {
    fn number(&self) -> c_int {
        match self {
            Self::Empty => EAGAIN,
            Self::TimedOut => ETIMEDOUT,
            Self::BufferTooSmall { .. } => EMSGSIZE,
            Self::Deleted => EIDRM,
            Self::Storage(error) => error.number(),
            Self::Attach(error) => error.number(),
            _ => EIO,
        }
    }
}

impl Failure for ControlError {
    fn number(&self) -> c_int {
        match self {
            Self::Deleted => EIDRM,
            Self::Attach(error) => error.number(),
            _ => EIO,
        }
    }
}

impl Failure for WatchError {
    fn number(&self) -> c_int {
        match self {
            Self::Attach(error) => error.number(),
            Self::Descriptor(error) => error.raw_os_error(),
            Self::Thread(error) => error.raw_os_error().unwrap_or(EAGAIN),
            _ => EIO,
        }
    }
}
