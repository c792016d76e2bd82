//! Queues in files that somebody has written into while nobody had the region: refused, or as good as ever.
//!
//! Each attach runs in a process of its own, so that one that ended badly would be seen.

use latchwork::queue::{Discipline, Queue, QueueOptions, Wait};
use latchwork::region::inspect::inspect_path;
use latchwork::region::{Box, Region, RegionOptions};
use latchwork_testkit::{Child, Leftover, Seed, Trial, output_of};
use std::process::{Command, Stdio};

const TASKS: u16 = 8;
/// Where a queue's words begin that are no locks, and those that lead to its chunks: see `src/queue/layout.rs`. (Who
/// finds a lock taken waits: they are left alone here.)
const WORDS: usize = 256;
const CHUNKS: usize = 384;
/// The word that leads to the queue's body, of which so many bytes are written into, too.
const BODY: usize = CHUNKS + 14 * 8;
const BODY_BYTES: usize = 1600;

const NAME: &str = "LATCHWORK_TEST_HOSTILE_QUEUE";

/// What became of the queue in a file of these bytes, in a process of its own. One that hangs is killed, and one that
/// ends in any way but its own fails the test.
fn use_file(bytes: &[u8]) -> String {
    let (name, file) = Leftover::region("mutated-queue");
    std::fs::write(file.path(), bytes).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "attach_process", "--nocapture"])
        .env(NAME, &name)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output_of(child);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(status.success(), "{name}: {status}: {text}{said}");
    // The harness writes the name of the test on the same line.
    let (_, result) = text
        .split_once("result=")
        .unwrap_or_else(|| panic!("{text}{said}"));
    result.lines().next().unwrap().to_owned()
}

/// No test: what [`use_file`] runs.
#[test]
fn attach_process() {
    let Ok(name) = std::env::var(NAME) else {
        return;
    };
    match RegionOptions::new().attach(&name) {
        Ok(region) => println!("result={}", use_queue(&region)),
        Err(error) => println!("result={error:?}"),
    }
}

/// Sends and receives, with all that can be of a queue.
fn use_queue(region: &Region) -> String {
    let options = QueueOptions::new(4, 100);
    let made = Queue::open(region, "queue").or_else(|_| Queue::create(region, "queue", &options));
    let queue = match made {
        Ok(queue) => queue,
        Err(error) => return format!("{error:?}"),
    };
    // Not more than there may be cells.
    assert!(queue.len() <= 4 + 2 + 2 * u32::from(TASKS));
    // Two messages may say that they are the same one.
    let _ = queue.is_consistent().unwrap();
    if let Ok(block) = queue.receive_block(Wait::Not) {
        assert!(block.iter().map(|byte| usize::from(*byte)).sum::<usize>() < 1 << 20);
    }
    while let Ok(message) = queue.try_receive_held() {
        assert!(message.iter().map(|byte| usize::from(*byte)).sum::<usize>() < 1 << 20);
    }
    assert!(queue.is_drained().unwrap());
    for number in 0..3 {
        queue.try_send(&[number; 60]).unwrap();
    }
    queue.urgent().try_send(&[9; 60]).unwrap();
    assert!(queue.try_send(&[]).is_err());
    // In any order: the number of the last message may be the last there is.
    let mut numbers = [0, 1, 2, 9].map(|_| {
        let message = queue.try_receive_held().unwrap();
        assert_eq!(*message, [message[0]; 60]);
        message[0]
    });
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 9]);
    // More wait than there were.
    let trial = Trial::begin("attach_process");
    let waiting = waiters(&trial, queue, 5);
    assert_eq!(queue.broadcast(&[7; 60]).unwrap(), 5);
    waiting.into_iter().for_each(Child::succeed);
    assert!(queue.is_consistent().unwrap());
    queue.delete().unwrap();
    Queue::create(region, "queue", &queue.options()).unwrap();
    region.check_heap().unwrap();
    "used".into()
}

fn waiters(trial: &Trial, queue: Queue<'_>, count: usize) -> Vec<Child> {
    let wait = |_| {
        let child = Child::fork(|| {
            queue.receive(&mut [0; 100]).unwrap();
        });
        trial.wait_until(|| child.is_in_futex());
        child
    };
    (0..count).map(wait).collect()
}

