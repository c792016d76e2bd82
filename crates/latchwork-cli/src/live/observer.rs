//! Repeated views, and what follows from them: how long a task has been seen to wait.

use super::gather::Gathering;
use super::picture::{Key, Lock, Picture, Task};
use latchwork::region::inspect::RegionReport;
use std::collections::HashMap;
use std::time::Instant;

/// Takes views of the whole system, as far as the caller's permissions allow.
///
/// If a task sleeps with a time limit, and then sleeps again for the same lock, the kernel does not show since when it
/// waits. So an observer records when it first saw the wait. It guarantees only that *each view* since then has found
/// the task waiting for the same lock, which had the same owners, if any are known. Between two views the task may have
/// acquired the lock and come back; but a lock that is passed on often usually has another owner in the next view.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    waits: HashMap<Wait, Instant>,
}

/// What must be equal in two views.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Wait {
    task: Thread,
    lock: Key,
    owners: Vec<Thread>,
    /// The ID of an owner that is not visible.
    unseen_owner: Option<u32>,
}

/// A thread's process, ID and start time.
type Thread = (u32, u32, u64);

fn thread(task: &Task) -> Thread {
    (task.pid, task.tid, task.started)
}

impl Observer {
    pub(crate) fn view(&mut self) -> Picture {
        let begun = Instant::now();
        self.complete(Gathering::all(), begun)
    }

    /// A view of these regions alone, and of no process.
    pub(crate) fn view_of(&mut self, regions: Vec<RegionReport>) -> Picture {
        let begun = Instant::now();
        self.complete(Gathering::of(regions, Vec::new()), begun)
    }

    fn complete(&mut self, mut gathering: Gathering, begun: Instant) -> Picture {
        gathering.add_regions();
        let mut picture = gathering.conclude();
        self.learn(&mut picture, begun);
        picture
    }

    /// Records the waits of a picture, and adds to it since when they were seen.
    fn learn(&mut self, picture: &mut Picture, now: Instant) {
        let before = std::mem::take(&mut self.waits);
        for index in 0..picture.tasks.len() {
            let Some(wait) = wait(picture, index) else {
                continue;
            };
            let first = before.get(&wait).copied();
            picture.tasks[index].seen_for = first.map(|first| now.saturating_duration_since(first));
            self.waits.insert(wait, first.unwrap_or(now));
        }
    }
}

/// The wait of a task for one lock.
fn wait(picture: &Picture, task: usize) -> Option<Wait> {
    let [lock] = picture.tasks[task].waits_for[..] else {
        return None;
    };
    let lock: &Lock = &picture.locks[lock];
    let owners = lock.owners.iter();
    let mut owners: Vec<_> = owners.map(|owner| thread(&picture.tasks[*owner])).collect();
    owners.sort_unstable();
    Some(Wait {
        task: thread(&picture.tasks[task]),
        lock: lock.key,
        owners,
        unseen_owner: lock.unseen_owner.map(|owner| owner.tid),
    })
}

#[cfg(test)]
mod tests {
    use super::super::picture::{Location, Role, Waiter};
    use super::*;
    use std::time::Duration;

    fn picture(lock: u64, owner: u32, started: u64) -> Picture {
        let task = |tid, waits_for| Task {
            is_elsewhere: false,
            pid: 1,
            tid,
            name: String::new(),
            process: String::new(),
            state: 'S',
            ticks: 0,
            started,
            schedule: None,
            waited: None,
            waited_is_exact: false,
            waited_is_least: true,
            seen_for: None,
            waits_at: None,
            waits_for,
            memberships: Vec::new(),
        };
        let key = Key::Private {
            pid: 1,
            address: lock,
        };
        let role = Role::Exclusive;
        Picture {
            tasks: vec![task(1, vec![0]), task(owner, Vec::new())],
            locks: vec![Lock {
                owners: vec![1],
                waiters: vec![Waiter { task: 0, role }],
                ..Lock::new(key, Location::Heap)
            }],
            ..Picture::default()
        }
    }

    #[test]
    fn a_wait_lasts_while_each_view_has_the_same_task_lock_and_owner() {
        let mut observer = Observer::default();
        let first = Instant::now();
        let mut seen = |seconds, mut picture: Picture| {
            observer.learn(&mut picture, first + Duration::from_secs(seconds));
            assert_eq!(picture.tasks[1].seen_for, None);
            picture.tasks[0].seen_for.map(|time| time.as_secs())
        };
        assert_eq!(seen(0, picture(16, 2, 5)), None);
        assert_eq!(seen(2, picture(16, 2, 5)), Some(2));
        assert_eq!(seen(4, picture(16, 2, 5)), Some(4));
        // Another owner, another lock, another thread with the same ID.
        assert_eq!(seen(6, picture(16, 3, 5)), None);
        assert_eq!(seen(8, picture(24, 3, 5)), None);
        assert_eq!(seen(10, picture(24, 3, 6)), None);
        // Meanwhile it waited for nothing.
        let mut idle = picture(24, 3, 6);
        idle.tasks[0].waits_for.clear();
        assert_eq!(seen(12, idle), None);
        assert_eq!(seen(14, picture(24, 3, 6)), None);
    }
}
