//! A process makes, uses and drops any number of regions, one after the other and at the same time.
//!
//! Each test runs in a child process: what it maps is its own, and a fault ends only the child.
#![allow(unsafe_code)]

use core::pin::Pin;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use latchwork::coproc::{Attributes, Coprocs, Outcome};
use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{
    AttachError, HashMap, List, ObjectError, Region, RegionOptions, String, Vec,
};
use latchwork_testkit::{Child, Leftover, Trial, in_dying_thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, mpsc};

/// More than any limit of ours.
const MANY: u64 = 1_200;

fn options() -> RegionOptions {
    RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(16)
        .max_names(8)
        .label("many")
}

fn region() -> Region {
    options().create_anonymous().unwrap()
}

/// The regions that this process has mapped.
fn mapped() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("latchwork-"))
        .count()
}

/// The descriptors that this process has open.
fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

type Map = Mutex<HashMap<String, Vec<u64>>, Robust>;

/// A map of containers, some of which were built on the stack, or come back to it.
fn use_containers(region: &Region) {
    let map: Pin<&Map> = region
        .object("map", || Mutex::robust(HashMap::new_in(region)))
        .unwrap();
    let mut map = map.lock().unwrap();
    for number in 0..20u64 {
        let key = String::from_str_in(&format!("key {number}"), region).unwrap();
        let mut value = Vec::with_capacity_in(4, region).unwrap();
        value.push(number).unwrap();
        value.extend_from_slice(&[number; 9]).unwrap();
        assert_eq!((value.len(), key.capacity() >= 5), (10, true));
        map.edit().insert(key, value).unwrap();
    }
    let taken = map.edit().remove("key 7").unwrap();
    assert_eq!(taken.iter().sum::<u64>(), 70);
    assert_eq!(map.get("key 3").unwrap()[9], 3);
    let mut list = List::new_in(region);
    list.push_back(taken).unwrap();
    assert_eq!(list.front().unwrap().len(), 10);
}

#[test]
fn any_number_of_regions_with_containers_come_and_go() {
    let trial = Trial::begin("any_number_of_regions_with_containers_come_and_go");
    Child::fork(|| {
        use_containers(&region());
        let descriptors = open();
        for _ in 0..trial.times(MANY) {
            use_containers(&region());
        }
        // The thread is still a task of the last one.
        assert!(
            mapped() <= 2 && open() <= descriptors + 1,
            "{} {}",
            mapped(),
            open()
        );
    })
    .succeed();
}

#[test]
fn any_number_of_named_regions_come_and_go_and_come_again() {
    let trial = Trial::begin("any_number_of_named_regions_come_and_go_and_come_again");
    let (name, _file) = Leftover::region("many");
    Child::fork(|| {
        for round in 0..trial.times(MANY / 2) {
            let named = options().attach_or_create(&name).unwrap();
            let counts = named
                .object("counts", || Mutex::robust(Vec::<u64>::new_in(&named)))
                .unwrap();
            let mut counts = counts.lock().unwrap();
            assert_eq!(counts.len() as u64, round % 200);
            if counts.len() == 199 {
                counts.edit().clear();
            } else {
                counts.edit().push(round).unwrap();
            }
            drop(counts);
            // Some rounds another region is in between, at another address.
            if round % 3 == 0 {
                drop(named);
                use_containers(&region());
            }
        }
        assert!(mapped() <= 2, "{}", mapped());
    })
    .succeed();
}

