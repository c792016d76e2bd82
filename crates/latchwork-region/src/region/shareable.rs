//! The types whose values may be placed in a region.
#![allow(unsafe_code)]

use crate::mutex::throughput::Counters;
use crate::mutex::{
    DataState, InRegion, Inherit, InheritPlain, Mutex, Protect, RegionProtocol, Robust,
    RobustProtocol, Throughput, WaitWake,
};
use crate::rwlock::{self, Counting, Preference, RawRwLock, RobustRwLock, RwLock, SeatLock};
use crate::sharing::Shared;
use core::mem::MaybeUninit;

/// A type whose values have the same meaning in every process that maps them at the same address.
///
/// Shareable are numbers and characters; arrays, `Option`s and tuples (of up to eight parts) of shareable types; and
/// this crate's locks and containers. Builds by different compilers cannot share an object that contains an `Option`:
/// [`ObjectError::OtherType`](super::ObjectError::OtherType). Not shareable are values that refer to one process:
/// references to its stack or heap, file descriptors, `Rc`, `Box`, `String`, the locks of std and of parking_lot,
/// private locks of this crate, function pointers.
///
/// Derive the trait. The programs that use an object must take its type from one crate: a type is identified by its
/// crate, module and name, with its parameters, since another type with the same fields may allow other operations.
/// (Programs that include one source file instead name the type, see the [derive](derive@super::Shareable).)
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{Shareable, TornSafe};
///
/// #[derive(Shareable, TornSafe)]
/// #[repr(C)]
/// struct Account {
///     balance: i64,
///     transfers: u64,
/// }
///
/// #[derive(Shareable)]
/// #[repr(C)]
/// struct Bank {
///     accounts: [Mutex<Account, Robust>; 4],
/// }
/// ```
///
/// # Safety
/// A value that one process wrote is a valid value of the type in every other process that maps the same memory at
/// the same address. The layout is the same in every build with the same `FINGERPRINT`. Several tasks may use the
/// type at a time through `&T`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be placed in a region",
    label = "not `Shareable`",
    note = "a region is shared between processes: use `Mutex<_, InRegion>` and the containers of `latchwork::region`, and #[derive(Shareable)] for your own types"
)]
pub unsafe trait Shareable: Send + Sync + 'static {
    /// Identifies the layout: two builds with the same fingerprint can read each other's values.
    const FINGERPRINT: u64;

    /// Whether a part of the type is a lock that names its owner by a thread ID. Such IDs mean something within one PID
    /// namespace: a region for [any namespace](super::RegionOptions::any_pid_namespace) refuses the type.
    const NAMES_THREADS: bool = false;
}

/// Combines a type's name, size, alignment and the fingerprints of its parts; for the derive macro.
#[must_use]
pub const fn fingerprint(label: &str, size: usize, align: usize, parts: &[u64]) -> u64 {
    let mut hash = Fnv::new()
        .bytes(label.as_bytes())
        .number(size as u64)
        .number(align as u64);
    let mut index = 0;
    while index < parts.len() {
        hash = hash.number(parts[index]);
        index += 1;
    }
    hash.0
}

/// The fingerprint of a type with this label and these parts.
pub(super) const fn fingerprint_of<T>(label: &str, parts: &[u64]) -> u64 {
    fingerprint(label, size_of::<T>(), align_of::<T>(), parts)
}

/// The identity of a type across programs, for the derive macro: its package with the semantically significant part
/// of the version, the kind of program, the module, and the name of the type.
#[doc(hidden)]
#[must_use]
pub const fn type_path(package: [Option<&str>; 4], module: &str, name: &str) -> u64 {
    let [package, major, minor, program] = package;
    // Before 1.0, semantic versioning allows incompatible changes in minor versions.
    let minor = match major {
        Some(major) if matches!(major.as_bytes(), b"0") => minor,
        _ => None,
    };
    Fnv::new()
        .text(package)
        .text(major)
        .text(minor)
        .text(program)
        .text(Some(module))
        .text(Some(name))
        .0
}

/// FNV-1a, which can run at compile time.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    const fn bytes(mut self, bytes: &[u8]) -> Self {
        let mut index = 0;
        while index < bytes.len() {
            self.0 = (self.0 ^ bytes[index] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            index += 1;
        }
        self
    }

    /// Hashes a text that may be missing, followed by its length, which separates it from the next one.
    const fn text(self, text: Option<&str>) -> Self {
        match text {
            Some(text) => self.bytes(text.as_bytes()).number(text.len() as u64),
            None => self.number(u64::MAX),
        }
    }

    const fn number(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }
}

