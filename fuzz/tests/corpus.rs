//! The kept inputs of each target, and as many changed ones, without the fuzzer: `ci/fuzz.sh --kept`.

use arbitrary::{Arbitrary, Unstructured};
use fastrand::Rng;
use latchwork_fuzz::{c, image, operations};
use latchwork_testkit::Trial;
use std::path::Path;
use std::process::Command;
use std::sync::Once;

/// The longest input; as in `ci/fuzz.sh`.
const LONGEST: usize = 400;

/// The kept inputs of a target. One archive holds those of all targets.
fn kept(target: &str) -> Vec<Vec<u8>> {
    static UNPACKED: Once = Once::new();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    UNPACKED.call_once(|| {
        // That of an earlier archive.
        let _ = std::fs::remove_dir_all(folder.join("corpus"));
        let unpacked = Command::new("tar")
            .arg("-xzf")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/corpus.tar.gz"))
            .arg("-C")
            .arg(folder)
            .status();
        assert!(unpacked.expect("tar").success());
    });
    let files = std::fs::read_dir(folder.join("corpus").join(target)).unwrap();
    let mut inputs: Vec<_> = files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    // `read_dir` has no fixed order; with one, a seed repeats a run.
    inputs.sort();
    inputs
}

/// A changed input, by one to four steps: each changes, removes or adds a byte, or replaces the end by the end of a second
/// input.
fn changed(input: &[u8], second: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut input = input.to_vec();
    for _ in 0..=rng.u32(..4) {
        let place = rng.usize(..=input.len());
        match rng.u32(..4) {
            0 if place < input.len() => input[place] = rng.u8(..),
            1 if place < input.len() => drop(input.remove(place)),
            2 => input.insert(place, rng.u8(..)),
            _ => {
                input.truncate(place);
                input.extend(&second[rng.usize(..=second.len())..]);
            }
        }
    }
    input.truncate(LONGEST);
    input
}

/// Runs a target with its kept inputs, and with as many changed ones.
fn all<I: for<'a> Arbitrary<'a>>(target: &'static str, mut run: impl FnMut(I)) {
    let trial = Trial::begin(target);
    let mut run = |bytes: &[u8]| {
        // An input that is too short is skipped.
        if let Ok(input) = I::arbitrary_take_rest(Unstructured::new(bytes)) {
            run(input);
        }
        trial.progress();
    };
    let inputs = kept(target);
    assert!(!inputs.is_empty());
    inputs.iter().for_each(|input| run(input));
    let mut rng = trial.seed().rng(0);
    for input in &inputs {
        let second = &inputs[rng.usize(..inputs.len())];
        run(&changed(input, second, &mut rng));
    }
    println!(
        "{target}: {} inputs, and as many changed ones",
        inputs.len()
    );
}

#[test]
fn images() {
    all("images", |input: image::Input| image::run(&input));
}

#[test]
fn sequences_of_operations() {
    all("operations", operations::run);
}

#[test]
fn the_c_interface() {
    all("c_interface", c::run);
}