#[test]
fn threads_that_live_on_let_go_of_regions_that_are_gone() {
    let trial = Trial::begin("threads_that_live_on_let_go_of_regions_that_are_gone");
    Child::fork(|| {
        const THREADS: usize = 6;
        let workers: std::vec::Vec<_> = (0..THREADS)
            .map(|_| {
                let (sender, work) = mpsc::channel::<(Arc<Region>, Arc<Barrier>)>();
                let thread = std::thread::spawn(move || {
                    for (region, done) in work {
                        use_containers(&region);
                        drop(region);
                        done.wait();
                    }
                });
                (sender, thread)
            })
            .collect();
        // All workers use each region: half of the regions end in the hands of a worker.
        for round in 0..trial.times(MANY / 4) {
            let shared = Arc::new(options().max_bytes(16 << 20).create_anonymous().unwrap());
            let done = Arc::new(Barrier::new(THREADS + 1));
            for (sender, _) in &workers {
                sender
                    .send((Arc::clone(&shared), Arc::clone(&done)))
                    .unwrap();
            }
            if round % 2 == 0 {
                drop(shared);
                done.wait();
            } else {
                done.wait();
                drop(shared);
            }
            // Each of them has left all but its last one.
            assert!(mapped() <= THREADS + 3, "{}", mapped());
        }
        for (sender, thread) in workers {
            drop(sender);
            thread.join().unwrap();
        }
        use_containers(&region());
        assert!(mapped() <= 2, "{}", mapped());
    })
    .succeed();
}

/// What a coproc does with the region that it was started for.
fn count_in_map(region: &Region, key: i32) -> i32 {
    let map: Pin<&Map> = region.find("map").unwrap();
    let mut map = map.lock().unwrap();
    let mut map = map.edit();
    let mut values = map
        .get_pin_mut_or_insert_str_with("coproc", || Vec::new_in(region))
        .unwrap()
        .edit();
    values.push(key as u64).unwrap();
    values.len() as i32
}

#[test]
fn regions_that_had_coprocs_come_and_go() {
    let trial = Trial::begin("regions_that_had_coprocs_come_and_go");
    Child::fork(|| {
        for _ in 0..trial.times(80) {
            let region = options().max_bytes(16 << 20).create_anonymous().unwrap();
            use_containers(&region);
            // SAFETY: what this process owns in a region, the coprocs do not use.
            let coprocs = unsafe { Coprocs::new(&region) }.unwrap();
            // SAFETY: what this thread owns in a region, the coprocs do not use.
            let copying = unsafe { Attributes::new().snapshot() };
            for attributes in [Attributes::new(), copying] {
                let coproc = coprocs.spawn_value(count_in_map, 7, &attributes).unwrap();
                let outcome = coproc.join().unwrap().outcome;
                assert!(matches!(outcome, Outcome::Returned(1 | 2)), "{outcome:?}");
            }
        }
        use_containers(&region());
        assert!(mapped() <= 3, "{}", mapped());
    })
    .succeed();
}

#[test]
fn locks_of_ended_threads_are_unmapped_later() {
    let trial = Trial::begin("locks_of_ended_threads_are_unmapped_later");
    Child::fork(|| {
        for _ in 0..trial.times(MANY / 6) {
            let region = region();
            // Locks that the kernel hands on when their thread ends: others would stay their process's.
            let lock = region
                .object("lock", || Mutex::robust_inherit(0u32))
                .unwrap();
            std::thread::scope(|scope| {
                // One ends with a lock; the other lives on for a while, with a lock of a region that is gone.
                scope.spawn(|| core::mem::forget(lock.lock().unwrap()));
            });
            assert!(lock.lock().is_err());
            let (held, gone) = (Barrier::new(2), Barrier::new(2));
            std::thread::scope(|scope| {
                let other = options().create_anonymous().unwrap();
                let (held, gone) = (&held, &gone);
                let theirs = other.clone();
                scope.spawn(move || {
                    let lock = theirs
                        .object("lock", || Mutex::robust_inherit(0u32))
                        .unwrap();
                    core::mem::forget(lock.lock().unwrap());
                    drop(theirs);
                    held.wait();
                    gone.wait();
                });
                held.wait();
                drop(other);
                gone.wait();
            });
        }
        use_containers(&region());
        assert!(mapped() <= 3, "{}", mapped());
    })
    .succeed();
}

#[test]
fn many_regions_at_the_same_time() {
    let _trial = Trial::begin("many_regions_at_the_same_time");
    Child::fork(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let most = limit.maximum.unwrap_or(4096).min(4096);
        let raised = rustix::process::Rlimit {
            current: Some(most),
            maximum: limit.maximum,
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, raised).unwrap();
        let count = (most - 100).min(1_000) as usize;
        println!("{count} regions at the same time");
        let regions: std::vec::Vec<_> = (0..count).map(|_| region()).collect();
        // A thread is a task of 128 regions at a time.
        std::thread::scope(|scope| {
            for some in regions.chunks(128) {
                scope.spawn(move || some.iter().for_each(use_containers));
            }
        });
        assert_eq!(mapped(), count);
        drop(regions);
        assert_eq!(mapped(), 0);
    })
    .succeed();
}

