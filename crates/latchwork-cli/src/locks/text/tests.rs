//! Tests of the text.

use super::*;
use crate::live::{Key, Kind, Location, Waiter};

fn task(number: usize, waits_for: Option<usize>) -> Task {
    Task {
        is_elsewhere: false,
        pid: 1,
        tid: number as u32,
        name: format!("t{number}"),
        process: String::new(),
        state: 'S',
        ticks: 0,
        started: 0,
        schedule: None,
        waited: None,
        waited_is_exact: false,
        waited_is_least: false,
        seen_for: None,
        waits_at: None,
        waits_for: waits_for.into_iter().collect(),
        memberships: Vec::new(),
    }
}

#[test]
fn an_owner_that_has_died_is_not_one_that_is_not_visible() {
    let text = |absence| unseen_text(UnseenOwner { tid: 7, absence });
    assert_eq!(text(Absence::Died), "thread 7 (has died)");
    assert_eq!(
        text(Absence::DiedOrElsewhere),
        "thread 7 (has died, or is in another PID namespace)"
    );
    assert_eq!(
        text(Absence::NotVisible),
        "thread 7 (in another PID namespace, or not visible)"
    );
}

/// A picture in which `width` tasks own each lock, and wait for the next one.
fn layers(depth: usize, width: usize) -> Picture {
    let mut picture = Picture::default();
    for layer in 0..depth {
        let owners: Vec<_> = (layer * width..(layer + 1) * width).collect();
        let waits_for = (layer + 1 < depth).then_some(layer + 1);
        let tasks = owners.iter().map(|number| task(*number, waits_for));
        picture.tasks.extend(tasks);
        let role = Role::Exclusive;
        let waiters = owners.iter().filter_map(|owner| owner.checked_sub(width));
        let waiters = waiters.map(|task| Waiter { task, role }).collect();
        let key = Key::Private {
            pid: 1,
            address: layer as u64,
        };
        picture.locks.push(Lock {
            name: format!("lock {layer}"),
            kind: Kind::Mutex,
            owners,
            waiters,
            ..Lock::new(key, Location::Heap)
        });
    }
    picture
}

#[test]
fn a_time_shows_how_it_was_determined() {
    let waiting = |exact, least, seen: Option<u64>| {
        waited(&Task {
            waited: Some(Duration::from_millis(700)),
            waited_is_exact: exact,
            waited_is_least: least,
            seen_for: seen.map(Duration::from_secs),
            ..task(0, None)
        })
    };
    let texts = [
        waiting(true, false, Some(14)),
        waiting(false, false, Some(14)),
        waiting(false, true, None),
        waiting(false, true, Some(0)),
        waiting(false, true, Some(14)),
    ];
    let expected = [
        "700 ms",
        "~700 ms",
        "≥700 ms",
        "≥700 ms",
        "≥700 ms seen 14.0 s",
    ];
    assert_eq!(texts.map(Option::unwrap), expected);
}

fn chains(picture: &Picture) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    print_chains(picture, &mut out).unwrap();
    String::from_utf8(out.into_inner()).unwrap()
}

#[test]
fn a_chain_of_any_length_is_shown_with_all_its_tasks() {
    let text = chains(&layers(20_000, 1));
    for number in [19_999, 19_998, 10_000, 0] {
        assert!(text.contains(&format!("t{number} 1/{number}")), "{number}");
    }
    assert!(text.lines().all(|line| line.chars().count() < 300));
}

#[test]
fn many_ways_to_a_task_are_shown_as_one() {
    let text = chains(&layers(60, 2));
    assert!(text.lines().count() < 1000, "{}", text.lines().count());
    assert!(text.contains("t0 1/0") && text.contains("t119 1/119"));
}
