//! Tasks that use all of a region at a time, and are killed while they recover from each other.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{ObjectError, Region, RegionOptions, Shareable, TornSafe};
use latchwork_testkit::{Page, Storm, Trial, Worker};

const SEATS: usize = 6;

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Pair {
    one: u64,
    other: u64,
}

fn region() -> Region {
    RegionOptions::new()
        .max_bytes(16 << 20)
        .max_tasks(24)
        .label("kill_recovery")
        .create_anonymous()
        .unwrap()
}

fn locked_change(region: &Region) {
    let mut pair = match region.find::<Mutex<Pair, Robust>>("pair").unwrap().lock() {
        Ok(pair) => pair,
        Err(LockError::OwnerDied(mut pair)) => {
            pair.other = pair.one;
            pair.make_consistent()
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(pair.one, pair.other, "torn data without OwnerDied");
    pair.one += 1;
    std::hint::black_box(&mut *pair);
    pair.other += 1;
}

fn object(region: &Region, seat: usize) {
    // Each seat has a name of its own: nobody else uses the object.
    let name = format!("object {seat}");
    match region.find::<[u64; 64]>(&name) {
        Ok(object) => {
            assert_eq!(*object, [seat as u64; 64]);
            // SAFETY: each seat has a name of its own: nobody else uses the object.
            unsafe { region.remove::<[u64; 64]>(&name).unwrap() };
        }
        Err(ObjectError::NotFound) => {
            region.object(&name, || [seat as u64; 64]).unwrap();
        }
        Err(error) => panic!("{error}"),
    }
}

fn block(region: &Region, bytes: usize) {
    let block = region
        .allocate(Layout::from_size_align(bytes, 8).unwrap())
        .unwrap();
    // SAFETY: a block of this task's own, freed once.
    unsafe {
        block.write_bytes(0xa5, bytes);
        region.deallocate(block).unwrap();
    }
}

#[test]
fn the_recoverers_can_be_killed_too() {
    let trial = Trial::begin("the_recoverers_can_be_killed_too");
    let region = region();
    region
        .object("pair", || Mutex::robust(Pair { one: 0, other: 0 }))
        .unwrap();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(6, 2048)).unwrap();
    let before = region.heap_stats().allocated_bytes;
    let progress = Page::<[AtomicU64; SEATS]>::new();
    let work = |worker: Worker| {
        let mut rng = worker.rng();
        let mut buffer = [0; 2048];
        loop {
            match rng.u32(..6) {
                0 => locked_change(&region),
                1 => object(&region, worker.seat),
                2 => block(&region, rng.usize(8..100_000)),
                3 => {
                    let length = rng.usize(..2048);
                    buffer[..length].fill(length as u8);
                    // Full is as good as sent.
                    let _ = queue.try_send(&buffer[..length]);
                }
                4 => {
                    if let Ok(message) = queue.try_receive_held() {
                        assert!(
                            message.iter().all(|byte| *byte == message.len() as u8),
                            "a message is not whole"
                        );
                        message.done();
                    }
                }
                _ => {
                    region.sweep().unwrap();
                }
            }
            progress[worker.seat].fetch_add(1, SeqCst);
        }
    };
    let mut storm = Storm::start(&trial, SEATS, work);
    let kills = trial.times(400);
    while storm.kills() < kills {
        for _ in 0..5 {
            storm.kill_recoverers();
            storm.wait_for_progress(|seat| progress[seat].load(SeqCst));
        }
        storm.kill_all();
        region.sweep().unwrap();
        assert!(queue.is_consistent().unwrap());
        locked_change(&region);
        for seat in 0..SEATS {
            if region.find::<[u64; 64]>(&format!("object {seat}")).is_ok() {
                object(&region, seat);
            }
        }
        region.check_heap().unwrap();
        let stats = region.heap_stats();
        assert_eq!(stats.allocated_bytes, before, "{stats:?}");
        if storm.kills() < kills {
            storm.refill_all();
        }
    }
    storm.finish();
}
