//! All kinds of locks: those that processes share, and those of one process.

use crate::locks::{Game, Lock, Place, RobustRw, Waits};
use crate::mail::Mail;
use crate::stores::Store;
use crate::task::Spot;
use crate::witness::Halves;
use latchwork::condvar::Condvar;
use latchwork::mutex::{
    InRegion, Inherit, InheritPlain, Mutex, Protect, Robust, Throughput, WaitWake,
};
use latchwork::region::{Region, Shareable};
use latchwork::rwlock::{ReadersFirst, RwLock, WritersFirst};
use latchwork::sharing::{Private, Shared, Sharing};

/// What is played with: made by the first who opens it in a region, found by the others.
pub trait Scene: 'static {
    fn open(region: &Region, priorities: bool) -> Vec<Spot<'_>>;
}

impl<'r> Spot<'r> {
    /// The same, for as long as this one is there.
    pub fn lend(&self) -> Spot<'_> {
        Spot::new(&self.name, &*self.game, self.is_robust, self.nests)
    }

    pub fn new(name: &str, game: impl Game + 'r, is_robust: bool, nests: bool) -> Self {
        Self {
            name: name.to_owned(),
            game: Box::new(game),
            is_robust,
            nests,
        }
    }
}

/// A lock in a region.
pub fn shared_lock<'r, L: Lock>(region: &'r Region, name: &str) -> Spot<'r>
where
    Place<L>: Shareable,
{
    let place = region.object(name, Place::<L>::new).unwrap().get_ref();
    Spot::new(name, place, L::ROBUST, true)
}

/// A store in a region.
pub fn shared_store<'r, L: Waits, S: Sharing>(
    region: &'r Region,
    name: &str,
    make: fn() -> Store<L, Condvar<S>>,
) -> Spot<'r>
where
    Store<L, Condvar<S>>: Shareable,
    Condvar<S>: Send + Sync,
{
    let store = region.object(name, make).unwrap().get_ref();
    Spot::new(name, store, L::ROBUST, false)
}

pub fn private_lock<L: Lock + 'static>(name: &str) -> Spot<'static> {
    Spot::new(name, Place::<L>::new(), L::ROBUST, true)
}

fn private_store<L: Waits + 'static, S: Sharing>(
    name: &str,
    make: fn() -> Store<L, Condvar<S>>,
) -> Spot<'static>
where
    Condvar<S>: Send + Sync,
{
    Spot::new(name, make(), L::ROBUST, false)
}

/// A spot for each kind of lock, in the order in which they are taken.
macro_rules! every_kind {
    ($sharing:ident, $priorities:expr, $lock:ident($($region:ident)?), $store:ident) => {{
        macro_rules! lock {
            ($lock_type:ty, $name:literal) => {
                $lock::<$lock_type>($($region,)? concat!(stringify!($sharing), " ", $name))
            };
        }
        macro_rules! store {
            ($lock_type:ty, $name:literal) => {
                $store::<$lock_type, $sharing>(
                    $($region,)?
                    concat!(stringify!($sharing), " ", $name),
                    Store::new,
                )
            };
        }
        let mut spots = vec![
            lock!(Mutex<Halves, WaitWake<$sharing>>, "wait-wake"),
            lock!(Mutex<Halves, Throughput<$sharing>>, "throughput"),
            lock!(Mutex<Halves, Inherit<$sharing>>, "inherit"),
            lock!(Mutex<Halves, InheritPlain<$sharing>>, "inherit-plain"),
            lock!(Mutex<Halves, Robust<WaitWake<$sharing>>>, "robust"),
            lock!(Mutex<Halves, Robust<Throughput<$sharing>>>, "robust throughput"),
            lock!(Mutex<Halves, Robust<Inherit<$sharing>>>, "robust inherit"),
            lock!(RwLock<Halves, $sharing, WritersFirst>, "rwlock, writers first"),
            lock!(RwLock<Halves, $sharing, ReadersFirst>, "rwlock, readers first"),
            lock!(RobustRw, "robust rwlock"),
            store!(Mutex<Halves, WaitWake<$sharing>>, "condvar, wait-wake"),
            store!(Mutex<Halves, Throughput<$sharing>>, "condvar, throughput"),
            store!(Mutex<Halves, Inherit<$sharing>>, "condvar, inherit"),
            store!(Mutex<Halves, InheritPlain<$sharing>>, "condvar, inherit-plain"),
            store!(Mutex<Halves, Robust<WaitWake<$sharing>>>, "condvar, robust"),
            store!(Mutex<Halves, Robust<Throughput<$sharing>>>, "condvar, robust throughput"),
            store!(Mutex<Halves, Robust<Inherit<$sharing>>>, "condvar, robust inherit"),
        ];
        if $priorities {
            spots.extend([
                lock!(Mutex<Halves, Protect<$sharing>>, "protect"),
                lock!(Mutex<Halves, Robust<Protect<$sharing>>>, "robust protect"),
                store!(Mutex<Halves, Protect<$sharing>>, "condvar, protect"),
                store!(Mutex<Halves, Robust<Protect<$sharing>>>, "condvar, robust protect"),
            ]);
        }
        spots
    }};
}

/// In the region.
pub struct Everything;

impl Scene for Everything {
    fn open(region: &Region, priorities: bool) -> Vec<Spot<'_>> {
        let mut spots = every_kind!(Shared, priorities, shared_lock(region), shared_store);
        let name = "rwlock of region locks";
        spots.push(shared_lock::<RobustRw<InRegion>>(region, name));
        spots.push(Spot::new("queue", Mail::open(region), true, false));
        spots
    }
}

/// In this process.
pub fn private_kinds(priorities: bool) -> Vec<Spot<'static>> {
    every_kind!(Private, priorities, private_lock(), private_store)
}
