//! Coprocs: starting, joining, dying.

use core::time::Duration;
use latchwork::coproc::{Attributes, Coprocs, Options, Outcome};
use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{Region, RegionOptions};

fn region() -> Region {
    RegionOptions::new().max_bytes(8 << 20).create_anonymous().unwrap()
}

fn add(region: &Region, hits: &Mutex<u64, Robust>) -> i32 {
    *region.pin(hits).lock().unwrap() += 1;
    7
}

#[test]
fn a_clean_coproc_runs_and_returns() {
    let region = region();
    let coprocs = Coprocs::new(&region).unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    let coproc = coprocs.spawn(add, &hits, &Attributes::new().name("adder")).unwrap();
    assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
    assert_eq!(*hits.lock().unwrap(), 1);
}

#[test]
fn a_pooled_coproc_runs_and_returns() {
    let region = region();
    let coprocs = Coprocs::with_options(&region, &Options::new().pool(4)).unwrap();
    let hits = region.object("hits", || Mutex::robust(0u64)).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..20 {
        let coproc = coprocs.spawn(add, &hits, &Attributes::new()).unwrap();
        assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(7));
    }
    assert_eq!(*hits.lock().unwrap(), 20);
}
