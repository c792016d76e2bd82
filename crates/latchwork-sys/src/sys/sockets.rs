//! A pair of connected sockets that carries whole messages with descriptors.
#![allow(unsafe_code)]

use super::descriptors::above_standard;
use core::mem::MaybeUninit;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// The largest number of descriptors in one message.
pub const MAX_DESCRIPTORS: usize = 32;

/// Two connected ends.
pub fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (one, other) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    Ok((above_standard(one)?, above_standard(other)?))
}

/// Sends a message; `PIPE` or `CONNRESET` if the other end is closed.
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
    let message = [IoSlice::new(message)];
    retry_on_intr(|| rustix::net::sendmsg(&socket, &message, &mut control, SendFlags::NOSIGNAL))
        .map(drop)
}

/// Receives a message of at most `message.len()` bytes and its descriptors, which are closed on exec. Returns 0
/// if the other end is closed.
pub fn receive(
    socket: impl AsFd,
    message: &mut [u8],
    descriptors: &mut Vec<OwnedFd>,
) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let (mut parts, flags) = ([IoSliceMut::new(message)], RecvFlags::CMSG_CLOEXEC);
    let received =
        retry_on_intr(|| rustix::net::recvmsg(&socket, &mut parts, &mut control, flags))?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            for right in rights {
                descriptors.push(above_standard(right)?);
            }
        }
    }
    Ok(received.bytes)
}

/// Shuts a pair down in both directions: a reader of the other end gets end-of-file.
pub fn shut_down(socket: impl AsFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// Closes this process's copy of a descriptor whose owner is in another process's memory, of which this one has a copy.
///
/// # Safety
/// The owner is never used or dropped in this process.
pub unsafe fn close_copy(descriptor: BorrowedFd<'_>) {
    // SAFETY: by the contract.
    unsafe { rustix::io::close(rustix::fd::AsRawFd::as_raw_fd(&descriptor)) };
}

/// The result of [`wait_readable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readable {
    First,
    Second,
    Neither,
}

/// Waits until one of two descriptors can be read (or is at its end), preferring the first; without `block` it
/// only checks.
pub fn wait_readable(first: impl AsFd, second: impl AsFd, block: bool) -> Result<Readable, Errno> {
    let time_out = (!block).then(Timespec::default);
    let mut entries =
        [first.as_fd(), second.as_fd()].map(|file| PollFd::from_borrowed_fd(file, PollFlags::IN));
    retry_on_intr(|| rustix::event::poll(&mut entries, time_out.as_ref()))?;
    Ok(match entries.map(|entry| !entry.revents().is_empty()) {
        [true, _] => Readable::First,
        [_, true] => Readable::Second,
        _ => Readable::Neither,
    })
}