macro_rules! plain {
    ($($ty:ty),* $(,)?) => {$(
        // SAFETY: plain data without pointers, the same in every process; or atomics, and the futex key of a shared
        // word is the memory itself, whichever process maps it.
        unsafe impl Shareable for $ty {
            const FINGERPRINT: u64 = fingerprint_of::<Self>(stringify!($ty), &[]);
        }
    )*};
}

plain!(
    char,
    crate::barrier::Barrier<Shared>,
    crate::completion::Completion<Shared>,
    crate::condvar::Condvar<Shared>,
    crate::once::Once,
    crate::once::RegionOnce,
    crate::spin::Spin,
);
crate::torn_safe::each_number!(plain);

// SAFETY: an array is Shareable if its elements are.
unsafe impl<T: Shareable, const N: usize> Shareable for [T; N] {
    // The size does not give the number of elements of a zero-sized type, and such elements may serve as proofs.
    const FINGERPRINT: u64 = fingerprint_of::<Self>("array", &[T::FINGERPRINT, N as u64]);
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}
/// The compiler, which chooses the layout of types whose layout is not fixed.
const COMPILER: u64 = fingerprint(env!("LATCHWORK_COMPILER"), 0, 0, &[]);

// SAFETY: the content is Shareable; different compilers may encode `None` in different ways, but have different
// fingerprints.
unsafe impl<T: Shareable> Shareable for Option<T> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("Option", &[T::FINGERPRINT, COMPILER]);
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}

macro_rules! tuples {
    ($($name:ident $index:tt),*) => {
        // SAFETY: the parts are Shareable, and the fingerprint contains their offsets.
        unsafe impl<$($name: Shareable),*> Shareable for ($($name,)*) {
            const FINGERPRINT: u64 = fingerprint_of::<Self>(
                "tuple",
                &[$($name::FINGERPRINT, core::mem::offset_of!(Self, $index) as u64),*],
            );
            const NAMES_THREADS: bool = $($name::NAMES_THREADS)||*;
        }
    };
}
tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

// SAFETY: the content is Shareable, and need not be valid.
unsafe impl<T: Shareable> Shareable for MaybeUninit<T> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("MaybeUninit", &[T::FINGERPRINT]);
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}

macro_rules! kernel_words {
    ($names_threads:literal: $($lock:ident),*) => {$(
        // SAFETY: a word whose futex key is the memory itself, whichever process maps it; in `Protect` also a number.
        unsafe impl Shareable for $lock<Shared> {
            const FINGERPRINT: u64 = fingerprint_of::<Self>(stringify!($lock), &[]);
            const NAMES_THREADS: bool = $names_threads;
        }
    )*};
}
// SAFETY: words, which name tasks of the region. The forms differ in their size, which is in the fingerprint.
unsafe impl<P: RegionProtocol> Shareable for InRegion<P> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("InRegion", &[]);
}

kernel_words!(true: Inherit, InheritPlain, Throughput);
kernel_words!(false: Protect, WaitWake);

// SAFETY: a shared lock word, whose futex key is the memory itself, and counters.
unsafe impl Shareable for Throughput<Shared, Counters> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("CountedThroughput", &[]);
    const NAMES_THREADS: bool = true;
}

// SAFETY: only the owner accesses its links, and they contain addresses that are the same everywhere.
unsafe impl<P: RobustProtocol + Shareable> Shareable for Robust<P> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("Robust", &[P::FINGERPRINT]);
    const NAMES_THREADS: bool = true;
}

// SAFETY: the lock gives access to the data to one task at a time, of any process.
unsafe impl<T: Shareable, P: DataState + Shareable> Shareable for Mutex<T, P> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>("Mutex", &[T::FINGERPRINT, P::FINGERPRINT]);
    const NAMES_THREADS: bool = T::NAMES_THREADS || P::NAMES_THREADS;
}

// SAFETY: the futex key of a shared word is the memory itself, whichever process maps it.
unsafe impl<P: Preference> Shareable for RawRwLock<Shared, P> {
    const FINGERPRINT: u64 = fingerprint_of::<Self>(
        "RawRwLock", // Tasks with different rules could starve each other.
        &[P::READERS_FIRST as u64, P::STARVES_AFTER.as_nanos() as u64],
    );
}

