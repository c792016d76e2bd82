//! What the tasks of the models do, for each way in which waiters get to their mutex.

use latchwork::condvar::{Condvar, Waited};
use latchwork::model::{SOON, as_task};
use latchwork::mutex::{InheritPlain, Mutex, MutexGuard, Protocol, WaitWake};
use latchwork::sharing::{Private, Shared, Sharing};
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

/// A mutex, and what its waiters do when they are released.
pub trait Way: 'static {
    type Lock: Protocol + Default + Send + Sync;
    type Sharing: Sharing + Send + Sync;
    fn take<G>(outcome: <Self::Lock as Protocol>::Outcome<G>) -> G;
}

/// They are requeued to the mutex's word.
pub struct Word;
/// They are requeued to the mutex's word, and own it when they wake up.
pub struct Owner;
/// They are requeued to the relay.
pub struct Relay;
/// They are requeued to the relay, and then wait to own the mutex's word.
pub struct RelayToOwner;
/// They meet at the mutex.
pub struct Crowd;

macro_rules! ways {
    ($($way:ident, $lock:ty, $sharing:ty, $take:expr;)*) => {$(
        impl Way for $way {
            type Lock = $lock;
            type Sharing = $sharing;
            fn take<G>(outcome: <$lock as Protocol>::Outcome<G>) -> G {
                $take(outcome)
            }
        }
    )*};
}
ways! {
    Word, WaitWake, Private, core::convert::identity;
    Owner, InheritPlain, Private, Result::unwrap;
    // The private condition variable cannot requeue a waiter to a shared word.
    Relay, WaitWake<Shared>, Private, core::convert::identity;
    RelayToOwner, InheritPlain<Shared>, Private, Result::unwrap;
    Crowd, WaitWake<Shared>, Shared, core::convert::identity;
}

pub type Guard<'a, W> = MutexGuard<'a, u32, <W as Way>::Lock>;

pub struct Shop<W: Way> {
    pub tokens: Mutex<u32, W::Lock>,
    /// Of another mutex.
    pub others: Mutex<u32, W::Lock>,
    /// And another.
    pub last: Mutex<u32, W::Lock>,
    pub changed: Condvar<W::Sharing>,
}

impl<W: Way> Shop<W> {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            tokens: Mutex::from_raw(W::Lock::default(), 0),
            others: Mutex::from_raw(W::Lock::default(), 0),
            last: Mutex::from_raw(W::Lock::default(), 0),
            changed: Condvar::new_in(),
        })
    }

    pub fn tokens(&self) -> Guard<'_, W> {
        W::take(self.tokens.lock())
    }

    pub fn others(&self) -> Guard<'_, W> {
        W::take(self.others.lock())
    }

    pub fn wait<'a>(&self, guard: Guard<'a, W>) -> Guard<'a, W> {
        W::take(self.changed.wait_while(guard, |tokens| *tokens == 0))
    }

    pub fn take(&self) {
        *self.wait(self.tokens()) -= 1;
    }

    /// Gives up after one wait; what it may have been told goes to the next.
    pub fn take_hastily(&self) {
        let guard = self.tokens();
        if *guard > 0 {
            return;
        }
        let (guard, waited) = W::take(self.changed.wait_until(guard, SOON));
        drop(guard);
        if waited == Waited::Woken {
            self.changed.notify_one();
        }
    }

    pub fn spawn(shop: &Arc<Self>, number: usize, body: fn(&Self)) -> JoinHandle<()> {
        let shop = Arc::clone(shop);
        thread::spawn(move || {
            as_task(number, None, || body(&shop));
        })
    }
}

pub fn as_main(body: impl FnOnce()) {
    as_task(0, None, body);
}

pub fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

pub fn one_waiter_is_notified<W: Way>() {
    let shop = Shop::<W>::new();
    let waiter = Shop::spawn(&shop, 1, Shop::take);
    as_main(|| {
        *shop.tokens() += 1;
        shop.changed.notify_one();
    });
    join([waiter]);
}

pub fn one_waiter_is_notified_under_the_lock<W: Way>() {
    let shop = Shop::<W>::new();
    let waiter = Shop::spawn(&shop, 1, Shop::take);
    as_main(|| {
        let mut tokens = shop.tokens();
        *tokens += 1;
        shop.changed.notify_one();
    });
    join([waiter]);
}

