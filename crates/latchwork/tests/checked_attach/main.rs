//! Checked attach: what the objects of a region hold is validated before a pointer in it is followed.

use latchwork::mutex::{InRegion, Mutex, WaitWake};
use latchwork::region::{AttachError, RegionOptions, Vec as RegionVec};
use latchwork::sharing::Shared;
use latchwork_testkit::{Leftover, Seed, Trial};
use mutations::{ADDRESS, Image, attach_and_use};

mod deaths;
mod forged;
mod mutations;
mod reserved;
mod scene;
mod undo;

/// Mutated files in each run of the suite.
const MUTATIONS: u64 = 2_000;

#[test]
fn a_sound_region_passes_the_check_with_all_that_it_holds() {
    let _trial = Trial::begin("a_sound_region_passes_the_check_with_all_that_it_holds");
    let image = Image::of(scene::fill);
    let plain = attach_and_use(&RegionOptions::new(), &image.bytes).unwrap();
    let checked = attach_and_use(&scene::checked(), &image.bytes).unwrap();
    assert_eq!(plain, checked);
    assert!(plain > 800, "{plain}");
}

#[test]
fn a_mutated_region_is_refused_by_a_checked_attach_or_works() {
    let trial = Trial::begin("a_mutated_region_is_refused_by_a_checked_attach_or_works");
    let image = Image::of(scene::fill);
    let tally = mutations::run(&image, trial.seed(), trial.times(MUTATIONS), true);
    println!("{:?}", tally.ends);
    assert!(tally.crashes.is_empty(), "{:#?}", tally.crashes);
    let ended = |end: &str| tally.ends.get(end).copied().unwrap_or(0);
    assert!(
        ended("used") > 0 && ended("Unsound") > 0 && ended("Damaged") > 0,
        "{:?}",
        tally.ends
    );
}

/// By hand: shows that the test above can fail.
#[test]
#[ignore = "crashes on purpose, in child processes"]
fn mutated_regions_crash_without_the_check() {
    let image = Image::of(scene::fill);
    let tally = mutations::run(&image, Seed::announced(), MUTATIONS, false);
    println!(
        "{:?}: {} of {MUTATIONS} crashed: {:#?}",
        tally.ends,
        tally.crashes.len(),
        tally.crashes
    );
    assert!(!tally.crashes.is_empty());
}

/// Each pointer of each container, by itself.
#[test]
fn a_pointer_that_leads_elsewhere_is_found_and_named() {
    let _trial = Trial::begin("a_pointer_that_leads_elsewhere_is_found_and_named");
    type Log = Mutex<RegionVec<u64>, InRegion>;
    let mut object = 0;
    let image = Image::of(|region| {
        let log = region
            .object::<Log>("log", || Mutex::in_region(RegionVec::new_in(region)))
            .unwrap();
        log.lock().unwrap().edit().push(7).unwrap();
        object = core::ptr::from_ref(log.get_ref()).addr() - ADDRESS;
    });
    let options = RegionOptions::new().holds::<Log>();
    // The lock, the region's ID, and the address of the buffer.
    let [id, buffer] = [object + 8, object + 16];
    let at = image.word(buffer) - ADDRESS as u64;
    let state = at as usize + 8;
    for (place, word, offset, what) in [
        (id, image.word(id) ^ 1, id - object, "another region"),
        (buffer, 0x1234_5678, 8, "no block"),
        (buffer, image.word(buffer) + 8, 8, "no block"),
        (buffer, (ADDRESS + object) as u64, 8, "one block"),
        (at as usize, 1 << 40, 0, "no room"),
        (state, 2 << 20, 0, "longer"),
    ] {
        let mut bytes = image.bytes.clone();
        bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
        match options.attach_file(mutations::file_of(&bytes)) {
            Err(AttachError::Unsound(error)) => {
                assert_eq!(error.object, "log");
                assert!(error.what.contains(what), "{error}");
                let from = if place == id || place == buffer {
                    object
                } else {
                    at as usize
                };
                assert_eq!(error.offset, from + offset, "{error}");
            }
            other => panic!("{word:#x} at {place:#x}: {other:?}"),
        }
    }
    let region = options
        .attach_file(mutations::file_of(&image.bytes))
        .unwrap();
    assert_eq!(
        region
            .find::<Log>("log")
            .unwrap()
            .lock()
            .unwrap()
            .as_slice(),
        [7]
    );
}

