//! Regions: objects, attachment, and what happens to bad ones.
#![allow(unsafe_code)]

use core::pin::Pin;
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{ObjectError, Region, RegionOptions, Shareable};
use latchwork_testkit::{Leftover, Trial};

/// A small one.
fn region() -> Region {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .create_anonymous()
        .unwrap()
}

static LOCK: Mutex<u32, Robust> = Mutex::robust(0);

#[test]
fn robust_static_works() {
    *Pin::static_ref(&LOCK).lock().unwrap() += 1;
    let lock = Pin::static_ref(&LOCK);
    let _guard = lock.lock().unwrap();
    assert!(matches!(lock.lock(), Err(LockError::Deadlock)));
}

#[test]
fn an_object_is_made_once_and_found_again() {
    let region = RegionOptions::new()
        .max_bytes(8 << 20)
        .create_anonymous()
        .unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    *hits.lock().unwrap() += 1;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let region = region.clone();
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    *region
                        .find::<Mutex<u64, Robust>>("hits")
                        .unwrap()
                        .lock()
                        .unwrap() += 1;
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*hits.lock().unwrap(), 4001);
    region.check_heap().unwrap();
}

/// A container borrows from no handle: it must not be left without its memory.
#[test]
fn a_container_that_was_read_outlives_all_handles() {
    let region = region();
    let mut numbers = latchwork::region::Vec::new_in(&region);
    numbers.push(7u64).unwrap();
    assert_eq!(numbers[0], 7);
    region.detach().unwrap();
    numbers.push(8).unwrap();
    assert_eq!(numbers.as_slice(), [7, 8]);
}

/// Without containers a region goes with its last handle: there is no end to how many.
#[test]
fn regions_come_and_go() {
    for round in 0..200u32 {
        let region = region();
        assert_eq!(
            *region
                .object("round", || Mutex::robust(round))
                .unwrap()
                .lock()
                .unwrap(),
            round
        );
        region.detach().unwrap();
    }
}

/// Not while another test forks: the child has the region mapped, too.
#[test]
fn unlink_at_last_detach_removes_the_name() {
    let _trial = Trial::begin("unlink_at_last_detach_removes_the_name");
    let (name, _file) = Leftover::region("last");
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .unlink_at_last_detach(true)
        .create_named(&name)
        .unwrap();
    let again = RegionOptions::new().attach(&name).unwrap();
    let path = region.path().unwrap().to_owned();
    let words = again
        .object("words", || {
            Mutex::robust(latchwork::region::String::new_in(&region))
        })
        .unwrap();
    words.lock().unwrap().edit().push_str("still here").unwrap();
    region.detach().unwrap();
    assert!(path.exists());
    again.detach().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_thread_that_holds_a_lock_cannot_leave() {
    let region = region();
    let other = region.clone();
    let lock = other.object("lock", || Mutex::robust(())).unwrap();
    let held = lock.lock().unwrap();
    let Err(latchwork::region::DetachError::Holding {
        locks: 1,
        messages: 0,
        region,
    }) = region.detach()
    else {
        panic!("detached")
    };
    drop(held);
    region.detach().unwrap();
}

/// Neither the heap nor the directory is touched on behalf of the parent.
#[test]
fn the_child_of_a_fork_does_not_finish_its_parents_object() {
    let _trial = Trial::begin("the_child_of_a_fork_does_not_finish_its_parents_object");
    let region = region();
    // SAFETY: no preconditions.
    let parent = unsafe { libc::getpid() };
    for panics in [false, true] {
        let mut status = 0;
        let mut pid = 0;
        let name = format!("panics: {panics}");
        let make = || {
            let before = region.heap_stats().shared_blocks;
            // SAFETY: the child runs what follows, which ends it.
            pid = unsafe { libc::fork() };
            if pid == 0 && panics {
                std::panic::resume_unwind(Box::new(()));
            }
            // SAFETY: waits for our own child and writes the variable; in the child it fails.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert_eq!(region.heap_stats().shared_blocks, before);
            Mutex::robust(7_u64)
        };
        let object = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
            region
                .object(&name, make)
                .map(|object| *object.lock().unwrap())
        }));
        // SAFETY: no preconditions; ends a child that came so far.
        unsafe {
            if libc::getpid() != parent {
                libc::_exit(0);
            }
        }
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
        assert_eq!(object.unwrap().unwrap(), 7);
    }
    assert!(matches!(
        region.find::<u64>("nothing"),
        Err(ObjectError::NotFound)
    ));
    region.check_heap().unwrap();
}

#[allow(dead_code, reason = "what the derive writes is used")]
mod one {
    use super::Shareable;

    #[derive(Shareable)]
    #[shareable(unsafe(name = "Colour"))]
    #[repr(u8)]
    pub enum Colour {
        Red = 1,
        Green = 200,
    }
    #[derive(Shareable)]
    #[shareable(unsafe(name = "Either"))]
    #[repr(C)]
    pub enum Either {
        This(u8, u32),
        That(u64),
    }
    #[derive(Shareable)]
    #[shareable(unsafe(name = "Sign"))]
    #[repr(i8)]
    pub enum Sign {
        Minus = -1,
        Zero,
        Plus,
    }
    #[derive(Shareable)]
    #[shareable(unsafe(name = "Pair"))]
    #[repr(C)]
    pub struct Pair(pub u8, pub u16);
}

/// The same names, fields and sizes.
#[allow(dead_code, reason = "what the derive writes is used")]
mod other {
    use super::Shareable;

