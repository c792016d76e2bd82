#![forbid(unsafe_code)]
#![deny(warnings)]

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{PinnedFields, RegionOptions, Shareable, each_pinned};
use latchwork::rwlock::RobustRwLock;
use std::pin::Pin;

#[derive(Shareable, PinnedFields)]
#[repr(C)]
struct Inner<T: 'static> {
    #[pin]
    value: Mutex<T, Robust>,
}

#[derive(Shareable, PinnedFields)]
#[repr(C)]
pub struct Outer {
    #[pin]
    pub single: Mutex<u32, Robust>,
    #[pin]
    inner: Inner<u64>,
    #[pin]
    many: [Mutex<u32, Robust>; 3],
    #[pin]
    read: RobustRwLock<u32>,
    plain: u32,
}

fn outer() -> Outer {
    Outer {
        single: Mutex::robust(1),
        inner: Inner { value: Mutex::robust(2) },
        many: [const { Mutex::robust(3) }; 3],
        read: RobustRwLock::new(4),
        plain: 5,
    }
}

fn sum(outer: Pin<&Outer>) -> u64 {
    let many: u32 = each_pinned(outer.many()).map(|one| *one.lock().unwrap()).sum();
    let inner = *outer.inner().value().lock().unwrap();
    u64::from(*outer.single().lock().unwrap() + many + *outer.read().read().unwrap() + outer.plain) + inner
}

/// Not for regions only, nor for robust locks: a struct without them is still `Unpin`.
#[derive(PinnedFields)]
struct Movable<'a, T: Copy, const N: usize>
where
    T: std::fmt::Debug,
{
    #[pin]
    field: &'a [T; N],
}

fn is_unpin<T: Unpin>(_: &T) {}

fn main() {
    let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous().unwrap();
    let placed = region.object("outer", outer).unwrap();
    assert_eq!(sum(placed), 21);
    assert_eq!(sum(std::pin::pin!(outer()).as_ref()), 21);
    let movable = Movable { field: &[1, 2] };
    is_unpin(&movable);
    assert_eq!(Pin::new(&movable).field().len(), 2);
}
