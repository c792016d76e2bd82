//! Which states of a model are known: by their numbers, or, if there are very many, by their hashes.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A quick hash of many small fields: eight of them are put together to 64 bits, and these are multiplied by 64 bits that
/// depend on all before; both halves of the product count.
/// (The fields of a state stand in fixed places: so it does no harm that other sequences of fields are hashed alike.)
#[derive(Clone, Copy, Default)]
pub(super) struct Mix {
    mixed: u64,
    /// Fields that are not mixed yet, and how many.
    fields: u64,
    count: u32,
}

impl Mix {
    fn mix(&mut self, value: u64) {
        // The numbers of which wyhash is made.
        let [left, right] = [
            self.mixed ^ 0xa076_1d64_78bd_642f,
            value ^ 0xe703_7ed1_a0b4_28db,
        ];
        let product = u128::from(left) * u128::from(right);
        self.mixed = (product >> 64) as u64 ^ product as u64;
    }

    fn flush(&mut self) {
        let Self { fields, count, .. } = core::mem::replace(
            self,
            Self {
                mixed: self.mixed,
                ..Self::default()
            },
        );
        self.mix(fields);
        self.mix(count.into());
    }
}

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.fields = self.fields << 8 | u64::from(value);
        self.count += 1;
        if self.count == 8 {
            self.count = 0;
            self.mix(self.fields);
        }
    }

    fn write_u64(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(small) => self.write_u8(small),
            Err(_) => {
                self.flush();
                self.mix(value);
            }
        }
    }

    fn write_u16(&mut self, value: u16) {
        self.write_u64(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn finish(&self) -> u64 {
        let mut last = *self;
        last.flush();
        last.mix(0x9e37_79b9_7f4a_7c15);
        last.mixed
    }
}

pub(super) type Numbers<S> = HashMap<S, u32, BuildHasherDefault<Mix>>;

pub(super) fn hash_of(state: &impl Hash) -> u64 {
    let mut hasher = Mix::default();
    state.hash(&mut hasher);
    // 0 is an empty place.
    hasher.finish().max(1)
}

/// A set of hashes.
pub(super) struct Hashes {
    places: Vec<u64>,
    pub(super) len: usize,
}

impl Hashes {
    pub(super) fn new() -> Self {
        Self {
            places: vec![0; 1 << 16],
            len: 0,
        }
    }

    /// Brings the places of these hashes near.
    pub(super) fn touch(&self, hashes: &[u64]) {
        let mask = self.places.len() - 1;
        let places = hashes.iter().map(|hash| self.places[*hash as usize & mask]);
        core::hint::black_box(places.fold(0, |all, place| all | place));
    }

    /// Returns whether the hash was not there.
    pub(super) fn insert(&mut self, hash: u64) -> bool {
        if self.len >= self.places.len() / 4 * 3 {
            let old = std::mem::take(&mut self.places);
            self.places = vec![0; old.len() * 2];
            for hash in old.into_iter().filter(|hash| *hash != 0) {
                let place = self.place(hash);
                self.places[place] = hash;
            }
        }
        let place = self.place(hash);
        let is_new = self.places[place] == 0;
        self.places[place] = hash;
        self.len += usize::from(is_new);
        is_new
    }

    /// Where a hash is, or belongs.
    fn place(&self, hash: u64) -> usize {
        let mask = self.places.len() - 1;
        let mut place = hash as usize & mask;
        while self.places[place] != 0 && self.places[place] != hash {
            place = (place + 1) & mask;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_hashes_grows_and_forgets_none() {
        let mut hashes = Hashes::new();
        let all = || (1..200_000_u64).map(|number| hash_of(&number));
        assert!(all().all(|hash| hashes.insert(hash)));
        assert!(!all().any(|hash| hashes.insert(hash)));
        assert_eq!(hashes.len, 199_999);
    }
}
