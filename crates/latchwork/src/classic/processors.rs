//! Sets of processors as directives take them: in the bytes of C's `cpu_set_t`.

use crate::sys::scheduling::{self, CpuMask, MAX_CPUS};

/// One word of a `cpu_set_t`, C's `unsigned long`.
type Word = usize;

/// A set of processors for the directives that take one: the bytes of C's `cpu_set_t`, an array of `unsigned long` in
/// which processor *n* is bit *n*.
///
/// # Panics
/// If a number is 1024 or larger.
#[must_use]
pub fn processor_set(processors: &[u32]) -> [u8; MAX_CPUS / 8] {
    let mut mask = CpuMask::default();
    for processor in processors {
        let place = *processor as usize;
        assert!(place < MAX_CPUS, "there is no processor {processor}");
        mask[place / 64] |= 1 << (place % 64);
    }
    let mut bytes = [0; MAX_CPUS / 8];
    store(&mask, &mut bytes);
    bytes
}

/// The numbers of the processors in such a set, of any size; `None` if it does not consist of whole words, or names a
/// processor from 1024 on.
#[must_use]
pub fn processors_in(set: &[u8]) -> Option<Vec<u32>> {
    let mask = load(set)?;
    let known = set.len().min(MAX_CPUS / 8);
    if set[known..].iter().any(|byte| *byte != 0) {
        return None;
    }
    let numbers = 0..MAX_CPUS as u32;
    let is_in = |number: &u32| mask[*number as usize / 64] >> (number % 64) & 1 != 0;
    Some(numbers.filter(is_in).collect())
}

/// The set in some bytes, as far as the library knows its processors; `None` if the size is not that of whole words.
pub(super) fn load(bytes: &[u8]) -> Option<CpuMask> {
    let (words, rest) = bytes.as_chunks::<{ size_of::<Word>() }>();
    let mut mask = CpuMask::default();
    for (place, word) in words.iter().enumerate() {
        let first = place * size_of::<Word>() * 8;
        if let Some(part) = mask.get_mut(first / 64) {
            *part |= (Word::from_ne_bytes(*word) as u64) << (first % 64);
        }
    }
    rest.is_empty().then_some(mask)
}

/// Stores the set; `None`, and nothing is stored, if the size is not that of whole words, or too small.
pub(super) fn store(mask: &CpuMask, bytes: &mut [u8]) -> Option<()> {
    let (words, rest) = bytes.as_chunks_mut::<{ size_of::<Word>() }>();
    let room = words.len() * size_of::<Word>() * 8;
    let is_large_enough = highest(mask).is_none_or(|highest| highest < room);
    if !rest.is_empty() || !is_large_enough {
        return None;
    }
    for (place, word) in words.iter_mut().enumerate() {
        let first = place * size_of::<Word>() * 8;
        let part = mask.get(first / 64).map_or(0, |part| part >> (first % 64));
        *word = (part as Word).to_ne_bytes();
    }
    Some(())
}

/// The highest processor in a set.
pub(super) fn highest(mask: &CpuMask) -> Option<usize> {
    let place = mask.iter().rposition(|word| *word != 0)?;
    Some(place * 64 + 63 - mask[place].leading_zeros() as usize)
}

/// All processors of the system.
pub(super) fn all() -> CpuMask {
    let count = scheduling::processor_count() as usize;
    core::array::from_fn(|place| match count.saturating_sub(place * 64) {
        count @ 0..64 => (1 << count) - 1,
        _ => !0,
    })
}

pub(super) fn both(a: &CpuMask, b: &CpuMask) -> CpuMask {
    core::array::from_fn(|place| a[place] & b[place])
}
