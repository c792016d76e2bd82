// error[E0277]: `Robust` must stay where it is

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{Region, Relocatable, Shareable};

#[derive(Shareable)]
#[repr(C)]
struct Account {
    balance: Mutex<u64, Robust>,
}

fn elements<T: Shareable + Relocatable>(_: &Region) {}

fn main() {
    let _ = elements::<Account>;
}