// SAFETY: as without counters, which are numbers that any task may change.
unsafe impl<P: Preference> Shareable for RawRwLock<Shared, P, Counters<rwlock::Event>> {
    const FINGERPRINT: u64 =
        fingerprint_of::<Self>("CountedRwLock", &[<RawRwLock<Shared, P>>::FINGERPRINT]);
}

// SAFETY: the lock gives access to the data to one task at a time, or shared access to several, of any process.
unsafe impl<T: Shareable, P: Preference, C: Counting<rwlock::Event>> Shareable
    for RwLock<T, Shared, P, C>
where
    RawRwLock<Shared, P, C>: Shareable,
{
    const FINGERPRINT: u64 = fingerprint_of::<Self>(
        "RwLock",
        &[T::FINGERPRINT, <RawRwLock<Shared, P, C>>::FINGERPRINT],
    );
    const NAMES_THREADS: bool = T::NAMES_THREADS;
}

// SAFETY: as for the other read-write lock; it consists of robust mutexes and numbers.
unsafe impl<T: Shareable, const READERS: usize, C: Counting<rwlock::Event>, K: SeatLock + Shareable>
    Shareable for RobustRwLock<T, READERS, C, K>
{
    const FINGERPRINT: u64 = fingerprint_of::<Self>(
        "RobustRwLock",
        &[T::FINGERPRINT, K::FINGERPRINT, size_of::<C>() as u64],
    );
    const NAMES_THREADS: bool = T::NAMES_THREADS || K::NAMES_THREADS;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_differ_between_types() {
        let all = [
            u32::FINGERPRINT,
            i32::FINGERPRINT,
            <[u32; 2]>::FINGERPRINT,
            u64::FINGERPRINT,
            <Mutex<u32, Robust>>::FINGERPRINT,
            <Mutex<u32, InRegion>>::FINGERPRINT,
            <Mutex<u32, InRegion<Throughput<Shared>>>>::FINGERPRINT,
            <RwLock<u32, Shared>>::FINGERPRINT,
            <RwLock<u32, Shared, rwlock::ReadersFirst>>::FINGERPRINT,
            <RobustRwLock<u32>>::FINGERPRINT,
            <RobustRwLock<u32, 4>>::FINGERPRINT,
            <rwlock::RegionRwLock<u32, 4>>::FINGERPRINT,
            <RobustRwLock<u32, 4, Counters<rwlock::Event>>>::FINGERPRINT,
            <RwLock<u32, Shared, rwlock::WritersFirst, Counters<rwlock::Event>>>::FINGERPRINT,
            <Option<u32>>::FINGERPRINT,
            <Option<bool>>::FINGERPRINT,
            <Option<Option<bool>>>::FINGERPRINT,
            <(u32,)>::FINGERPRINT,
            <(u32, u32)>::FINGERPRINT,
            <(u32, u8)>::FINGERPRINT,
            <(u8, u32)>::FINGERPRINT,
            <(u32, (u32, u32))>::FINGERPRINT,
            <((u32, u32), u32)>::FINGERPRINT,
            <(u32, u32, u32)>::FINGERPRINT,
            <[(); 0]>::FINGERPRINT,
            <[(); 1]>::FINGERPRINT,
            <[(); 2]>::FINGERPRINT,
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one));
        }
    }

    #[test]
    fn type_paths_differ_between_crates_modules_and_names() {
        let index_of = |package| type_path(package, "bank::a", "Index");
        let bank = [Some("bank"), Some("1"), Some("2"), None];
        let all = [
            index_of(bank),
            type_path(bank, "bank::b", "Index"),
            type_path(bank, "bank::a", "Indices"),
            type_path(bank, "bank::aI", "ndex"),
            index_of([Some("shop"), Some("1"), Some("2"), None]),
            index_of([Some("bank"), Some("2"), Some("2"), None]),
            index_of([Some("bank"), Some("0"), Some("2"), None]),
            index_of([Some("bank"), Some("0"), Some("3"), None]),
            index_of([None; 4]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one), "{index}");
        }
        let later = [Some("bank"), Some("1"), Some("3"), None];
        assert_eq!(index_of(later), all[0]);
    }
}
