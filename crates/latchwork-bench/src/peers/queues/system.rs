//! The kernel's queues: POSIX message queue, pipe, UNIX socket.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, fs::File, ptr};

use super::super::cvt;
use super::{CAPACITY, MOST, MessageQueue, Receives, Sends};

/// Both ends, in every task.
struct Ends {
    sends: OwnedFd,
    receives: OwnedFd,
}

/// Sends and receives by one call each.
pub(crate) struct End(RawFd, Call);

#[derive(Clone, Copy)]
enum Call {
    Queue,
    Socket,
}

impl Sends for End {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            // SAFETY: the descriptor is open as long as the queue, and the message outlives the call.
            let sent = unsafe {
                let bytes = message.as_ptr();
                match self.1 {
                    Call::Queue => libc::mq_send(self.0, bytes.cast(), message.len(), 0) as isize,
                    Call::Socket => libc::send(self.0, bytes.cast(), message.len(), 0),
                }
            };
            if sent < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    }
}

impl Receives for End {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            // SAFETY: the descriptor is open as long as the queue, and the buffer has the length that is passed.
            let received = unsafe {
                let bytes = buffer.as_mut_ptr();
                match self.1 {
                    Call::Queue => {
                        libc::mq_receive(self.0, bytes.cast(), buffer.len(), ptr::null_mut())
                    }
                    Call::Socket => libc::recv(self.0, bytes.cast(), buffer.len(), 0),
                }
            };
            if received < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        })
    }
}

pub(crate) struct PosixMq(OwnedFd);

impl MessageQueue for PosixMq {
    type Sender<'a> = End;
    type Receiver<'a> = End;

    fn make(size: usize) -> io::Result<Self> {
        static LIMITS: Once = Once::new();
        LIMITS.call_once(admit_large_messages);
        // Two queues of the largest messages exceed a user's limit; a way back needs fewer slots.
        match new_queue(CAPACITY, size) {
            Err(error) if error.raw_os_error() == Some(libc::EMFILE) => new_queue(2, size),
            opened => opened,
        }
        .map(Self)
    }

    fn sender(&self) -> io::Result<End> {
        Ok(End(self.0.as_raw_fd(), Call::Queue))
    }

    fn receiver(&self) -> io::Result<End> {
        self.sender()
    }
}

/// Raises the limit on the size of a message where this process may: in an IPC namespace of its own, so that nothing
/// has to be restored. Otherwise large messages are refused, which the scenario reports.
fn admit_large_messages() {
    const LIMIT: &str = "/proc/sys/fs/mqueue/msgsize_max";
    let limit = fs::read_to_string(LIMIT).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<usize>().ok());
    // SAFETY: only the calling thread leaves its namespace, with the descriptors that it has.
    if limit.is_some_and(|limit| limit < MOST) && unsafe { libc::unshare(libc::CLONE_NEWIPC) } == 0
    {
        let _ = fs::write(LIMIT, MOST.to_string());
    }
}

/// A POSIX message queue of few slots, whose senders do not wait.
pub(crate) struct ShallowMq(OwnedFd);

impl ShallowMq {
    pub(crate) fn new(places: usize, size: usize) -> io::Result<Self> {
        new_queue(places, size).map(Self)
    }

    /// Sends a message if there is room; returns whether there was.
    pub(crate) fn try_send(&self, message: &[u8]) -> io::Result<bool> {
        // A non-blocking descriptor would not let the receiver wait either.
        let long_past = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let (queue, bytes) = (self.0.as_raw_fd(), message.as_ptr().cast());
        // SAFETY: the queue is open; message and time outlive the call.
        let sent =
            unsafe { libc::mq_timedsend(queue, bytes, message.len(), 0, &raw const long_past) };
        match cvt(sent) {
            Ok(_) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<()> {
        End(self.0.as_raw_fd(), Call::Queue).receive(buffer, 1)
    }
}

/// A new queue, within a user's limit on all queues together; it may hold fewer messages than requested.
fn new_queue(capacity: usize, size: usize) -> io::Result<OwnedFd> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // SAFETY: plain C data that outlives the calls.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        cvt(libc::getrlimit(libc::RLIMIT_MSGQUEUE, &raw mut limit))?;
        let most = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        if libc::setrlimit(libc::RLIMIT_MSGQUEUE, &raw const most) == -1 {
            limit.rlim_cur = limit.rlim_max;
            cvt(libc::setrlimit(libc::RLIMIT_MSGQUEUE, &raw const limit))?;
        }
    }
    // Relaxed: only the number's uniqueness matters.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("/latchwork-bench-{}-{number}", std::process::id());
    open_queue(
        &CString::new(name).map_err(io::Error::other)?,
        capacity,
        size,
    )
}

/// A queue of this process alone, which is not persistent.
fn open_queue(name: &CStr, capacity: usize, size: usize) -> io::Result<OwnedFd> {
    // SAFETY: name and attributes outlive the calls; the descriptor is new.
    unsafe {
        let mut attributes: libc::mq_attr = std::mem::zeroed();
        attributes.mq_maxmsg = capacity as libc::c_long;
        attributes.mq_msgsize = size as libc::c_long;
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let queue = cvt(libc::mq_open(
            name.as_ptr(),
            flags,
            0o600 as libc::c_uint,
            &raw const attributes,
        ))?;
        libc::mq_unlink(name.as_ptr());
        Ok(OwnedFd::from_raw_fd(queue))
    }
}

pub(crate) struct SeqPacket(Ends);

impl MessageQueue for SeqPacket {
    type Sender<'a> = End;
    type Receiver<'a> = End;

    fn make(_: usize) -> io::Result<Self> {
        let mut ends = [0; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the array takes two descriptors, which are new.
        unsafe {
            cvt(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
            let [sends, receives] = ends.map(|end| OwnedFd::from_raw_fd(end));
            Ok(Self(Ends { sends, receives }))
        }
    }

    fn sender(&self) -> io::Result<End> {
        Ok(End(self.0.sends.as_raw_fd(), Call::Socket))
    }

    fn receiver(&self) -> io::Result<End> {
        Ok(End(self.0.receives.as_raw_fd(), Call::Socket))
    }
}

pub(crate) struct Pipe(Ends, usize);

/// A pipe has no message boundaries: all messages have one size.
pub(crate) struct PipeEnd(File, usize);

impl Pipe {
    fn end(&self, end: &OwnedFd) -> io::Result<PipeEnd> {
        Ok(PipeEnd(File::from(end.try_clone()?), self.1))
    }
}

impl MessageQueue for Pipe {
    type Sender<'a> = PipeEnd;
    type Receiver<'a> = PipeEnd;

    fn make(size: usize) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the array takes two descriptors, which are new.
        unsafe {
            cvt(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
            let [receives, sends] = ends.map(|end| OwnedFd::from_raw_fd(end));
            Ok(Self(Ends { sends, receives }, size))
        }
    }

    fn sender(&self) -> io::Result<PipeEnd> {
        self.end(&self.0.sends)
    }

    fn receiver(&self) -> io::Result<PipeEnd> {
        self.end(&self.0.receives)
    }
}

impl Sends for PipeEnd {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| self.0.write_all(message))
    }
}

impl Receives for PipeEnd {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| self.0.read_exact(&mut buffer[..self.1]))
    }
}
