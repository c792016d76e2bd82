//! Floors: a ring whose tasks only spin, and the copying alone.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::SharedPage;
use super::{CAPACITY, MOST, MessageQueue, Receives, Sends};

#[repr(C, align(128))]
struct Line(AtomicUsize);

#[repr(C)]
struct Words {
    sent: Line,
    received: Line,
    places: UnsafeCell<[u8; CAPACITY * MOST]>,
}

// SAFETY: the indices assign each slot to the sender or to the receiver.
unsafe impl Sync for Words {}

/// One sender and one receiver, which never sleep.
pub(crate) struct SpinningRing {
    words: SharedPage<Words>,
    size: usize,
}

pub(crate) struct End<'a> {
    ring: &'a SpinningRing,
    mine: usize,
    others: usize,
}

impl MessageQueue for SpinningRing {
    type Sender<'a> = End<'a>;
    type Receiver<'a> = End<'a>;

    fn make(size: usize) -> io::Result<Self> {
        // SAFETY: zero is a valid value of all fields.
        let words = unsafe { SharedPage::zeroed()? };
        Ok(Self { words, size })
    }

    fn sender(&self) -> io::Result<End<'_>> {
        Ok(End {
            ring: self,
            mine: self.words.sent.0.load(Ordering::Relaxed),
            others: 0,
        })
    }

    fn receiver(&self) -> io::Result<End<'_>> {
        Ok(End {
            ring: self,
            mine: self.words.received.0.load(Ordering::Relaxed),
            others: 0,
        })
    }
}

impl End<'_> {
    fn place(&self) -> *mut u8 {
        let offset = self.mine % CAPACITY * self.ring.size;
        // SAFETY: the offset lies within the slots.
        unsafe { self.ring.words.places.get().cast::<u8>().add(offset) }
    }
}

impl Sends for End<'_> {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        let words = &*self.ring.words;
        for _ in 0..times {
            while self.mine.wrapping_sub(self.others) >= CAPACITY {
                // Acquire: pairs with the Release below.
                self.others = words.received.0.load(Ordering::Acquire);
                std::hint::spin_loop();
            }
            // SAFETY: the slot belongs to the sender.
            unsafe {
                self.place()
                    .copy_from_nonoverlapping(message.as_ptr(), message.len())
            };
            self.mine += 1;
            words.sent.0.store(self.mine, Ordering::Release);
        }
        Ok(())
    }
}

impl Receives for End<'_> {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let words = &*self.ring.words;
        for _ in 0..times {
            while self.mine >= self.others {
                // Acquire: pairs with the Release above.
                self.others = words.sent.0.load(Ordering::Acquire);
                std::hint::spin_loop();
            }
            // SAFETY: the slot belongs to the receiver.
            unsafe {
                self.place()
                    .copy_to_nonoverlapping(buffer.as_mut_ptr(), self.ring.size)
            };
            self.mine += 1;
            words.received.0.store(self.mine, Ordering::Release);
        }
        Ok(())
    }
}

/// Only two copies, made by the receiver.
pub(crate) struct Memcpy(usize);
pub(crate) struct Nothing;
pub(crate) struct Copies(Vec<u8>, Vec<u8>);

impl MessageQueue for Memcpy {
    type Sender<'a> = Nothing;
    type Receiver<'a> = Copies;

    fn make(size: usize) -> io::Result<Self> {
        Ok(Self(size))
    }

    fn sender(&self) -> io::Result<Nothing> {
        Ok(Nothing)
    }

    fn receiver(&self) -> io::Result<Copies> {
        Ok(Copies(vec![1; self.0], vec![0; self.0]))
    }
}

impl Sends for Nothing {
    fn send(&mut self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }
}

impl Receives for Copies {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let size = self.0.len();
        for _ in 0..times {
            self.1.copy_from_slice(std::hint::black_box(&self.0));
            buffer[..size].copy_from_slice(std::hint::black_box(&self.1));
        }
        std::hint::black_box(buffer);
        Ok(())
    }
}