#[test]
fn a_thread_is_a_task_of_many_regions_and_then_of_no_more() {
    let _trial = Trial::begin("a_thread_is_a_task_of_many_regions_and_then_of_no_more");
    Child::fork(|| {
        let regions: std::vec::Vec<_> = (0..128).map(|_| region()).collect();
        let locks: std::vec::Vec<_> = regions
            .iter()
            .map(|region| region.object("lock", || Mutex::robust(0u32)).unwrap())
            .collect();
        let guards: std::vec::Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
        let one_more = region();
        let lock = || one_more.object("lock", || Mutex::robust(0u32)).map(|_| ());
        assert!(matches!(
            lock(),
            Err(ObjectError::Attach(AttachError::TooManyAttachments))
        ));
        drop(guards);
        regions[77].clone().detach().unwrap();
        lock().unwrap();
        assert_eq!(*locks[77].lock().unwrap(), 0);
    })
    .succeed();
}

/// The kernel reads no more than 2,048 entries of a dead thread's robust list.
#[test]
fn locks_and_regions_together_fit_a_threads_robust_list() {
    let _trial = Trial::begin("locks_and_regions_together_fit_a_threads_robust_list");
    Child::fork(|| {
        let locks: std::vec::Vec<_> = (0..2_000).map(|_| Box::pin(Mutex::robust(0u32))).collect();
        let regions: std::vec::Vec<_> = (0..100).map(|_| region()).collect();
        in_dying_thread(|| {
            let join = |region: &&Region| region.join("many").is_ok();
            let joined = regions[..50].iter().take_while(join).count();
            assert_eq!(joined, 50);
            let take = |lock: &&Pin<Box<Mutex<u32, Robust>>>| {
                lock.as_ref().lock().map(core::mem::forget).is_ok()
            };
            let taken = locks.iter().take_while(take).count();
            assert!((1_700..2_000).contains(&taken), "{taken}");
            assert!(!regions[50..].iter().any(|region| join(&region)));
        });
        // All of them were found when the thread died.
        let died = |lock: &&Pin<Box<Mutex<u32, Robust>>>| {
            matches!(lock.as_ref().lock(), Err(LockError::OwnerDied(_)))
        };
        let found = locks.iter().take_while(died).count();
        assert!((1_700..2_000).contains(&found), "{found}");
        let free = locks[found..]
            .iter()
            .all(|lock| lock.as_ref().lock().is_ok());
        assert!(free, "a lock was taken and not found");
    })
    .succeed();
}