    #[derive(Shareable)]
    #[shareable(unsafe(name = "Colour"))]
    #[repr(u8)]
    pub enum Colour {
        Red,
        Green,
    }
    #[derive(Shareable)]
    #[shareable(unsafe(name = "Either"))]
    #[repr(u32)]
    pub enum Either {
        This(u8, u32),
        That(u64),
    }
    #[derive(Shareable)]
    #[shareable(unsafe(name = "Sign"))]
    #[repr(i8)]
    pub enum Sign {
        Minus = -1,
        Zero = 1,
        Plus,
    }
    #[derive(Shareable)]
    #[shareable(unsafe(name = "Pair"))]
    #[repr(C, packed(2))]
    pub struct Pair(pub u8, pub u16);
}

/// The same as in [`one`], said in other words.
#[allow(dead_code, reason = "what the derive writes is used")]
mod again {
    use super::Shareable;

    #[derive(Shareable)]
    #[shareable(unsafe(name = "Sign"))]
    #[repr(i8)]
    pub enum Sign {
        Minus = 1 - 2,
        Zero,
        Plus = Sign::Zero as i8 + 1,
    }
}

#[test]
fn types_of_other_values_or_representation_are_other_types() {
    assert_ne!(one::Colour::FINGERPRINT, other::Colour::FINGERPRINT);
    assert_ne!(one::Either::FINGERPRINT, other::Either::FINGERPRINT);
    assert_ne!(one::Sign::FINGERPRINT, other::Sign::FINGERPRINT);
    assert_ne!(one::Pair::FINGERPRINT, other::Pair::FINGERPRINT);
    assert_eq!(one::Sign::FINGERPRINT, again::Sign::FINGERPRINT);
    assert_eq!(size_of::<one::Pair>(), size_of::<other::Pair>());
    let region = region();
    region.object("colour", || one::Colour::Green).unwrap();
    assert!(matches!(
        region.find::<other::Colour>("colour"),
        Err(ObjectError::OtherType)
    ));
}

/// Two types of one name and one layout, of which one keeps a promise.
mod bounded {
    use super::Shareable;

    #[derive(Shareable)]
    #[repr(C)]
    pub struct Index {
        value: usize,
    }

    impl Index {
        /// Less than 4, as this module says.
        pub fn get(&self) -> usize {
            self.value
        }
    }
}

mod unbounded {
    use super::Shareable;

    #[derive(Shareable)]
    #[repr(C)]
    pub struct Index {
        pub value: usize,
    }
}

#[test]
fn a_type_of_the_same_name_in_another_module_is_another_type() {
    let region = region();
    region
        .object("index", || unbounded::Index { value: 1 << 40 })
        .unwrap();
    let found = region.find::<bounded::Index>("index");
    let found = found.map(|index| index.get());
    assert!(matches!(found, Err(ObjectError::OtherType)));
    assert_eq!(
        region.find::<unbounded::Index>("index").unwrap().value,
        1 << 40
    );
}

#[test]
fn types_of_other_parameters_are_other_types() {
    #[derive(Shareable)]
    #[repr(C)]
    struct Below<const MAX: usize> {
        value: usize,
    }
    #[derive(Shareable)]
    #[repr(C)]
    struct Signed<const LEAST: i128, const IS_ODD: bool, const LETTER: char>(u8);
    trait Kind {
        type Value: Shareable;
    }
    impl Kind for u8 {
        type Value = u64;
    }
    impl Kind for u16 {
        type Value = u64;
    }
    #[derive(Shareable)]
    #[repr(C)]
    struct Of<T: Kind> {
        value: T::Value,
    }
    /// Its name stands for its type.
    #[derive(Shareable)]
    #[shareable(unsafe(name = "org.example.Named"))]
    #[repr(C)]
    struct Named<T: Kind, const N: usize> {
        value: T::Value,
    }
    struct NotShareable;
    impl Kind for NotShareable {
        type Value = u64;
    }

    let region = region();
    let ten = region.object("ten", || Below::<10> { value: 9 }).unwrap();
    assert_eq!(ten.value, 9);
    let found = region.find::<Below<4>>("ten").map(|below| below.value);
    assert!(matches!(found, Err(ObjectError::OtherType)));
    let prints = [
        <Signed<-1, false, 'a'>>::FINGERPRINT,
        <Signed<1, false, 'a'>>::FINGERPRINT,
        <Signed<{ 1 << 64 }, false, 'a'>>::FINGERPRINT,
        <Signed<0, false, 'a'>>::FINGERPRINT,
        <Signed<0, true, 'a'>>::FINGERPRINT,
        <Signed<0, true, 'b'>>::FINGERPRINT,
        <Of<u8>>::FINGERPRINT,
        <Of<u16>>::FINGERPRINT,
        <Named<u8, 1>>::FINGERPRINT,
        <Named<u8, 2>>::FINGERPRINT,
    ];
    for (index, one) in prints.iter().enumerate() {
        assert!(!prints[index + 1..].contains(one), "{index}");
    }
    assert_eq!(
        <Named<u8, 1>>::FINGERPRINT,
        <Named<NotShareable, 1>>::FINGERPRINT
    );
    let read = (Signed::<0, true, 'a'>(1).0, Of::<u8> { value: 2 }.value);
    let named = Named::<u8, 1> { value: 3 }.value;
    assert_eq!((read, named), ((1, 2), 3));
}

#[test]
fn nothing_is_found_as_a_proof_that_was_never_made() {
    #[derive(Shareable)]
    #[repr(C)]
    struct Token;

    let region = region();
    region.object::<[Token; 0]>("token", || []).unwrap();
    let found = region.find::<[Token; 1]>("token").map(|_| ());
    assert!(matches!(found, Err(ObjectError::OtherType)));
    let _ = Token;
}
