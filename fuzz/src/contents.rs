//! Uses what the objects of a region hold, after a checked attach: each value is read, each container is changed, and no
//! lock is held by anybody.

use latchwork::mutex::in_region::{LockError, RegionGuard};
use latchwork::mutex::{InRegion, Mutex, RegionProtocol, Robust, Throughput};
use latchwork::region::{HashMap, List, Region, String, TornSafe, Undo, Vec};
use latchwork::rwlock::RegionRwLock;
use latchwork::sharing::Shared;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The guard, also if an owner died; `None` if the lock was given up.
fn guard<'a, T: TornSafe, P: RegionProtocol>(
    lock: Result<RegionGuard<'a, T, P>, LockError<'a, T, P>>,
) -> Option<RegionGuard<'a, T, P>> {
    match lock {
        Ok(guard) => Some(guard),
        Err(LockError::OwnerDied(died)) => Some(died.make_consistent()),
        Err(LockError::NotRecoverable) => None,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! with {
    ($region:ident, $name:literal: $ty:ty, |$guard:ident| $step:expr) => {
        if let Ok(lock) = $region.find::<$ty>($name)
            && let Some($guard) = guard(lock.lock())
        {
            #[allow(unused_mut, reason = "some steps change nothing")]
            let mut $guard = $guard;
            $step
        }
    };
}

pub fn use_all(region: &Region) {
    with!(region, "lock": Mutex<u64, InRegion>, |number| *number = number.wrapping_add(1));
    with!(region, "handing": Mutex<u64, InRegion<Throughput<Shared>>>, |number| *number = number.wrapping_add(1));
    if let Ok(robust) = region.find::<Mutex<u64, Robust>>("robust") {
        drop(black_box(robust.lock().map(|number| *number)));
    }
    if let Ok(rwlock) = region.find::<RegionRwLock<u64>>("rwlock") {
        let _ = black_box(rwlock.read().map(|number| *number));
        let _ = rwlock
            .write()
            .map(|mut number| *number = number.wrapping_add(1));
    }
    with!(region, "vec": Mutex<Vec<u64>, InRegion>, |vec| {
        black_box(vec.iter().fold(0, |sum: u64, one| sum ^ one));
        let _ = vec.edit().push(1);
        vec.edit().clear();
        let _ = vec.edit().shrink_to_fit();
    });
    with!(region, "map": Mutex<HashMap<String, u64>, InRegion>, |map| {
        black_box(map.iter().fold(0, |sum, (key, value)| sum ^ value ^ key.len() as u64));
        let _ = map.edit().insert_str("new", 1);
        let _ = map.edit().remove("key 7");
        map.edit().clear();
        let _ = map.edit().shrink_to_fit();
    });
    with!(region, "list": Mutex<List<u32>, InRegion>, |list| {
        black_box(list.iter().rev().fold(0, |sum, one| sum ^ one));
        let _ = list.edit().push_front(1);
        let _ = list.edit().pop_back();
        list.edit().retain(|number| *number % 2 == 0);
        list.edit().clear();
    });
    with!(region, "undo": Mutex<Undo<[u64; 4], 4>, InRegion>, |undo| {
        black_box(undo.edit().get_mut()[3]);
    });
    with!(region, "cells": Mutex<Undo<Vec<AtomicU64>, 4>, InRegion>, |cells| {
        let mut update = cells.edit().begin();
        let _ = update.store_at(|cells| cells, &3, 5);
        update.commit();
        black_box(cells.get().iter().fold(0, |sum, cell| sum ^ cell.load(Relaxed)));
        cells.edit().get_pin_mut().edit().clear();
    });
}
