use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{HashMap, List, RegionOptions, Shareable, String, TornSafe, Undo, Vec};
use std::sync::atomic::AtomicU64;

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Everything {
    map: HashMap<String, Vec<u32>>,
    list: List<String>,
    cells: Undo<[AtomicU64; 4]>,
}

fn main() {
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous().unwrap();
    let make = || {
        Mutex::robust(Everything {
            map: HashMap::new_in(&region),
            list: List::new_in(&region),
            cells: Undo::new([const { AtomicU64::new(0) }; 4]),
        })
    };
    let all = region.object::<Mutex<Everything, Robust>>("all", make).unwrap();
    let all = all.lock().unwrap();
    assert!(all.map.is_empty() && all.list.is_empty());
}
