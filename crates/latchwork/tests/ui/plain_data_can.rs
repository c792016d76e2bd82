use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{RegionOptions, Shareable, TornSafe};

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Account {
    balance: i64,
    history: [u64; 8],
}

fn main() {
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous().unwrap();
    let make = || Mutex::robust(Account { balance: 1, history: [0; 8] });
    let account = region.object::<Mutex<Account, Robust>>("account", make).unwrap();
    let account = account.lock().unwrap();
    assert_eq!((account.balance, account.history[7]), (1, 0));
}
