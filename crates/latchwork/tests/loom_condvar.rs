//! Models of the condition variable: `src/condvar.rs` under the model checker, with a mutex of each way
//! back: waiters are requeued to its word, to the kernel's ownership of its word, or to the relay; and in
//! the crowd.
//!
//! Property: no notification is lost (a lost one ends as loom's deadlock), and no waiter is requeued to the
//! word of a mutex that is not its own. Every model has a negative twin.
//!
//! Left out: the wrap of the ticket, robust mutexes, naps, more than two waiters.
#![cfg(loom)]

use core::mem::ManuallyDrop;
use latchwork::model::{Scene, WakeOrder, as_task, somebody_died};
use latchwork::mutex::InheritFault;
use latchwork::negative_twin;
use loom::sync::Arc;
use loom::thread;

#[path = "loom_condvar/bodies.rs"]
mod bodies;
use bodies::*;

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
fn a_single_notification_reaches_its_waiter_among_three_mutexes() {
    for order in ORDERS {
        ordered(order).explore(Some(2), one_of_three_mutexes_is_notified::<Word>);
    }
}

negative_twin!(
    twin_crowd_of_several_mutexes_of_which_one_is_woken_is_detected,
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
    twin_ticket_that_does_not_move_is_detected,
    CondvarTicketStays,
    "deadlock",
    None,
    one_waiter_is_notified::<Word>
);

negative_twin!(
    twin_ticket_that_does_not_move_is_detected_with_two_waiters,
    CondvarTicketStays,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Word>
);

negative_twin!(
    twin_ticket_that_does_not_move_is_detected_in_the_crowd,
    CondvarTicketStays,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Crowd>
);

negative_twin!(
    twin_ticket_that_is_read_after_the_unlock_is_detected,
    CondvarTicketReadLate,
    "deadlock",
    None,
    one_waiter_is_notified::<Word>
);

negative_twin!(
    twin_ticket_that_is_read_after_the_unlock_is_detected_in_the_crowd,
    CondvarTicketReadLate,
    "deadlock",
    None,
    one_waiter_is_notified::<Crowd>
);

negative_twin!(
    twin_notification_that_skips_a_single_waiter_is_detected,
    CondvarSkipsSingleWaiter,
    "deadlock",
    None,
    one_waiter_is_notified_under_the_lock::<Owner>
);

negative_twin!(
    twin_released_waiter_that_forgets_the_others_is_detected,
    CondvarRelockUncontended,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Word>
);

negative_twin!(
    twin_relay_that_stops_is_detected,
    CondvarRelayStops,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Relay>
);

negative_twin!(
    twin_relay_that_is_counted_late_is_detected,
    CondvarRelayCountsLate,
    "deadlock",
    Some(3),
    two_waiters_are_notified_at_once::<Relay>
);

negative_twin!(
    twin_time_out_that_hides_a_notification_is_detected,
    CondvarTimesOutNotified,
    "deadlock",
    Some(3),
    one_of_two_waiters_gives_up::<Owner>
);

negative_twin!(
    twin_mutex_that_is_changed_unseen_is_detected,
    CondvarBindsUnseen,
    "sent to a word that it does not wait for",
    Some(4),
    a_waiter_changes_the_mutex::<Owner>
);

negative_twin!(
    twin_waiters_that_are_requeued_to_the_mutex_of_another_are_detected,
    CondvarMixesMutexes,
    "sent to a word that it does not wait for",
    Some(3),
    two_mutexes_at_once::<Owner>
);
