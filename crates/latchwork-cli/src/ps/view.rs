//! What `latchwork ps` shows of a region.

use crate::live::Picture;
use crate::process::{Process, thread_cpu_time};
use latchwork::region::inspect::{RegionReport, TaskState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The combined contents of a region's table and `/proc`.
pub(super) struct View<'a> {
    pub(super) region: &'a RegionReport,
    /// The processes of its tasks, and those that have it open, as far as they are visible in this PID namespace.
    pub(super) processes: BTreeMap<u32, Process>,
    /// The processor time of each live task, by slot.
    pub(super) cpu_times: BTreeMap<u16, Duration>,
    /// What its tasks wait for, by slot.
    pub(super) waits: BTreeMap<u16, String>,
}

impl<'a> View<'a> {
    pub(super) fn new(picture: &'a Picture, index: usize) -> Self {
        let region = &picture.regions[index];
        let contents = region.contents.as_ref();
        let tasks = contents.map_or(&[][..], |contents| &contents.tasks);
        // A dead task's PID may have been reused.
        let living = tasks.iter().filter(|task| task.state == TaskState::Alive);
        let pids: BTreeSet<u32> = living
            .clone()
            .map(|task| task.process)
            .chain(region.openings.iter().map(|opening| opening.process))
            .collect();
        Self {
            region,
            processes: pids
                .iter()
                .filter_map(|pid| Some((*pid, Process::read(*pid)?)))
                .collect(),
            cpu_times: living
                .filter_map(|task| Some((task.slot, thread_cpu_time(task.process, task.thread)?)))
                .collect(),
            waits: picture
                .tasks
                .iter()
                .enumerate()
                .filter_map(|(task, found)| {
                    let mut places = found.memberships.iter();
                    let place = places.find(|place| place.region == index)?;
                    Some((place.slot, picture.wait_text(task)?))
                })
                .collect(),
        }
    }
}
