//! A pair of connected sockets that carries whole messages with descriptors.
#![allow(unsafe_code)]

use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that one message carries at most.
pub const MAX_DESCRIPTORS: usize = 32;

/// Two connected ends.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
}

/// Sends a message; `PIPE` or `CONNRESET` if the other end is gone.
pub fn send(
    socket: impl AsFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOBIG);
    }
    let socket = socket.as_fd();
    loop {
        match rustix::net::sendmsg(
            socket,
            &[IoSlice::new(message)],
            &mut control,
            SendFlags::NOSIGNAL,
        ) {
            Err(Errno::INTR) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Receives a message of `message.len()` bytes at most, and its descriptors, which are closed on
/// exec. 0 bytes mean that the other end is gone.
pub fn receive(
    socket: impl AsFd,
    message: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let socket = socket.as_fd();
    let received = loop {
        match rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(message)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Err(Errno::INTR) => {}
            other => break other?,
        }
    };
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Ok(received.bytes)
}

/// Ends the traffic on a pair, both ways: the other end, wherever it is, reads its end.
pub fn shut_down(socket: impl AsFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Another descriptor for what `descriptor` stands for, closed on exec, and none of 0, 1 and 2.
pub fn duplicate(descriptor: impl AsFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, 3)
}

/// Closes a descriptor that another process's memory, of which this one has a copy, owns.
///
/// # Safety
/// The owner never uses or drops it in this process.
pub unsafe fn close_copy(descriptor: BorrowedFd<'_>) {
    // SAFETY: by the contract.
    unsafe { rustix::io::close(rustix::fd::AsRawFd::as_raw_fd(&descriptor)) };
}

/// What [`wait_readable`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    First,
    Second,
    Neither,
}

/// Waits until one of two descriptors can be read (or is at its end), the first being preferred;
/// or only looks.
pub fn wait_readable(first: impl AsFd, second: impl AsFd, block: bool) -> Result<Readable, Errno> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (first, second) = (first.as_fd(), second.as_fd());
    let mut entries = [
        PollFd::from_borrowed_fd(first, PollFlags::IN),
        PollFd::from_borrowed_fd(second, PollFlags::IN),
    ];
    loop {
        match rustix::event::poll(&mut entries, if block { None } else { Some(&now) }) {
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
            Ok(_) if !entries[0].revents().is_empty() => return Ok(Readable::First),
            Ok(_) if !entries[1].revents().is_empty() => return Ok(Readable::Second),
            Ok(_) => return Ok(Readable::Neither),
        }
    }
}