#[test]
fn a_process_that_is_killed_amid_regions_leaves_its_sibling_in_order() {
    let trial = Trial::begin("a_process_that_is_killed_amid_regions_leaves_its_sibling_in_order");
    let (name, _file) = Leftover::region("amid");
    let common = options().create_named(&name).unwrap();
    let count = common.object("count", || Mutex::robust(0u64)).unwrap();
    let value = || match count.lock() {
        Ok(count) => *count,
        Err(LockError::OwnerDied(died)) => *died.make_consistent(),
        Err(error) => panic!("{error}"),
    };
    for _ in 0..trial.times(30) {
        let before = value();
        let mut child = Child::fork(|| {
            loop {
                use_containers(&region());
                let common = options().attach(&name).unwrap();
                let count = common.object("count", || Mutex::robust(0u64)).unwrap();
                match count.lock() {
                    Ok(mut count) => *count += 1,
                    Err(LockError::OwnerDied(died)) => {
                        *died.make_consistent() += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        trial.wait_until(|| value() >= before + 3);
        child.kill();
        use_containers(&region());
    }
    common.check_heap().unwrap();
}

#[test]
fn a_container_that_was_read_outside_keeps_its_region_until_it_is_dropped() {
    let _trial =
        Trial::begin("a_container_that_was_read_outside_keeps_its_region_until_it_is_dropped");
    Child::fork(|| {
        let taken = {
            let region = region();
            let map: Pin<&Map> = region
                .object("map", || Mutex::robust(HashMap::new_in(&region)))
                .unwrap();
            let mut value = Vec::new_in(&region);
            value.extend_from_slice(&[7u64; 100]).unwrap();
            map.lock().unwrap().edit().insert_str("key", value).unwrap();
            let taken = map.lock().unwrap().edit().remove("key").unwrap();
            assert_eq!(taken[99], 7);
            taken
        };
        let slice = taken.as_slice();
        for _ in 0..100 {
            use_containers(&region());
        }
        assert_eq!(slice, [7; 100]);
        assert!(mapped() <= 3, "{}", mapped());
        drop(taken);
        use_containers(&region());
        assert!(mapped() <= 2, "{}", mapped());
    })
    .succeed();
}

#[test]
fn a_container_whose_region_is_gone_says_so_also_where_another_region_is_now() {
    let _trial =
        Trial::begin("a_container_whose_region_is_gone_says_so_also_where_another_region_is_now");
    Child::fork(|| {
        let (mut vec, mut map, list, address) = {
            let region = region();
            let mut vec = Vec::new_in(&region);
            let mut map = HashMap::<u64, u64>::new_in(&region);
            let mut list = List::new_in(&region);
            vec.push(1u64).unwrap();
            map.insert(1, 1).unwrap();
            list.push_back(1u64).unwrap();
            (vec, map, list, region.base().addr())
        };
        // The thread leaves it when it becomes a task of another one.
        use_containers(&region());
        let successor = options().address(address).create_anonymous().unwrap();
        use_containers(&successor);
        std::panic::set_hook(Box::new(|_| ()));
        let refuses = |look: &dyn Fn()| catch_unwind(AssertUnwindSafe(look)).is_err();
        assert!(refuses(&|| _ = vec.as_slice().first()));
        assert!(refuses(&|| _ = vec.len()));
        assert!(refuses(&|| _ = map.get(&1)));
        assert!(refuses(&|| _ = map.iter().next()));
        assert!(refuses(&|| _ = list.front()));
        assert!(catch_unwind(AssertUnwindSafe(|| vec.push(2))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| map.insert(2, 2))).is_err());
        // It is leaked, wherever it is dropped.
        drop((vec, map));
        let place = successor.object("list", || Mutex::robust(list)).unwrap();
        let mut place = place.lock().unwrap();
        assert!(refuses(&|| _ = place.front()));
        place.as_mut().set(List::new_in(&successor));
        place.edit().push_back(2).unwrap();
        assert_eq!(place.front(), Some(&2));
        successor.check_heap().unwrap();
    })
    .succeed();
}

#[test]
fn containers_are_read_and_dropped_while_regions_go() {
    let trial = Trial::begin("containers_are_read_and_dropped_while_regions_go");
    Child::fork(|| {
        let stop = AtomicBool::new(false);
        let rounds = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::sync_channel::<Vec<u64>>(4);
        let receiver = std::sync::Mutex::new(receiver);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    loop {
                        let next = receiver.lock().unwrap().recv();
                        let Ok(vec) = next else { break };
                        // Its region's last handle goes at the same time.
                        assert_eq!(vec.iter().sum::<u64>(), 64 * vec[0]);
                        drop(vec);
                        rounds.fetch_add(1, SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    drop(region());
                }
            });
            for round in 1..trial.times(600) {
                let region = region();
                let mut vec = Vec::new_in(&region);
                vec.extend_from_slice(&[round; 64]).unwrap();
                // Read here already, so that the region stays.
                assert_eq!(vec[63], round);
                sender.send(vec).unwrap();
                drop(region);
            }
            drop(sender);
            stop.store(true, SeqCst);
        });
        assert_eq!(rounds.load(SeqCst) as u64, trial.times(600) - 1);
        use_containers(&region());
        assert!(mapped() <= 2, "{}", mapped());
    })
    .succeed();
}
