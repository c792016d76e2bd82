#![forbid(unsafe_code)]

use latchwork::region::{Shareable, TornSafe};

#[derive(Shareable, TornSafe)]
#[repr(C)]
struct Account<T: 'static> {
    balance: i64,
    history: [u64; 8],
    owner: T,
}

#[derive(Shareable)]
#[repr(u8)]
enum Colour {
    Red,
    Green,
}

fn shareable<T: Shareable>(_: T) {}

fn main() {
    shareable(Account { balance: 1, history: [0; 8], owner: 7_u8 });
    shareable([Colour::Red, Colour::Green]);
}
