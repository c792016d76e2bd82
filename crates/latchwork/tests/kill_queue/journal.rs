//! Messages that say whether they are whole, and what became of each.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::SeqCst};
use latchwork_testkit::{Page, fastrand};

pub(super) const SENDERS: usize = 4;
pub(super) const RECEIVERS: usize = 4;
/// Messages of one sender's seat between two reckonings.
pub(super) const IDS: usize = 1 << 14;
pub(super) const HEAD: usize = 16;

/// What became of a message, as the tasks themselves say. Outside of the region.
pub(super) struct Journal {
    /// The next number of each sender's seat. A number is used once, even if its sender is killed.
    next: Page<[AtomicU32; SENDERS]>,
    /// Bits of each message.
    fate: Page<[[AtomicU8; IDS]; SENDERS]>,
    /// Who processes it: seat, incarnation; or [`DONE`].
    holder: Page<[[AtomicU64; IDS]; SENDERS]>,
    pub(super) progress: Page<[AtomicU64; SENDERS + RECEIVERS]>,
    /// The last number that was received of each sender's seat, with one receiver.
    pub(super) last: Page<[AtomicU32; SENDERS]>,
}

/// `send` returned.
pub(super) const COMMITTED: u8 = 1;
/// `receive` returned, with the whole message.
pub(super) const RECEIVED: u8 = 2;
pub(super) const DONE: u64 = u64::MAX;

impl Journal {
    pub(super) fn new() -> Self {
        Self {
            next: Page::new(),
            fate: Page::new(),
            holder: Page::new(),
            progress: Page::new(),
            last: Page::new(),
        }
    }

    pub(super) fn clear(&self) {
        self.next.iter().for_each(|next| next.store(0, SeqCst));
        self.last.iter().for_each(|last| last.store(0, SeqCst));
        self.fate
            .iter()
            .flatten()
            .for_each(|fate| fate.store(0, SeqCst));
        self.holder
            .iter()
            .flatten()
            .for_each(|holder| holder.store(0, SeqCst));
    }

    /// A message's number is taken before it is sent, and committed after.
    pub(super) fn number(&self, sender: usize) -> Option<u32> {
        let number = self.next[sender].fetch_add(1, SeqCst);
        ((number as usize) < IDS).then_some(number)
    }

    pub(super) fn has_run_out(&self, senders: usize) -> bool {
        self.next[..senders]
            .iter()
            .any(|next| next.load(SeqCst) as usize >= IDS)
    }

    pub(super) fn counts(&self) -> [u64; SENDERS + RECEIVERS] {
        core::array::from_fn(|seat| self.progress[seat].load(SeqCst))
    }

    fn fate(&self, (sender, number): (usize, u32)) -> &AtomicU8 {
        &self.fate[sender][number as usize]
    }

    pub(super) fn holder(&self, (sender, number): (usize, u32)) -> &AtomicU64 {
        &self.holder[sender][number as usize]
    }

    pub(super) fn mark(&self, id: (usize, u32), bit: u8) -> u8 {
        self.fate(id).fetch_or(bit, SeqCst)
    }

    /// Committed messages that nobody received, received ones that were not sent.
    pub(super) fn reckon(&self, gone: u8) -> (usize, usize) {
        let fates = || self.fate.iter().flatten().map(|fate| fate.load(SeqCst));
        let lost = fates()
            .filter(|fate| fate & COMMITTED != 0 && fate & gone == 0)
            .count();
        (lost, fates().filter(|fate| fate & COMMITTED != 0).count())
    }
}

/// Sender, number, length, and bytes that depend on all three.
pub(super) fn compose(buffer: &mut Vec<u8>, sender: usize, number: u32, length: usize) {
    buffer.clear();
    buffer.extend_from_slice(&(sender as u32).to_le_bytes());
    buffer.extend_from_slice(&number.to_le_bytes());
    buffer.extend_from_slice(&(length as u64).to_le_bytes());
    let mut bytes =
        fastrand::Rng::with_seed((sender as u64) << 48 | u64::from(number) << 16 | length as u64);
    while buffer.len() < length {
        let chunk = bytes.u64(..).to_le_bytes();
        buffer.extend_from_slice(&chunk[..chunk.len().min(length - buffer.len())]);
    }
    buffer.truncate(length.max(HEAD));
}

/// The sender and number of a message that must be whole.
pub(super) fn read(message: &[u8]) -> (usize, u32) {
    let word = |at: usize| u32::from_le_bytes(message[at..at + 4].try_into().unwrap());
    let (sender, number) = (word(0) as usize, word(4));
    assert!(
        sender < SENDERS && (number as usize) < IDS,
        "a message nobody sent: {:?}",
        &message[..HEAD]
    );
    let mut whole = Vec::new();
    compose(&mut whole, sender, number, message.len());
    assert!(
        whole == message,
        "message {number} of {sender} is not whole"
    );
    (sender, number)
}