/// Each of two notifications must reach a waiter of its own.
pub fn two_waiters_are_notified_one_by_one<W: Way>() {
    let shop = Shop::<W>::new();
    let waiters = [
        Shop::spawn(&shop, 1, Shop::take),
        Shop::spawn(&shop, 2, Shop::take),
    ];
    as_main(|| {
        for _ in 0..2 {
            *shop.tokens() += 1;
            shop.changed.notify_one();
        }
    });
    join(waiters);
}

pub fn two_waiters_are_notified_at_once<W: Way>() {
    let shop = Shop::<W>::new();
    let waiters = [
        Shop::spawn(&shop, 1, Shop::take),
        Shop::spawn(&shop, 2, Shop::take),
    ];
    as_main(|| {
        *shop.tokens() += 2;
        shop.changed.notify_all();
    });
    join(waiters);
}

pub fn one_and_all_are_notified_together<W: Way>() {
    let shop = Shop::<W>::new();
    let waiters = [
        Shop::spawn(&shop, 1, Shop::take),
        Shop::spawn(&shop, 2, Shop::take),
    ];
    as_main(|| {
        *shop.tokens() += 1;
        shop.changed.notify_all();
        *shop.tokens() += 1;
        shop.changed.notify_one();
    });
    join(waiters);
}

/// A waiter that gives up may have had the notification of another: it passes it on.
pub fn one_of_two_waiters_gives_up<W: Way>() {
    let shop = Shop::<W>::new();
    let hasty = Shop::spawn(&shop, 1, Shop::take_hastily);
    let patient = Shop::spawn(&shop, 2, Shop::take);
    as_main(|| {
        let mut tokens = shop.tokens();
        *tokens += 1;
        shop.changed.notify_one();
    });
    join([hasty, patient]);
}

/// The one that gives up may be the one that was woken, or the next, wherever it sleeps.
pub fn one_of_those_released_gives_up<W: Way>() {
    let shop = Shop::<W>::new();
    let hasty = Shop::spawn(&shop, 1, Shop::take_hastily);
    let patient = Shop::spawn(&shop, 2, Shop::take);
    as_main(|| {
        *shop.tokens() += 1;
        shop.changed.notify_all();
    });
    join([hasty, patient]);
}

/// A waiter gives up with one mutex, and waits with another, as it is notified with the first.
pub fn a_waiter_changes_the_mutex<W: Way>() {
    let shop = Shop::<W>::new();
    let fickle = Shop::spawn(&shop, 1, |shop| {
        shop.take_hastily();
        *shop.wait(shop.others()) -= 1;
    });
    as_main(|| {
        *shop.tokens() += 1;
        shop.changed.notify_all();
        *shop.others() += 1;
        shop.changed.notify_one();
    });
    join([fickle]);
}

/// Three wait with a mutex each, so that two have nothing in common with those in the gathering.
pub fn one_of_three_mutexes_is_notified<W: Way>() {
    let shop = Shop::<W>::new();
    let waiter = Shop::spawn(&shop, 1, |shop| {
        *shop.wait(W::take(shop.last.lock())) -= 1;
    });
    let rest = [
        Shop::spawn(&shop, 2, |shop| *shop.wait(shop.others()) -= 1),
        Shop::spawn(&shop, 3, Shop::take),
    ];
    as_main(|| {
        *W::take(shop.last.lock()) += 1;
        shop.changed.notify_one();
    });
    join([waiter]);
    as_main(|| {
        *shop.others() += 1;
        *shop.tokens() += 1;
        shop.changed.notify_all();
    });
    join(rest);
}

/// Two wait with a mutex each.
pub fn two_mutexes_at_once<W: Way>() {
    let shop = Shop::<W>::new();
    let waiters = [
        Shop::spawn(&shop, 1, Shop::take),
        Shop::spawn(&shop, 2, |shop| *shop.wait(shop.others()) -= 1),
    ];
    as_main(|| {
        *shop.tokens() += 1;
        shop.changed.notify_all();
        *shop.others() += 1;
        shop.changed.notify_all();
    });
    join(waiters);
}
