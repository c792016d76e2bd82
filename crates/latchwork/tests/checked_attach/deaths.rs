//! What a death leaves in the middle of an operation is no damage.

use super::mutations::{ADDRESS, Image, attach_and_use};
use super::scene;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use latchwork::region::{Region, RegionOptions, Vec};
use latchwork_testkit::{Child, Page, Trial};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

#[test]
fn what_a_killed_task_leaves_passes_the_check() {
    let name = "what_a_killed_task_leaves_passes_the_check";
    let nothing = |_: &Region| ();
    check_after_kills(name, 60, nothing, |region| {
        scene::fill(region);
        loop {
            scene::use_all(region);
            scene::add_to_all(region);
        }
    });
}

/// A map is being cleared most of the time: it has many slots, and few entries.
#[test]
fn a_map_that_a_killed_task_was_clearing_passes_the_check() {
    let name = "a_map_that_a_killed_task_was_clearing_passes_the_check";
    let insert = |region: &Region, numbers: Range<u32>| {
        let prices = region.find::<scene::Prices>("prices").unwrap();
        let mut prices = prices.lock().unwrap();
        prices.edit().clear();
        for number in numbers {
            let price = Vec::new_in(region);
            (prices.edit())
                .insert_str(&format!("piece {number}"), price)
                .unwrap();
        }
    };
    let make_slots = |region: &Region| {
        scene::fill(region);
        insert(region, 0..2000);
    };
    check_after_kills(name, 20, make_slots, |region| {
        loop {
            insert(region, 3..4);
        }
    });
}

/// Kills a task at random moments, when it has prepared a region, and attaches what it leaves.
fn check_after_kills(
    name: &'static str,
    kills: u64,
    prepare: impl Fn(&Region),
    use_region: impl Fn(&Region),
) {
    let trial = Trial::begin(name);
    let mut rng = trial.seed().rng(1);
    for number in 0..kills {
        let options = RegionOptions::new().address(ADDRESS).max_bytes(4 << 20);
        let region = options
            .max_tasks(8)
            .max_names(32)
            .create_anonymous()
            .unwrap();
        let ready = Page::<AtomicBool>::new();
        let mut child = Child::fork(|| {
            prepare(&region);
            ready.store(true, SeqCst);
            use_region(&region);
        });
        trial.wait_until(|| ready.load(SeqCst));
        std::thread::sleep(std::time::Duration::from_micros(rng.u64(..6000)));
        child.kill();
        let file = File::from(region.file().try_clone_to_owned().unwrap());
        let mut bytes = std::vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        drop(region);
        let image = Image::new(bytes);
        match attach_and_use(&scene::checked(), &image.bytes) {
            Ok(_) => {}
            Err(error) => panic!("kill {number}: {error}"),
        }
        trial.progress();
    }
}
