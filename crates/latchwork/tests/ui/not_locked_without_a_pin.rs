// error[E0277]: a robust lock is used through a pinned reference: this needs a `Pin<&_>`

use latchwork::mutex::{Mutex, Robust};

struct Bank {
    a: Mutex<u64, Robust>,
}

fn deposit(bank: &Bank) {
    *bank.a.lock().unwrap() += 1;
}

fn main() {
    deposit(&Bank { a: Mutex::robust(0) });
}
