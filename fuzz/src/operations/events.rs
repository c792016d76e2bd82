//! A task's own events, and two words.

use arbitrary::Arbitrary;
use latchwork::event::{EventSet, Events, ReceiveError, TryReceiveError};
use latchwork::region::{Region, TaskId};
use std::time::Duration;

#[derive(Arbitrary, Debug)]
pub struct Step {
    system: bool,
    events: u32,
    what: What,
}

#[derive(Arbitrary, Debug)]
pub enum What {
    Send,
    TryAny,
    TryAll,
    Any,
    All,
    SendToNobody(u64),
}

pub fn run(region: &Region, steps: Vec<Step>) {
    let own = region.task_id().unwrap();
    let sets = [Events::new(region), Events::system(region)];
    let mut model = [EventSet::empty(); 2];
    for step in steps.into_iter().take(64) {
        let side = usize::from(step.system);
        let (set, pending) = (sets[side], &mut model[side]);
        let events = EventSet::from_bits_retain(step.events);
        let present = *pending & events;
        let has_any = events.is_empty() || !present.is_empty();
        let has_all = pending.contains(events);
        let (taken, should) = match step.what {
            What::Send => {
                set.send(own, events).unwrap();
                *pending |= events;
                continue;
            }
            What::SendToNobody(raw) => {
                let task = TaskId::from_raw(raw).filter(|task| *task != own);
                assert!(task.is_none_or(|task| set.send(task, events).is_err()));
                continue;
            }
            What::TryAny | What::TryAll => {
                let is_all = matches!(step.what, What::TryAll);
                let taken = if is_all {
                    set.try_receive_all(events)
                } else {
                    set.try_receive_any(events)
                };
                let taken = taken.map_err(|error| match error {
                    TryReceiveError::Unsatisfied { present: told } => assert_eq!(told, present),
                    error => panic!("{error}"),
                });
                (taken.ok(), if is_all { has_all } else { has_any })
            }
            What::Any | What::All => {
                let is_all = matches!(step.what, What::All);
                let soon = Duration::from_micros(1);
                let taken = if is_all {
                    set.receive_all_for(events, soon)
                } else {
                    set.receive_any_for(events, soon)
                };
                let taken = taken.map_err(|error| assert!(matches!(error, ReceiveError::TimedOut)));
                (taken.ok(), if is_all { has_all } else { has_any })
            }
        };
        assert_eq!(taken, should.then_some(present));
        *pending -= taken.unwrap_or(EventSet::empty());
        assert_eq!(sets.map(|set| set.pending().unwrap()), model);
    }
}