#[test]
fn an_object_of_a_type_that_was_not_declared_is_refused_unless_others_are_accepted() {
    let _trial = Trial::begin(
        "an_object_of_a_type_that_was_not_declared_is_refused_unless_others_are_accepted",
    );
    let image = Image::of(|region| {
        region.object("a number", || 7u64).unwrap();
        region.object("two numbers", || [7u64; 2]).unwrap();
    });
    let attach = |options: RegionOptions| options.attach_file(mutations::file_of(&image.bytes));
    for options in [
        RegionOptions::new().checked(),
        RegionOptions::new().holds::<u64>(),
    ] {
        let error = attach(options).unwrap_err();
        assert!(
            matches!(&error, AttachError::UnknownType { object } if object.contains("number")),
            "{error}"
        );
    }
    drop(attach(RegionOptions::new().holds::<u64>().holds::<[u64; 2]>()).unwrap());
    drop(attach(RegionOptions::new().holds::<u64>().holds_others()).unwrap());
}

#[test]
fn a_region_that_a_process_has_cannot_be_checked() {
    let _trial = Trial::begin("a_region_that_a_process_has_cannot_be_checked");
    let (name, _file) = Leftover::region("checked-in-use");
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .create_named(&name)
        .unwrap();
    region.object("number", || 7u64).unwrap();
    let options = RegionOptions::new().holds::<u64>();
    assert!(matches!(options.attach(&name), Err(AttachError::InUse)));
    region.detach().unwrap();
    let region = options.attach(&name).unwrap();
    assert_eq!(*region.find::<u64>("number").unwrap(), 7);
    // Also by a process that has it by a checked attach.
    assert!(matches!(options.attach(&name), Err(AttachError::InUse)));
    drop(RegionOptions::new().attach(&name).unwrap());
}

/// Values whose types have fewer values than bit patterns.
#[test]
fn a_value_that_its_type_does_not_have_is_found() {
    let _trial = Trial::begin("a_value_that_its_type_does_not_have_is_found");
    let mut object = 0;
    let image = Image::of(|region| {
        scene::fill(region);
        let shop = region.find::<scene::Shop>("shop").unwrap();
        object = core::ptr::from_ref(shop.get_ref()).addr() - ADDRESS;
    });
    let shop = |field: usize| object + field;
    let is_open = shop(
        core::mem::offset_of!(scene::Shop, stock)
            + 8
            + core::mem::offset_of!(scene::Stock, is_open),
    );
    let colours = shop(core::mem::offset_of!(scene::Shop, colours));
    let one = size_of::<scene::Colour>();
    let sign = shop(core::mem::offset_of!(scene::Shop, sign));
    for (place, value, what) in [
        (is_open, 2, "bool"),
        (colours, 0, "no variant"),
        (colours, 2, "no variant"),
        // The second is `Mixed`: a number, a bool, and a character behind them.
        (colours + one + 2, 7, "bool"),
        (colours + one + 6, 0xff, "character"),
        (sign + 2, 0x7f, "character"),
    ] {
        let mut bytes = image.bytes.clone();
        bytes[place] = value;
        match scene::checked().attach_file(mutations::file_of(&bytes)) {
            Err(AttachError::Unsound(error)) => {
                assert!(
                    error.object == "shop" && error.what.contains(what),
                    "{error}"
                );
            }
            other => panic!("{value} at {place:#x}: {other:?}"),
        }
    }
}

/// Nobody is there who would release it.
#[test]
fn a_held_lock_that_is_not_robust_is_refused() {
    let _trial = Trial::begin("a_held_lock_that_is_not_robust_is_refused");
    type Plain = Mutex<u64, WaitWake<Shared>>;
    for held in [false, true] {
        let image = Image::of(|region| {
            let lock = region
                .object::<Plain>("plain", || Mutex::shared(7))
                .unwrap();
            let guard = lock.get_ref().lock();
            match held {
                true => core::mem::forget(guard),
                false => drop(guard),
            }
        });
        let options = RegionOptions::new().holds::<Plain>();
        match options.attach_file(mutations::file_of(&image.bytes)) {
            Err(AttachError::Unsound(error)) => {
                assert!(held && error.what.contains("held"), "{error}")
            }
            other => assert!(other.is_ok() && !held, "{other:?}"),
        }
    }
}
