// error[E0277]: `PhantomPinned` cannot be unpinned

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::PinnedFields;
use std::pin::Pin;

#[derive(PinnedFields)]
struct Bank {
    #[pin]
    a: Mutex<u64, Robust>,
}

fn main() {
    let bank = Bank { a: Mutex::robust(0) };
    *Pin::new(&bank).a().lock().unwrap() += 1;
}
