//! What a death leaves in the middle of an operation is no damage.

use super::mutations::{ADDRESS, Image, attach_and_use};
use super::scene;
use latchwork::region::RegionOptions;
use latchwork_testkit::{Child, Trial};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// Kills at random moments.
const KILLS: u64 = 60;

#[test]
fn what_a_killed_task_leaves_passes_the_check() {
    let trial = Trial::begin("what_a_killed_task_leaves_passes_the_check");
    let mut rng = trial.seed().rng(1);
    for number in 0..KILLS {
        let options = RegionOptions::new().address(ADDRESS).max_bytes(4 << 20);
        let region = options
            .max_tasks(8)
            .max_names(32)
            .create_anonymous()
            .unwrap();
        let mut child = Child::fork(|| {
            scene::fill(&region);
            loop {
                scene::use_all(&region);
                scene::add_to_all(&region);
            }
        });
        std::thread::sleep(std::time::Duration::from_micros(rng.u64(..6000)));
        child.kill();
        let file = File::from(region.file().try_clone_to_owned().unwrap());
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
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
