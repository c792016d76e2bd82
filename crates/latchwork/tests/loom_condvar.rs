//! Models of the condition variable: `src/condvar.rs` under the model checker, with a mutex of each way
//! back: waiters are sent on to its word, to the kernel's ownership of its word, or to the relay; and in
//! the crowd.
//!
//! Property: no notification is lost (a lost one ends as loom's deadlock), and nobody is sent to the word
//! of a mutex that is not its own. Every model has a negative twin.
//!
//! Left out: the wrap of the ticket, robust mutexes, naps, more than two waiters.
#![cfg(loom)]

use core::mem::ManuallyDrop;
use latchwork::condvar::{Condvar, Waited};
use latchwork::model::{SOON, Scene, WakeOrder, as_task, somebody_died};
use latchwork::mutex::{InheritFault, InheritPlain, Mutex, MutexGuard, Protocol, WaitWake};
use latchwork::negative_twin;
use latchwork::sharing::{Private, Shared, Sharing};
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

/// A mutex, and what its waiters do when they are released.
trait Way: 'static {
    type Lock: Protocol + Default + Send + Sync;
    type Sharing: Sharing + Send + Sync;
    fn take<G>(outcome: <Self::Lock as Protocol>::Outcome<G>) -> G;
}

/// They are sent to the mutex's word.
struct Word;
/// They are sent to the mutex's word, and own it when they wake up.
struct Owner;
/// They are sent to the relay.
struct Relay;
/// They are sent to the relay, and then wait to own the mutex's word.
struct RelayToOwner;
/// They meet at the mutex.
struct Crowd;

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
    // The private condition variable cannot send anybody to a shared word.
    Relay, WaitWake<Shared>, Private, core::convert::identity;
    RelayToOwner, InheritPlain<Shared>, Private, Result::unwrap;
    Crowd, WaitWake<Shared>, Shared, core::convert::identity;
}

type Guard<'a, W> = MutexGuard<'a, u32, <W as Way>::Lock>;

struct Shop<W: Way> {
    tokens: Mutex<u32, W::Lock>,
    /// Of another mutex.
    others: Mutex<u32, W::Lock>,
    /// And another.
    last: Mutex<u32, W::Lock>,
    changed: Condvar<W::Sharing>,
}

impl<W: Way> Shop<W> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            tokens: Mutex::from_raw(W::Lock::default(), 0),
            others: Mutex::from_raw(W::Lock::default(), 0),
            last: Mutex::from_raw(W::Lock::default(), 0),
            changed: Condvar::new_in(),
        })
    }

    fn tokens(&self) -> Guard<'_, W> {
        W::take(self.tokens.lock())
    }

    fn others(&self) -> Guard<'_, W> {
        W::take(self.others.lock())
    }

    fn wait<'a>(&self, guard: Guard<'a, W>) -> Guard<'a, W> {
        W::take(self.changed.wait_while(guard, |tokens| *tokens == 0))
    }

    fn take(&self) {
        *self.wait(self.tokens()) -= 1;
    }

    /// Gives up after one wait; what it may have been told goes to the next.
    fn take_hastily(&self) {
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

    fn spawn(shop: &Arc<Self>, number: usize, body: fn(&Self)) -> JoinHandle<()> {
        let shop = Arc::clone(shop);
        thread::spawn(move || {
            as_task(number, None, || body(&shop));
        })
    }
}