/// A file that nobody has, with messages in a queue; where that begins and ends, and its body.
fn sound(trial: &Trial, discipline: Discipline) -> (Vec<u8>, std::ops::Range<usize>, usize) {
    let (name, file) = Leftover::region("queue");
    let region = RegionOptions::new()
        .max_bytes(8 << 20)
        .max_tasks(TASKS)
        .max_names(8)
        .create_named(&name)
        .unwrap();
    let options = QueueOptions::new(4, 100).discipline(discipline);
    let queue = Queue::create(&region, "queue", &options).unwrap();
    // It gets some chunks, the last of them a short one.
    let mut waiting = waiters(trial, queue, 7);
    if discipline == Discipline::Racing {
        waiting.iter().for_each(|child| trial.stop_asleep(child));
    }
    for child in &mut waiting {
        if discipline == Discipline::Racing {
            queue.broadcast(b"unread").unwrap();
        }
        child.kill();
    }
    region.sweep().unwrap();
    let block = Box::copied_in(&[7; 300], &region).unwrap();
    queue.send_block(block, Wait::Not).unwrap();
    queue.send(&[8; 50]).unwrap();
    region.detach().unwrap();
    let contents = inspect_path(file.path()).unwrap().contents.unwrap();
    let object = contents
        .objects
        .iter()
        .find(|object| object.name == "queue")
        .unwrap();
    let start = (object.address - contents.base) as usize;
    let bytes = std::fs::read(file.path()).unwrap();
    let body = (word_at(&bytes, start + BODY) - contents.base) as usize;
    (bytes, start..start + object.bytes as usize, body)
}

fn put(bytes: &mut [u8], place: usize, word: u64) {
    bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
}

fn word_at(bytes: &[u8], place: usize) -> u64 {
    u64::from_ne_bytes(bytes[place..place + 8].try_into().unwrap())
}

/// What a queue derives is made anew before anybody believes it, and what leads to no message leads nowhere.
#[test]
fn a_queue_in_a_mutated_file_is_refused_or_works() {
    let trial = Trial::begin("a_queue_in_a_mutated_file_is_refused_or_works");
    let mut random = Seed::announced().rng(0);
    for discipline in [Discipline::Racing, Discipline::Fifo] {
        let (sound, queue, body) = sound(&trial, discipline);
        for round in 0..60 {
            let mut bytes = sound.clone();
            for _ in 0..round {
                let place = match random.bool() {
                    true => random.usize(queue.start + WORDS..queue.end),
                    false => random.usize(body..body + BODY_BYTES),
                };
                let place = place & !7;
                let word = match random.u32(..4) {
                    0 => random.u64(..),
                    1 => u64::MAX,
                    2 => random.u64(..64),
                    _ => 1 << random.u32(..64),
                };
                put(&mut bytes, place, word);
            }
            let said = use_file(&bytes);
            assert!(round > 0 || said == "used", "{said}");
        }
    }
}

/// Words that lead to no chunk of the queue's lead nowhere: its spare cells are fewer, and it works.
#[test]
fn a_word_that_leads_to_no_chunk_is_forgotten() {
    let trial = Trial::begin("a_word_that_leads_to_no_chunk_is_forgotten");
    let (sound, queue, _) = sound(&trial, Discipline::Fifo);
    let chunks = queue.start + CHUNKS;
    let first = word_at(&sound, chunks);
    let own = first & !(8 * (1 << 20) - 1);
    assert_ne!(first, 0, "seven waiters make a chunk");
    assert_ne!(word_at(&sound, chunks + 8), 0, "and a second one");
    for chunk in 0..14 {
        for word in [
            0,
            1,
            64,
            first,
            first + 1,
            first + 64,
            own,
            u64::MAX,
            1 << 47,
        ] {
            let mut bytes = sound.clone();
            put(&mut bytes, chunks + 8 * chunk, word);
            assert_eq!(use_file(&bytes), "used", "chunk {chunk} at {word:#x}");
        }
    }
}
