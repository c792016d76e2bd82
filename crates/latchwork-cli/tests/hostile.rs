//! Files that pose as regions: neither `ps` nor `gc` crashes or hangs on them, and both say what
//! they are.

mod common;

use common::{Named, gc, json, region, region_bytes, run};
use latchwork::event::{EventSet, Events};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::RegionOptions;
use latchwork::region::inspect::inspect_path;
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
use latchwork_cli::shown::show;
use latchwork_testkit::{Child, Seed, Trial};
use rustix::fs::{CWD, FileType, Mode};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, symlink};

const MAX_TASKS: usize = 12;
const MAX_BYTES: usize = 32;
const MAX_NAMES: usize = 48;

/// `ps` reports it with this error, and `gc --dry-run` with this outcome; both end by themselves.
fn assert_seen(named: &Named, error: &str, outcome: &str) {
    let seen = region(&named.0);
    assert!(seen["contents"].is_null(), "{seen:#}");
    let said = seen["error"].as_str().unwrap();
    assert!(said.contains(error), "{}: {said}", named.0);
    assert_eq!(gc(&named.0, &["--dry-run"]), outcome, "{}", named.0);
    assert_eq!(run(&["ps", &named.0]).status.code(), Some(0));
}

fn noise() -> Vec<u8> {
    let mut noise = vec![0; 20_000];
    Seed::announced().rng(0).fill(&mut noise);
    noise
}

#[test]
fn random_bytes_are_no_region() {
    assert_seen(
        &Named::file("random", &noise()),
        "not a latchwork region",
        "foreign",
    );
}

#[test]
fn random_bytes_behind_our_magic_are_another_builds_or_damaged() {
    let mut bytes = noise();
    bytes[..8].copy_from_slice(b"latchwrk");
    assert_seen(&Named::file("magic", &bytes), "layout", "removable");
}

#[test]
fn a_cut_header_is_truncated() {
    assert_seen(
        &Named::file("cut", &region_bytes()[..60]),
        "bytes",
        "removable",
    );
    assert_seen(
        &Named::file("page", &region_bytes()[..4096]),
        "bytes",
        "removable",
    );
}

#[test]
fn capacities_beyond_all_bounds_are_damage() {
    for (what, at, value) in [
        ("bytes", MAX_BYTES, &[0xff; 8][..]),
        ("tasks", MAX_TASKS, &[0xff; 2]),
        ("names", MAX_NAMES, &[0xff; 4]),
        ("none", MAX_TASKS, &[0; 2]),
    ] {
        let mut bytes = region_bytes();
        bytes[at..at + value.len()].copy_from_slice(value);
        assert_seen(&Named::file(what, &bytes), "damaged", "removable");
    }
}

#[test]
fn the_largest_capacities_without_the_tables_are_truncated() {
    let mut bytes = region_bytes();
    bytes[MAX_BYTES..MAX_BYTES + 8].copy_from_slice(&(1u64 << 40).to_ne_bytes());
    assert_seen(&Named::file("large", &bytes), "bytes", "removable");
}

/// A petty file can claim a terabyte: the work is bounded by the memory that is really there.
#[test]
fn a_sparse_giant_is_read_in_no_time() {
    let mut bytes = region_bytes();
    bytes[MAX_BYTES..MAX_BYTES + 8].copy_from_slice(&(1u64 << 40).to_ne_bytes());
    bytes[MAX_TASKS..MAX_TASKS + 2].copy_from_slice(&4096u16.to_ne_bytes());
    bytes[MAX_NAMES..MAX_NAMES + 4].copy_from_slice(&65_536u32.to_ne_bytes());
    let named = Named::file("giant", &bytes);
    std::fs::File::options()
        .write(true)
        .open(named.path())
        .unwrap()
        .set_len(1 << 41)
        .unwrap();
    let seen = region(&named.0);
    let contents = &seen["contents"];
    assert_eq!(contents["max_bytes"], 1u64 << 40, "{seen:#}");
    assert!(
        contents["heap_allocated_bytes"].as_u64().unwrap()
            <= seen["memory_bytes"].as_u64().unwrap()
    );
    assert_eq!(gc(&named.0, &["--dry-run"]), "removable");
}