fn as_main(body: impl FnOnce()) {
    as_task(0, None, body);
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

fn one_waiter_is_notified<W: Way>() {
    let shop = Shop::<W>::new();
    let waiter = Shop::spawn(&shop, 1, Shop::take);
    as_main(|| {
        *shop.tokens() += 1;
        shop.changed.notify_one();
    });
    join([waiter]);
}

fn one_waiter_is_notified_under_the_lock<W: Way>() {
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
fn two_waiters_are_notified_one_by_one<W: Way>() {
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

fn two_waiters_are_notified_at_once<W: Way>() {
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

fn one_and_all_are_notified_together<W: Way>() {
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
fn one_of_two_waiters_gives_up<W: Way>() {
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
fn one_of_those_released_gives_up<W: Way>() {
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
fn a_waiter_changes_the_mutex<W: Way>() {
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
fn one_of_three_mutexes_is_notified<W: Way>() {
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
fn two_mutexes_at_once<W: Way>() {
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

const ORDERS: [WakeOrder; 2] = [WakeOrder::Oldest, WakeOrder::Newest];

fn spurious(spurious: usize) -> Scene {
    Scene {
        spurious,
        ..Scene::default()
    }
}

fn ordered(wake_order: WakeOrder) -> Scene {
    Scene {
        wake_order,
        ..Scene::default()
    }
}

macro_rules! by_each_way {
    ($($module:ident: $way:ident, $preemptions:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn no_notification_is_lost_with_one_waiter() {
                for wakes in [0, 1, 2] {
                    spurious(wakes).explore(Some(4), one_waiter_is_notified::<$way>);
                    spurious(wakes).explore(Some(4), one_waiter_is_notified_under_the_lock::<$way>);
                }
            }

            #[test]
            fn two_notifications_reach_two_waiters() {
                for order in ORDERS {
                    ordered(order).explore($preemptions, two_waiters_are_notified_one_by_one::<$way>);
                }
            }

            #[test]
            fn two_notifications_reach_two_waiters_despite_spurious_wakeups() {
                spurious(1).explore($preemptions, two_waiters_are_notified_one_by_one::<$way>);
            }

            #[test]
            fn a_broadcast_reaches_two_waiters() {
                for wakes in [0, 1] {
                    spurious(wakes).explore($preemptions, two_waiters_are_notified_at_once::<$way>);
                }
                ordered(WakeOrder::Newest)
                    .explore($preemptions, two_waiters_are_notified_at_once::<$way>);
            }

            #[test]
            fn a_broadcast_and_a_notification_reach_two_waiters() {
                for order in ORDERS {
                    ordered(order).explore(Some(2), one_and_all_are_notified_together::<$way>);
                }
            }

            #[test]
            fn a_waiter_that_gives_up_takes_no_notification_with_it() {
                for order in ORDERS {
                    ordered(order).explore($preemptions, one_of_two_waiters_gives_up::<$way>);
                    ordered(order).explore($preemptions, one_of_those_released_gives_up::<$way>);
                }
            }

            #[test]
            fn a_waiter_may_change_the_mutex() {
                Scene::default().explore(Some(4), a_waiter_changes_the_mutex::<$way>);
            }

            #[test]
            fn two_mutexes_at_once_lose_nothing() {
                Scene::default().explore($preemptions, two_mutexes_at_once::<$way>);
            }
        }
    )*};
}

by_each_way! {
    word: Word, Some(3);
    owner: Owner, Some(3);
    relay: Relay, Some(3);
    relay_to_owner: RelayToOwner, Some(2);
    crowd: Crowd, Some(3);
}

#[test]
fn a_notification_of_one_reaches_its_waiter_among_three_mutexes() {
    for order in ORDERS {
        ordered(order).explore(Some(2), one_of_three_mutexes_is_notified::<Word>);
    }
}

negative_twin!(
    twin_crowd_of_several_mutexes_of_which_one_is_woken_is_found,
    CondvarWakesOneOfCrowd,
    "deadlock",
    Some(2),
    one_of_three_mutexes_is_notified::<Word>
);

/// A task dies with the mutex, whatever it has done; the waiter is told, or has its token.
fn a_holder_dies(life: usize) {
    let shop = Shop::<Owner>::new();
    let waiter = {
        let shop = Arc::clone(&shop);
        thread::spawn(move || {
            as_task(1, None, || {
                let gone = match shop.tokens.lock() {
                    Ok(guard) => shop.changed.wait_while(guard, |tokens| *tokens == 0),
                    Err(fault) => Err(fault),
                };
                if let Err(fault) = gone {
                    assert_eq!(fault, InheritFault::OwnerGone);
                }
            });
        })
    };
    let victim = {
        let shop = Arc::clone(&shop);
        thread::spawn(move || {
            as_task(2, Some(life), || {
                // A death runs no destructor.
                let mut tokens = ManuallyDrop::new(shop.tokens());
                **tokens += 1;
                shop.changed.notify_one();
                drop(ManuallyDrop::into_inner(tokens));
            });
        })
    };
    join([victim]);
    as_main(|| {
        if let Ok(mut tokens) = shop.tokens.lock() {
            *tokens += 1;
        }
        shop.changed.notify_all();
    });
    join([waiter]);
}

#[test]
fn a_waiter_learns_of_the_death_of_a_holder_at_every_step() {
    for life in 0.. {
        somebody_died();
        Scene::default().explore(Some(3), move || a_holder_dies(life));
        if !somebody_died() {
            assert!(life > 2, "the victim has more steps than that");
            return;
        }
    }
}

negative_twin!(
    twin_ticket_that_does_not_move_is_found,
    CondvarTicketStays,
    "deadlock",
    None,
    one_waiter_is_notified::<Word>
);

negative_twin!(
    twin_ticket_that_does_not_move_is_found_with_two_waiters,
    CondvarTicketStays,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Word>
);

negative_twin!(
    twin_ticket_that_does_not_move_is_found_in_the_crowd,
    CondvarTicketStays,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Crowd>
);

negative_twin!(
    twin_ticket_that_is_read_after_the_unlock_is_found,
    CondvarTicketReadLate,
    "deadlock",
    None,
    one_waiter_is_notified::<Word>
);

negative_twin!(
    twin_ticket_that_is_read_after_the_unlock_is_found_in_the_crowd,
    CondvarTicketReadLate,
    "deadlock",
    None,
    one_waiter_is_notified::<Crowd>
);

negative_twin!(
    twin_notification_that_skips_a_single_waiter_is_found,
    CondvarSkipsSingleWaiter,
    "deadlock",
    None,
    one_waiter_is_notified_under_the_lock::<Owner>
);

negative_twin!(
    twin_released_waiter_that_forgets_the_others_is_found,
    CondvarRelockUncontended,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Word>
);

negative_twin!(
    twin_relay_that_stops_is_found,
    CondvarRelayStops,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Relay>
);

negative_twin!(
    twin_relay_that_is_counted_late_is_found,
    CondvarRelayCountsLate,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Relay>
);

negative_twin!(
    twin_time_out_that_hides_a_notification_is_found,
    CondvarTimesOutNotified,
    "deadlock",
    Some(3),
    one_of_two_waiters_gives_up::<Owner>
);

negative_twin!(
    twin_mutex_that_is_changed_unseen_is_found,
    CondvarBindsUnseen,
    "sent to a word that it does not wait for",
    Some(4),
    a_waiter_changes_the_mutex::<Owner>
);

negative_twin!(
    twin_waiters_that_are_sent_to_the_mutex_of_another_are_found,
    CondvarMixesMutexes,
    "sent to a word that it does not wait for",
    Some(3),
    two_mutexes_at_once::<Owner>
);
