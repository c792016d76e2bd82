//! The supervisor: restart policies, and its deadline.

mod coproc_support;

use coproc_support::region;
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{Attributes, Happening, JoinError, Restart, Signal, Spec, Supervisor};
use latchwork::region::Region;
use std::time::Duration;

fn give(_: &Region, value: i32) -> i32 {
    value
}

fn pause(_: &Region, (): ()) -> i32 {
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

#[test]
fn a_supervisor_starts_again_by_policy() {
    fn succeed_on_the_third(region: &Region, (): ()) -> i32 {
        let runs = region.find::<AtomicU32>("runs").unwrap();
        if runs.fetch_add(1, Ordering::Relaxed) < 2 {
            std::process::abort()
        } else {
            0
        }
    }
    let region = region();
    region.object("runs", || AtomicU32::new(0)).unwrap();
    let mut supervisor = Supervisor::new(coproc_support::start(&region).unwrap());
    let short = Duration::from_millis(1);
    let hour = Duration::from_secs(3600);
    supervisor.add(
        Spec::new("retry", |coprocs| {
            coprocs.spawn_value(succeed_on_the_third, (), &Attributes::new().core_size(0))
        })
        .back_off(short, short),
    );
    supervisor.add(
        Spec::new("once", |coprocs| {
            coprocs.spawn_value(give, 1, &Attributes::new())
        })
        .restart(Restart::Never),
    );
    supervisor.add(
        Spec::new("always", |coprocs| {
            coprocs.spawn_value(give, 0, &Attributes::new())
        })
        .restart(Restart::Always)
        .limit(4, hour)
        .back_off(short, short),
    );
    supervisor.add(
        Spec::new("refused", |coprocs| {
            coprocs.spawn_value(give, 0, &Attributes::new().affinity([]))
        })
        .limit(1, hour),
    );
    let events = supervisor.run_until(None);
    let count = |name: &str, is: fn(&Happening) -> bool| {
        events
            .iter()
            .filter(|event| event.name == name && is(&event.what))
            .count()
    };
    let ended = |happening: &Happening| matches!(happening, Happening::Ended(_));
    let restarted = |happening: &Happening| matches!(happening, Happening::Restarted { .. });
    let gave_up = |happening: &Happening| matches!(happening, Happening::GaveUp);
    assert_eq!(
        (
            count("retry", ended),
            count("retry", restarted),
            count("retry", gave_up)
        ),
        (3, 2, 0)
    );
    assert_eq!(
        (
            count("once", ended),
            count("once", restarted),
            count("once", gave_up)
        ),
        (1, 0, 0)
    );
    assert_eq!(
        (
            count("always", ended),
            count("always", restarted),
            count("always", gave_up)
        ),
        (5, 4, 1)
    );
    let not_started = |happening: &Happening| matches!(happening, Happening::NotStarted(_));
    assert_eq!(
        (count("refused", not_started), count("refused", gave_up)),
        (2, 1)
    );
}

#[test]
fn a_supervisor_stops_at_its_deadline_and_goes_on() {
    let region = region();
    let mut supervisor = Supervisor::new(coproc_support::start(&region).unwrap());
    supervisor.add(
        Spec::new("worker", |coprocs| {
            coprocs.spawn_value(pause, (), &Attributes::new())
        })
        .restart(Restart::Never),
    );
    let deadline = latchwork::time::Deadline::after(Duration::from_millis(30));
    let events = supervisor.run_until(Some(deadline));
    assert!(matches!(
        events[..],
        [latchwork::coproc::Event {
            what: Happening::Started { .. },
            ..
        }]
    ));
    supervisor
        .running("worker")
        .unwrap()
        .kill(Signal::KILL)
        .unwrap();
    let events = supervisor.run_until(None);
    assert!(matches!(
        events[..],
        [latchwork::coproc::Event {
            what: Happening::Ended(_),
            ..
        }]
    ));
    assert!(supervisor.running("worker").is_none());
}

#[test]
fn in_a_child_of_a_fork_the_parents_coprocs_are_lost() {
    let _watchdog = latchwork_testkit::Watchdog::start("a child of a fork".into());
    let region = region();
    let mut supervisor = Supervisor::new(coproc_support::start(&region).unwrap());
    let worker = Spec::new("worker", |coprocs| {
        coprocs.spawn_value(pause, (), &Attributes::new())
    });
    supervisor.add(worker.restart(Restart::Never));
    assert_eq!(supervisor.next_events(None).len(), 1);
    let mut child = latchwork_testkit::Child::fork(|| {
        let events = supervisor.run_until(None);
        let is_lost = |what: &_| matches!(what, Happening::Lost(JoinError::OtherProcess));
        assert!(
            matches!(&events[..], [only] if is_lost(&only.what)),
            "{events:?}"
        );
    });
    assert_eq!(child.wait(), latchwork_testkit::Exit::Code(0));
    let worker = supervisor.running("worker").unwrap();
    worker.kill(Signal::KILL).unwrap();
    let events = supervisor.run_until(None);
    assert!(matches!(&events[..], [only] if matches!(only.what, Happening::Ended(_))));
}

/// The supervisor holds its handle, and is what waits for it.
#[test]
fn the_success_of_a_detached_coproc_is_no_failure() {
    let _watchdog = latchwork_testkit::Watchdog::start("a detached coproc".into());
    let region = region();
    let mut supervisor = Supervisor::new(coproc_support::start(&region).unwrap());
    supervisor.add(Spec::new("detached", |coprocs| {
        coprocs.spawn_value(give, 0, &Attributes::new().detached())
    }));
    let events = supervisor.run_until(None);
    let what: Vec<_> = events.iter().map(|event| &event.what).collect();
    assert!(
        matches!(what[..], [Happening::Started { .. }, Happening::Ended(exit)] if exit.is_success()),
        "{events:?}"
    );
}

#[test]
fn a_start_is_reported_before_the_first_end() {
    let _watchdog = latchwork_testkit::Watchdog::start("a start".into());
    let region = region();
    let mut supervisor = Supervisor::new(coproc_support::start(&region).unwrap());
    supervisor.add(Spec::new("endless", |coprocs| {
        coprocs.spawn_value(pause, (), &Attributes::new())
    }));
    // Without a deadline: it returns although nothing ends.
    let events = supervisor.next_events(None);
    assert!(matches!(events[..], [ref only] if matches!(only.what, Happening::Started { .. })));
    let endless = supervisor.running("endless").unwrap();
    endless.kill(Signal::KILL).unwrap();
    let events = supervisor.next_events(None);
    assert!(matches!(events[0].what, Happening::Ended(_)));
}

#[test]
fn a_coproc_that_became_another_program_does_not_hold_up_the_others() {
    fn become_a_program(_: &Region, (): ()) -> i32 {
        use std::os::unix::process::CommandExt;
        let error = std::process::Command::new("sleep").arg("1000").exec();
        panic!("{error}")
    }
    let _watchdog = latchwork_testkit::Watchdog::start("supervised program".into());
    let region = region();
    let mut supervisor = Supervisor::new(coproc_support::start(&region).unwrap());
    supervisor.add(
        Spec::new("program", |coprocs| {
            coprocs.spawn_value(become_a_program, (), &Attributes::new())
        })
        .restart(Restart::Never),
    );
    let events = supervisor.next_events(None);
    assert!(matches!(events[..], [ref event] if event.name == "program"));
    let short = Duration::from_millis(1);
    supervisor.add(
        Spec::new("flaky", |coprocs| {
            coprocs.spawn_value(give, 1, &Attributes::new())
        })
        .limit(3, Duration::from_secs(3600))
        .back_off(short, short),
    );
    let mut ends = 0;
    loop {
        let events = supervisor.next_events(None);
        let flaky = events.iter().filter(|event| event.name == "flaky");
        let flaky: Vec<_> = flaky.map(|event| &event.what).collect();
        assert_eq!(flaky.len(), events.len(), "{events:?}");
        ends += flaky
            .iter()
            .filter(|what| matches!(what, Happening::Ended(_)))
            .count();
        if matches!(flaky.last(), Some(Happening::GaveUp)) {
            break;
        }
    }
    assert_eq!(ends, 4);
    let soon = latchwork::time::Deadline::after(Duration::from_millis(30));
    assert!(supervisor.run_until(Some(soon)).is_empty());
    let program = supervisor.running("program").unwrap();
    program.kill(Signal::KILL).unwrap();
    let events = supervisor.run_until(None);
    assert!(matches!(
        events[..],
        [latchwork::coproc::Event {
            what: Happening::Ended(_),
            ..
        }]
    ));
}
