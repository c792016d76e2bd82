//! What every message queue of the benchmark implements, and the work that is done on a message.

use std::io;

/// How many messages may be under way, if the contestant leaves the choice: as many as a POSIX message queue holds
/// without privileges.
pub(crate) const CAPACITY: usize = 10;

/// The largest message.
pub(crate) const MOST: usize = 64 << 10;

/// A queue from one task to another, which threads and forked children share.
pub(crate) trait MessageQueue: Send + Sync + Sized + 'static {
    type Sender<'a>: Sends
    where
        Self: 'a;
    type Receiver<'a>: Receives
    where
        Self: 'a;

    /// The package that provides it, if it is absent.
    const PACKAGE: Option<&'static str> = None;

    /// Makes a queue for messages of this size.
    fn make(size: usize) -> io::Result<Self>;

    /// The sending end, for the sending task.
    fn sender(&self) -> io::Result<Self::Sender<'_>>;

    /// The receiving end, for the receiving task.
    fn receiver(&self) -> io::Result<Self::Receiver<'_>>;
}

pub(crate) trait Sends {
    /// Sends `message`, `times` times.
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()>;

    /// Computes and sends `times` messages of `buffer`'s length: in `buffer`, or in place.
    fn send_computed(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|number| {
            compute(buffer, number);
            self.send(buffer, 1)
        })
    }
}

pub(crate) trait Receives {
    /// Receives `times` messages into `buffer`, or reads a byte of each of their cache lines in place.
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()>;

    /// Receives `times` messages, and adds up the bytes of each: in `buffer`, or in place.
    fn receive_computed(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            self.receive(buffer, 1)?;
            add_up(buffer);
            Ok(())
        })
    }
}

/// Writes a message whose bytes depend on its number.
pub(super) fn compute(message: &mut [u8], number: u64) {
    message.fill(number as u8);
}

/// Reads all bytes of a message.
pub(super) fn add_up(message: &[u8]) {
    let (words, rest) = message.as_chunks::<8>();
    let sum = words.iter().fold(0_u64, |sum, word| {
        sum.wrapping_add(u64::from_ne_bytes(*word))
    });
    let sum = rest
        .iter()
        .fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)));
    std::hint::black_box(sum);
}

/// Reads a byte of each cache line, so that a message that is not copied is transferred between caches nevertheless.
pub(super) fn read_lines(message: &[u8]) {
    let sum = message
        .iter()
        .step_by(64)
        .fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    std::hint::black_box(sum);
}
