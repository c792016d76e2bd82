// error: expected `unsafe(name
//! A name is a promise.
use latchwork::region::Shareable;

#[derive(Shareable)]
#[shareable(name = "org.example.Index")]
#[repr(C)]
struct Index {
    value: u64,
}

fn main() {
    let _ = Index { value: 1 };
}
