//! The hash function of the region's maps: the same in every process.

use super::super::fingerprint;
use super::super::region_id::RegionId;
use core::hash;

/// Odd numbers without a pattern: the fractional parts of √2 and √3.
const STEP: u64 = 0x6a09_e667_f3bc_c909;
const LAST: u64 = 0xbb67_ae85_84ca_a73b;
/// To be changed with the hash function.
pub(super) const FINGERPRINT: u64 = fingerprint("hasher 1", 0, 0, &[STEP, LAST]);

/// Multiplies to 128 bits and folds the halves: every bit of the operands affects every bit of the result.
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    (product >> 64) as u64 ^ product as u64
}

/// A number that differs from map to map and from run to run.
pub(super) fn seed(region: RegionId) -> u64 {
    fold(
        crate::sys::clock::since_boot() ^ STEP,
        region.raw() as u64 ^ LAST,
    )
}

pub(super) struct Hasher {
    state: u64,
}

impl Hasher {
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn word(&mut self, word: u64) {
        self.state = fold(self.state ^ word, STEP).wrapping_add(LAST);
    }
}

impl hash::Hasher for Hasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        // The length distinguishes a short rest from one with zeros.
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, number: u8) {
        self.word(number.into());
    }
    fn write_u16(&mut self, number: u16) {
        self.word(number.into());
    }
    fn write_u32(&mut self, number: u32) {
        self.word(number.into());
    }
    fn write_u64(&mut self, number: u64) {
        self.word(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.word(number as u64);
    }

    fn finish(&self) -> u64 {
        fold(self.state, LAST)
    }
}
