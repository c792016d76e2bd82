use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{RegionOptions, Shareable, TornSafe};

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Account {
    balance: i64,
    history: [u64; 8],
}

type Many = Mutex<([Option<u64>; 2], (u8, char, Option<(bool, i32)>)), Robust>;

fn main() {
    let region = RegionOptions::new().max_bytes(1 << 20).create_anonymous().unwrap();
    let make = || Mutex::robust(Account { balance: 1, history: [0; 8] });
    let account = region.object::<Mutex<Account, Robust>>("account", make).unwrap();
    let many = region.object::<Many>("many", || Mutex::robust(([None, Some(7)], (1, 'x', None)))).unwrap();
    many.lock().unwrap().1.2 = Some((true, -1));
    let pair = region.object("pair", || Mutex::robust((1u32, 2u64))).unwrap();
    if let Err(latchwork::mutex::LockError::OwnerDied(died)) = pair.lock() {
        drop(died.make_consistent());
    }
    let account = account.lock().unwrap();
    assert_eq!((account.balance, account.history[7]), (1, 0));
}