/// Whatever the tables say behind a sound identity, it is shown or refused.
#[test]
fn garbage_in_the_tables_is_shown_and_does_no_harm() {
    let model = region_bytes();
    let identity = 120;
    let mut random = Seed::announced().rng(0);
    for fill in [Some(0xff), Some(0x80), Some(0x40), None] {
        let mut bytes = model.clone();
        match fill {
            Some(byte) => bytes[identity..].fill(byte),
            None => random.fill(&mut bytes[identity..]),
        }
        let named = Named::file("garbage", &bytes);
        let seen = region(&named.0);
        let contents = &seen["contents"];
        assert!(
            contents["tasks"].as_array().unwrap().len() <= 8
                && contents["objects"].as_array().unwrap().len() <= 8,
            "{seen:#}"
        );
        assert!(
            contents["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .all(|task| task["state"] != "alive"),
            "{seen:#}"
        );
        assert_eq!(run(&["ps", &named.0]).status.code(), Some(0));
        let locks = run(&["locks", "--all", "--region", &named.0, "--json"]);
        assert_eq!(locks.status.code(), Some(0), "{locks:?}");
        let top = run(&["top", "--once", "--pane", "queues"]);
        assert_eq!(top.status.code(), Some(0), "{top:?}");
        assert_eq!(gc(&named.0, &[]), "removed");
    }
}

#[test]
fn a_file_that_shrinks_and_grows_while_it_is_read_is_seen_in_some_state() {
    let model = region_bytes();
    let named = Named::file("shrinking", &model);
    let file = std::fs::File::options()
        .write(true)
        .open(named.path())
        .unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Seed::announced().rng(0);
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                file.set_len(random.u64(..model.len() as u64)).unwrap();
                file.write_all_at(&model, 0).unwrap();
            }
        });
        for _ in 0..300 {
            // Here, since a process for each look would leave few of them.
            let _ = inspect_path(named.path()).unwrap();
        }
        for _ in 0..10 {
            assert_eq!(run(&["ps", &named.0]).status.code(), Some(0));
            assert!(matches!(
                run(&["gc", "--dry-run", &named.0]).status.code(),
                Some(0 | 1)
            ));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn special_files_are_ignored() {
    let fifo = Named::new("fifo");
    rustix::fs::mknodat(CWD, fifo.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let directory = Named::new("directory");
    std::fs::create_dir(directory.path()).unwrap();
    let socket = Named::new("socket");
    let listener = std::os::unix::net::UnixListener::bind(socket.path()).unwrap();
    let target = Named::file("target", &region_bytes());
    let link = Named::new("link");
    symlink(target.path(), link.path()).unwrap();
    let dangling = Named::new("dangling");
    symlink("/nowhere/at/all", dangling.path()).unwrap();
    for named in [&fifo, &directory, &socket, &link, &dangling] {
        assert_seen(named, "not a latchwork region", "foreign");
        assert_eq!(gc(&named.0, &[]), "foreign");
        assert!(named.exists());
    }
    assert!(
        target.exists(),
        "a link does not lead to another region's removal"
    );
    drop(listener);
}

/// The bytes of a region as four tasks left it that were killed: two owned something, and two waited.
fn bytes_of_a_crash(trial: &Trial) -> Vec<u8> {
    let named = Named::new("crash");
    let options = RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(8)
        .max_names(16);
    let region = options.create_named(&named.0).unwrap();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(4, 64)).unwrap();
    let empty = Queue::create(&region, "empty", &QueueOptions::new(4, 64)).unwrap();
    let bus = BinarySemaphore::create(&region, "bus", &BinaryOptions::new().inherit()).unwrap();
    CountingSemaphore::create(&region, "count", 3, Discipline::Priority).unwrap();
    queue.send(b"message").unwrap();
    let mut tasks = Vec::new();
    let mut start = |body: &dyn Fn()| {
        let task = Child::fork(|| {
            region
                .join(&format!("task {}", std::process::id()))
                .unwrap();
            body();
        });
        trial.wait_until(|| task.is_in_region_sleep());
        tasks.push(task);
    };
    let events = Events::new(&region);
    let sleep = || drop(events.receive_all(EventSet::all()));
    start(&|| {
        bus.obtain().unwrap().keep();
        sleep();
    });
    start(&|| {
        std::mem::forget(queue.receive_held().unwrap());
        sleep();
    });
    start(&|| drop(bus.obtain()));
    start(&|| drop(empty.receive_held()));
    let bytes = std::fs::read(named.path()).unwrap();
    drop(tasks);
    bytes
}

/// What `ps`, `locks` and `top` show of a file into which somebody has written is text, JSON and screens.
#[test]
fn whatever_was_written_into_a_region_is_shown_as_text() {
    let trial = Trial::begin("whatever_was_written_into_a_region_is_shown_as_text");
    let bytes = bytes_of_a_crash(&trial);
    let mut rng = trial.seed().rng(1);
    // Where there is something, and what it is.
    let words: Vec<(usize, u32)> = bytes
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
        .enumerate()
        .filter(|(_, word)| *word != 0)
        .map(|(index, word)| (4 * index, word))
        .collect();
    let (mut with_tasks, mut with_locks, mut without) = (0, 0, 0);
    for _ in 0..trial.times(200) {
        let mut changed = bytes.clone();
        for _ in 0..rng.u32(0..6) {
            let (at, before) = words[rng.usize(..words.len())];
            let word = match rng.u32(..6) {
                0 => 0,
                1 => u32::MAX,
                2 => rng.u32(..),
                3 => before ^ 1 << rng.u32(..32),
                4 => before.wrapping_add(rng.u32(..9)).wrapping_sub(4),
                // That of another place.
                _ => words[rng.usize(..words.len())].1,
            };
            changed[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        let named = Named::file("written", &changed);
        let shown = show(named.path(), rng.u8(..)).unwrap();
        with_tasks += u32::from(shown.tasks != 0);
        with_locks += u32::from(shown.locks != 0);
        without += u32::from(!shown.has_contents);
        trial.progress();
    }
    println!("{with_tasks} with tasks, {with_locks} with locks, {without} without contents");
    assert!(with_tasks > 0 && with_locks > 0);
}

/// A copy of a region has the same tables, and tells of tasks that never mapped it; and somebody has written into this one.
#[test]
fn what_a_file_says_of_processes_that_have_not_mapped_it_is_not_believed() {
    let trial =
        Trial::begin("what_a_file_says_of_processes_that_have_not_mapped_it_is_not_believed");
    let named = Named::new("true");
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(8);
    let region = options.create_named(&named.0).unwrap();
    let make = |name| BinarySemaphore::create(&region, name, &BinaryOptions::new()).unwrap();
    let [first, second, third] = ["first", "second", "third"].map(make);
    let events = Events::new(&region);
    let start = |body: &dyn Fn()| {
        let task = Child::fork(|| {
            region.join("task").unwrap();
            body();
        });
        trial.wait_until(|| task.is_in_region_sleep());
        task
    };
    let tasks = [
        start(&|| {
            second.obtain().unwrap().keep();
            drop(events.receive_all(EventSet::all()));
        }),
        start(&|| {
            first.obtain().unwrap().keep();
            drop(second.obtain());
        }),
        start(&|| {
            third.obtain().unwrap().keep();
            drop(first.obtain());
        }),
    ];
    let contents = inspect_path(named.path()).unwrap().contents.unwrap();
    let word = |name: &str| {
        let mut objects = contents.objects.iter();
        let object = objects.find(|object| object.name == name).unwrap();
        (object.address - contents.base) as usize
    };
    // The second semaphore, for which the owner of the first one waits, has the owner of the third one in the copy.
    let mut bytes = std::fs::read(named.path()).unwrap();
    let (from, to) = (word("third"), word("second"));
    bytes.copy_within(from..from + 8, to);
    let copy = Named::file("copy", &bytes);
    for (name, waiters) in [(&named.0, 2), (&copy.0, 0)] {
        let report = json(&["locks", "--region", name]);
        assert_eq!(report["cycles"].as_array().unwrap().len(), 0, "{report:#}");
        let waits = |lock: &serde_json::Value| lock["waiters"].as_array().map_or(0, Vec::len);
        let locks = report["locks"].as_array().unwrap();
        assert_eq!(
            locks.iter().map(waits).sum::<usize>(),
            waiters,
            "{report:#}"
        );
    }
    drop(tasks);
}

/// The work is no product of the numbers of objects that a file names.
#[test]
fn very_many_queues_and_semaphores_are_examined_in_one_pass() {
    /// An entry of the directory: its size, and the places of the object's address and of the name.
    const ENTRY: usize = 104;
    const OBJECT: usize = 16;
    const NAME: usize = 40;
    const OF_EACH_KIND: u64 = 1 << 17;
    let named = Named::new("many");
    let options = RegionOptions::new()
        .max_bytes(1 << 30)
        .max_names(4 * OF_EACH_KIND as u32);
    let region = options.create_named(&named.0).unwrap();
    for number in 0..20 {
        let name = format!("a queue {number}");
        Queue::create(&region, &name, &QueueOptions::new(1, 8)).unwrap();
        let name = format!("a count {number}");
        CountingSemaphore::create(&region, &name, 0, Discipline::Fifo).unwrap();
    }
    region.detach().unwrap();
    let contents = inspect_path(named.path()).unwrap().contents.unwrap();
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(named.path())
        .unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact(&mut bytes).unwrap();
    // The first entry of each kind has most room behind it.
    let first = |kind: &[u8]| {
        let names = bytes.chunks_exact(8).position(|part| part == &kind[..8]);
        8 * names.unwrap() - NAME
    };
    let mut at = 0;
    for (forged, kind) in (0_u64..)
        .step_by(OF_EACH_KIND as usize)
        .zip([b"a queue ", b"a count "])
    {
        let from = first(kind);
        let mut entry = bytes[from..from + ENTRY].to_vec();
        at = at.max(from);
        for number in forged..forged + OF_EACH_KIND {
            let own = contents.base + contents.committed_bytes + number * 2048;
            entry[OBJECT..OBJECT + 8].copy_from_slice(&own.to_ne_bytes());
            file.write_all_at(&entry, at as u64).unwrap();
            at += ENTRY;
        }
    }
    file.set_len(2 << 30).unwrap();
    let contents = inspect_path(named.path()).unwrap().contents.unwrap();
    let count = contents.objects.len() as u64;
    assert!(count > OF_EACH_KIND, "{count}");
    let seen = run(&["locks", "--region", &named.0]);
    assert_eq!(seen.status.code(), Some(0), "{seen:?}");
}
