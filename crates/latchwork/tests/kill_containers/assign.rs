//! An assignment of a whole container, killed at each of its instructions.

use latchwork::mutex::{LockError, Mutex, Robust, RobustGuard};
use latchwork::region::{PinnedFields, Region, RegionOptions, Shareable, TornSafe, Vec};
use latchwork_testkit::Trial;
use latchwork_testkit::step;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;

/// A copy of it by blocks of 16 bytes takes the container's words apart.
#[derive(Shareable, TornSafe, PinnedFields)]
#[repr(C)]
struct Framed {
    before: u64,
    #[pin]
    array: Vec<u64>,
    after: u64,
}

type Shared = Mutex<Framed, Robust>;

/// The container's two words: the name of its region, and the address of its buffer.
fn words(array: &Vec<u64>) -> [usize; 2] {
    const { assert!(size_of::<Vec<u64>>() == 16) };
    // SAFETY: two initialised words.
    #[allow(unsafe_code)]
    unsafe {
        core::ptr::from_ref(array).cast::<[usize; 2]>().read()
    }
}

fn made_in(region: &Region) -> Framed {
    let mut array = Vec::new_in(region);
    array.extend_from_slice(&[1, 2, 3]).unwrap();
    Framed {
        before: 1,
        array,
        after: 2,
    }
}

/// Locks as a successor would. Says whether the owner died.
fn lock(array: Pin<&Shared>) -> (RobustGuard<'_, Framed>, bool) {
    match array.lock() {
        Ok(array) => (array, false),
        Err(LockError::OwnerDied(died)) => (died.make_consistent(), true),
        Err(error) => panic!("{error}"),
    }
}

/// A mixture of two containers would lead from one region's name into the other region.
#[test]
fn an_assignment_killed_at_any_instruction_mixes_no_containers() {
    let trial = Trial::begin("an_assignment_killed_at_any_instruction_mixes_no_containers");
    let make_region = || {
        RegionOptions::new()
            .max_bytes(4 << 20)
            .create_anonymous()
            .unwrap()
    };
    let (one, other) = (make_region(), make_region());
    let array = one
        .object("array", || Mutex::robust(made_in(&one)))
        .unwrap();
    for replaces in [false, true] {
        let name = if replaces { "replace" } else { "set" };
        let covered = step::each_instruction_and_recovery(
            &trial,
            name,
            || {
                let (mut array, _) = lock(array);
                array.as_mut().set(made_in(&one));
            },
            |(), span| {
                if replaces {
                    // A panic leaves the lock as a death does.
                    let panics = std::panic::catch_unwind(AssertUnwindSafe(|| {
                        let _array = lock(array).0;
                        std::panic::resume_unwind(Box::new(()));
                    }));
                    assert!(panics.is_err());
                    let Err(LockError::OwnerDied(died)) = array.lock() else {
                        panic!("the owner has panicked");
                    };
                    let new = made_in(&other);
                    span.run(|| drop(died.replace(new)));
                } else {
                    let (mut array, _) = lock(array);
                    let new = made_in(&other);
                    span.run(|| array.as_mut().set(new));
                }
            },
            |()| false,
            |(), span| {
                span.run(|| {
                    let (mut array, _) = lock(array);
                    array.as_mut().set(made_in(&one));
                });
            },
            |(), point| {
                let (mut array, _) = lock(array);
                let [id, buffer] = words(&array.array);
                let of = |region: &Region, address: usize| {
                    // A region begins at a multiple of 64 KiB, which its name contains.
                    (address & 0x7fff_ffff_0000).wrapping_sub(region.base().addr()) < 4 << 20
                };
                for region in [&one, &other] {
                    let mixed = id != 0 && buffer != 0 && of(region, id) != of(region, buffer);
                    assert!(!mixed, "{name} at {point:?}: {id:#x} {buffer:#x}");
                }
                let place = match id {
                    0 => "nothing is there",
                    _ if of(&other, id) => step::done(true),
                    _ => step::done(false),
                };
                array.as_mut().set(made_in(&one));
                assert_eq!(array.array[..], [1, 2, 3]);
                assert_eq!((array.before, array.after), (1, 2));
                drop(array);
                one.sweep().unwrap();
                other.sweep().unwrap();
                one.check_heap().unwrap();
                other.check_heap().unwrap();
                place
            },
        );
        if covered.is_none() {
            return;
        }
    }
}
