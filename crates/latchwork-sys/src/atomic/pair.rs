//! Two words of 64 bits that change together.
//!
//! Both architectures have instructions for this: `cmpxchg16b` (each x86-64 processor since 2006) and `ldaxp`
//! with `stlxp`. Stable Rust has no such atomic type. A load reads each word separately: the two values may be
//! of different moments, and then a compare-and-swap that expects them fails.
#![allow(unsafe_code)]

use super::{AtomicU64, Ordering};

/// Two words; sleepers wait on the high half of the second one.
#[cfg(not(loom))]
#[repr(C, align(16))]
pub struct AtomicPair([AtomicU64; 2]);

#[cfg(not(loom))]
impl AtomicPair {
    /// Each of the words, loaded separately.
    #[inline]
    pub fn load(&self) -> [u64; 2] {
        // Relaxed: the compare-and-swap decides.
        self.0.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// The second word.
    #[inline]
    pub fn load_second(&self, order: Ordering) -> u64 {
        self.0[1].load(order)
    }

    /// Stores the words one after the other, the first one first.
    pub fn store(&self, words: [u64; 2]) {
        self.0[0].store(words[0], Ordering::Release);
        self.0[1].store(words[1], Ordering::Release);
    }

    /// The second word, to sleep on its high half.
    pub fn sleep_word(&self) -> &AtomicU64 {
        &self.0[1]
    }

    /// The value of [`Self::sleep_word`] while the words have these values.
    pub fn asleep_value(words: [u64; 2]) -> u64 {
        words[1]
    }

    /// Stores `new` if the words are `old`. The ordering is at least AcqRel, whichever the caller asks for.
    #[inline]
    #[cfg(target_arch = "x86_64")]
    pub fn compare_exchange(&self, old: [u64; 2], new: [u64; 2], _: Ordering) -> bool {
        let done: u64;
        // SAFETY: the two words belong to `self` and are aligned to 16 bytes. LLVM reserves `rbx`: the code
        // restores it.
        unsafe {
            core::arch::asm!(
                "xchg {first}, rbx",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "sete cl",
                "mov rbx, {first}",
                first = inout(reg) new[0] => _,
                inout("rcx") new[1] => done,
                inout("rax") old[0] => _,
                inout("rdx") old[1] => _,
                in("rdi") self.0.as_ptr(),
                options(nostack),
            );
        }
        done as u8 != 0
    }

    /// Stores `new` if the words are `old`. The ordering is at least AcqRel, whichever the caller asks for.
    #[inline]
    #[cfg(target_arch = "aarch64")]
    pub fn compare_exchange(&self, old: [u64; 2], new: [u64; 2], _: Ordering) -> bool {
        let failed: u64;
        // SAFETY: the two words belong to `self` and are aligned to 16 bytes.
        unsafe {
            core::arch::asm!(
                "2:",
                "ldaxp {first}, {second}, [{at}]",
                "cmp {first}, {old_first}",
                "ccmp {second}, {old_second}, #0, eq",
                "b.ne 3f",
                "stlxp {failed:w}, {new_first}, {new_second}, [{at}]",
                "cbnz {failed:w}, 2b",
                "b 4f",
                "3:",
                "clrex",
                "mov {failed}, #1",
                "4:",
                first = out(reg) _,
                second = out(reg) _,
                failed = out(reg) failed,
                at = in(reg) self.0.as_ptr(),
                old_first = in(reg) old[0],
                old_second = in(reg) old[1],
                new_first = in(reg) new[0],
                new_second = in(reg) new[1],
                options(nostack),
            );
        }
        failed == 0
    }
}

/// The same in one word of loom's, for values whose 32-bit halves fit 16 bits. Its loads are of one moment.
#[cfg(loom)]
#[derive(Default)]
pub struct AtomicPair(AtomicU64);

#[cfg(loom)]
impl AtomicPair {
    /// The high halves of both words above their low ones: sleepers in a model compare both high halves.
    fn pack([first, second]: [u64; 2]) -> u64 {
        let part = |word: u64, high: bool| {
            let part = if high { word >> 32 } else { word & 0xffff_ffff };
            assert!(part < 1 << 16, "too wide for a model");
            part
        };
        part(second, true) << 48
            | part(first, true) << 32
            | part(second, false) << 16
            | part(first, false)
    }

    fn unpack(word: u64) -> [u64; 2] {
        let part = |place: u64| word >> (16 * place) & 0xffff;
        [part(2) << 32 | part(0), part(3) << 32 | part(1)]
    }

    #[track_caller]
    #[inline]
    pub fn load(&self) -> [u64; 2] {
        Self::unpack(self.0.load(Ordering::Relaxed))
    }

    #[track_caller]
    pub fn load_second(&self, order: Ordering) -> u64 {
        Self::unpack(self.0.load(order))[1]
    }

    #[track_caller]
    pub fn store(&self, words: [u64; 2]) {
        // A swap, so that all changes of the word are read-modify-writes (loom orders stores loosely).
        self.0.swap(Self::pack(words), Ordering::Relaxed);
    }

    /// A store in place of a read-modify-write, for a negative twin.
    #[track_caller]
    pub fn store_blindly(&self, words: [u64; 2]) {
        self.0.store(Self::pack(words), Ordering::Relaxed);
    }

    pub fn sleep_word(&self) -> &AtomicU64 {
        &self.0
    }

    pub fn asleep_value(words: [u64; 2]) -> u64 {
        Self::pack(words)
    }

    #[track_caller]
    pub fn compare_exchange(&self, old: [u64; 2], new: [u64; 2], order: Ordering) -> bool {
        let (old, new) = (Self::pack(old), Self::pack(new));
        self.0
            .compare_exchange(old, new, order, Ordering::Relaxed)
            .is_ok()
    }
}
