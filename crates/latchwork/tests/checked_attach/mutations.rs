//! Files of regions in which words are overwritten, as a damaged disk or a careless program does it, or somebody who knows
//! the layout. Each batch is attached and used in a process of its own, so that a bad end would be seen.

use super::scene;
use latchwork::region::{AttachError, Region, RegionOptions};
use latchwork_testkit::{Leftover, Seed, output_of};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};

/// The bytes of a region that no process has, and where it was.
pub struct Image {
    pub bytes: Vec<u8>,
    base: u64,
    /// The places of words that lead into the region.
    pointers: Vec<usize>,
    /// Where they lead, in bytes from the base.
    targets: Vec<usize>,
}

pub const ADDRESS: usize = 0x3190_0000_0000;

impl Image {
    /// The image that remains when the only task has left.
    pub fn of(fill: impl FnOnce(&Region) + Send) -> Self {
        let options = RegionOptions::new().address(ADDRESS).max_bytes(4 << 20);
        let region = options
            .max_tasks(8)
            .max_names(32)
            .create_anonymous()
            .unwrap();
        std::thread::scope(|scope| scope.spawn(|| fill(&region)).join().unwrap());
        let file = File::from(region.file().try_clone_to_owned().unwrap());
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Self::new(bytes)
    }

    pub fn new(bytes: Vec<u8>) -> Self {
        let base = ADDRESS as u64;
        let inside = base..base + bytes.len() as u64;
        let mut image = Self {
            bytes,
            base,
            pointers: Vec::new(),
            targets: Vec::new(),
        };
        // Not of the identity: without it a file is no region.
        for place in (4096..image.bytes.len()).step_by(8) {
            let word = image.word(place);
            if inside.contains(&word) && word != base {
                image.pointers.push(place);
                image.targets.push((word - base) as usize);
            }
        }
        image
    }

    pub fn word(&self, place: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[place..place + 8].try_into().unwrap())
    }

    /// The same with one to three words changed.
    fn mutated(&self, seed: Seed, number: u64) -> Vec<u8> {
        let mut rng = seed.rng(number);
        let mut bytes = self.bytes.clone();
        for _ in 0..rng.usize(1..4) {
            let near = self.targets[rng.usize(..self.targets.len())] + 8 * rng.usize(..24);
            let place = match rng.u32(..10) {
                0..4 => self.pointers[rng.usize(..self.pointers.len())],
                4..8 => near,
                8 => rng.usize(..bytes.len()),
                _ => (0..64)
                    .map(|_| rng.usize(..bytes.len()))
                    .find(|place| bytes[*place] != 0)
                    .unwrap_or(0),
            };
            let place = (place & !7).min(bytes.len() - 8);
            let before = self.word(place);
            let pointer = |target: usize| self.base + target as u64;
            let word = match rng.u32(..12) {
                0..3 => pointer(self.targets[rng.usize(..self.targets.len())]),
                3 => pointer(near),
                4 => 0,
                5 => rng.u64(..9),
                6 => before ^ 1 << rng.u32(..64),
                7 => before.wrapping_add(1),
                8 => before.wrapping_sub(8),
                9 => before.rotate_left(32),
                10 => u64::MAX >> rng.u32(..64),
                _ => rng.u64(..),
            };
            let width = [8, 8, 4, 2, 1][rng.usize(..5)];
            bytes[place..place + width].copy_from_slice(&word.to_ne_bytes()[..width]);
        }
        bytes
    }
}

/// A region's file of these bytes, which has no name.
pub fn file_of(bytes: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("mutated", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    file.into()
}

/// Attaches a region and uses all that is in it; the region is unmapped afterwards.
pub fn attach_and_use(options: &RegionOptions, bytes: &[u8]) -> Result<u64, AttachError> {
    let region = options.attach_file(file_of(bytes))?;
    // In a thread of its own: at its end it leaves the region, which then is unmapped.
    let sum = std::thread::scope(|scope| scope.spawn(|| scene::use_all(&region)).join());
    region.check_heap().unwrap();
    match sum {
        Ok(sum) => Ok(sum),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

const BATCH: &str = "LATCHWORK_TEST_CHECKED_ATTACH";

/// How the attaches of a run ended.
#[derive(Debug, Default)]
pub struct Tally {
    pub ends: BTreeMap<String, u32>,
    /// The numbers of those that ended their process, and how.
    pub crashes: Vec<String>,
}

/// Attaches and uses `count` mutated files; with the check, or without.
pub fn run(image: &Image, seed: Seed, count: u64, checked: bool) -> Tally {
    let (_, file) = Leftover::region("checked-attach-image");
    std::fs::write(file.path(), &image.bytes).unwrap();
    let mut tally = Tally::default();
    let mut next = 0;
    while next < count {
        let last = count.min(next + 250);
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "mutations::batch_process", "--nocapture"])
            .env(
                BATCH,
                format!("{checked}:{next}:{last}:{}", file.path().display()),
            )
            .env("LATCHWORK_SEED", seed.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = output_of(child);
        let text = String::from_utf8_lossy(&output.stdout);
        // A process that ends badly leaves `at=N` without an end.
        let ends = (text.lines())
            .filter_map(|line| line.strip_prefix("at=")?.split_once(' '))
            .filter_map(|(number, end)| Some((number.parse::<u64>().ok()?, end)));
        for (number, end) in ends {
            *tally.ends.entry(end.to_owned()).or_default() += 1;
            next = number + 1;
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said
                .lines()
                .find(|line| line.contains("panicked"))
                .unwrap_or_default();
            tally
                .crashes
                .push(format!("{next}: {} {said}", output.status));
            next += 1;
        }
    }
    tally
}

/// No test: what [`run`] runs.
#[test]
fn batch_process() {
    let Ok(batch) = std::env::var(BATCH) else {
        return;
    };
    let mut parts = batch.splitn(4, ':');
    let mut part = || parts.next().unwrap();
    let checked = part() == "true";
    let [first, last] = [(); 2].map(|()| part().parse::<u64>().unwrap());
    let image = Image::new(std::fs::read(part()).unwrap());
    let seed = Seed::from_env();
    let options = match checked {
        true => scene::checked(),
        false => RegionOptions::new(),
    };
    println!();
    for number in first..last {
        let bytes = image.mutated(seed, number);
        end_if_it_hangs(checked);
        print!("at={number}");
        std::io::stdout().flush().unwrap();
        match attach_and_use(&options, &bytes) {
            Ok(_) => println!(" used"),
            Err(AttachError::AddressTaken { .. }) => panic!("a region was not unmapped"),
            Err(error) => {
                let error = format!("{error:?}");
                println!(" {}", error.split(['(', ' ', '{']).next().unwrap());
            }
        }
    }
}

/// A loop without an end ends this process by a signal, after 20 s of the processor's time. So does, without the check, a
/// wait of 5 s: words of locks may name tasks that live. (With the check, whoever started this process waits for it.)
#[allow(unsafe_code)]
fn end_if_it_hangs(checked: bool) {
    let (which, seconds) = match checked {
        true => (libc::ITIMER_PROF, 20),
        false => (libc::ITIMER_REAL, 5),
    };
    // SAFETY: a variable of numbers, and a timer of this process.
    unsafe {
        let mut timer: libc::itimerval = core::mem::zeroed();
        timer.it_value.tv_sec = seconds;
        libc::setitimer(which, &raw const timer, core::ptr::null_mut());
    }
}
