//! The picture: tasks, what they wait for, and the owners.

use super::thread::Schedule;
pub(crate) use super::word::{Kind, Role, State};
use latchwork::check::{BoardFindings, BoardReport};
use latchwork::region::inspect::RegionReport;
use std::time::Duration;

/// Tasks and locks at about one moment. Each was read at some time during the view.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(crate) tasks: Vec<Task>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) regions: Vec<RegionReport>,
    /// Wait-for cycles: each task's index in `tasks`, and the lock that it waits for.
    pub(crate) cycles: Vec<Vec<(usize, usize)>>,
    /// The findings that checked processes have reported so far.
    pub(crate) findings: Vec<(u32, BoardFindings)>,
    /// The latest of these, newest first.
    pub(crate) reports: Vec<Report>,
    /// Processes that the caller may not trace.
    pub(crate) hidden_processes: usize,
    /// Processes whose descriptors the caller may not read: their anonymous regions are missing.
    pub(crate) hidden_descriptors: usize,
}

/// A finding that a checked process has reported.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) pid: u32,
    /// The name of the process.
    pub(crate) process: String,
    /// How long ago.
    pub(crate) age: Duration,
    pub(crate) finding: BoardReport,
}

/// A thread, or a region table's entry for a thread that is not visible.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    /// It lives in a PID namespace that is not visible here: its IDs are those that it has there.
    pub(crate) is_elsewhere: bool,
    /// The thread's name.
    pub(crate) name: String,
    /// The name of its process.
    pub(crate) process: String,
    /// As ps shows it; [`DEAD`]; '?' if its thread is not visible.
    pub(crate) state: char,
    /// Its processor time, in the kernel's ticks.
    pub(crate) ticks: u64,
    /// Its start time, in the kernel's ticks; 0 if its thread is not visible.
    pub(crate) started: u64,
    /// `None` if there is no such thread here.
    pub(crate) schedule: Option<Schedule>,
    /// How long it has waited: published by the program, or an estimate.
    pub(crate) waited: Option<Duration>,
    pub(crate) waited_is_exact: bool,
    /// It sleeps with a time limit, perhaps repeatedly: `waited` is the time of this sleep, and it may have waited for
    /// longer.
    pub(crate) waited_is_least: bool,
    /// For how long each view has found it waiting for the same lock, which had the same owners; see
    /// [`Observer`](super::Observer).
    pub(crate) seen_for: Option<Duration>,
    /// Where in its program it waits, if the program publishes that.
    pub(crate) waits_at: Option<Spot>,
    /// Indices of the picture's locks; if there are several, any one ends the wait.
    pub(crate) waits_for: Vec<usize>,
    /// Its memberships in regions.
    pub(crate) memberships: Vec<Membership>,
}

/// A task's membership in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Membership {
    /// The index of the region in the picture.
    pub(crate) region: usize,
    pub(crate) slot: u16,
    /// The name under which it joined.
    pub(crate) name: String,
    /// 1 is the highest, 255 the lowest.
    pub(crate) priority: u32,
}

/// An object that tasks wait for, or own.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) key: Key,
    /// A process in which it was seen, and its address there.
    pub(crate) pid: u32,
    pub(crate) address: u64,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    pub(crate) place: Location,
    /// Its name for people.
    pub(crate) name: String,
    /// Where it was initialised or first taken, if it is checked.
    pub(crate) made_at: Option<Spot>,
    pub(crate) owners: Vec<usize>,
    /// What checked owners publish.
    pub(crate) holds: Vec<Hold>,
    /// An owner that the word names, if that thread does not exist or is not visible.
    pub(crate) unseen_owner: Option<UnseenOwner>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) flags: Flags,
    /// For a queue: messages that are being written, or that receivers hold.
    pub(crate) in_flight: u32,
    /// Further information: what is waited for, the capacity.
    pub(crate) remark: String,
}

/// The state of a task that died and is still in a region's table, as ps shows dead tasks.
pub(crate) const DEAD: char = 'X';

/// An owner that is not among the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UnseenOwner {
    /// Its ID in the PID namespace of the lock's users.
    pub(crate) tid: u32,
    pub(crate) absence: Absence,
}

/// Why an owner is not among the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Absence {
    /// There is no such thread any more.
    Died,
    /// No visible thread has the ID, but the lock is in shared memory, and tasks of a PID namespace that is not visible
    /// from here may use it, too.
    DiedOrElsewhere,
    /// The thread may exist: it is of another PID namespace, or was created during the view.
    NotVisible,
}

/// Since when, and where, a checked task holds a lock.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) task: usize,
    pub(crate) held_for: Duration,
    pub(crate) at: Spot,
}

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    Unknown,
    /// Text from the program.
    Text(String),
    /// A return address, to be resolved.
    Code {
        pid: u32,
        module: Module,
        address: u64,
    },
}

impl Spot {
    /// The text, if known.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::Unknown => None,
            Self::Text(text) => Some(text.clone()),
            Self::Code { address, .. } => Some(format!("{address:#x}")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub(crate) task: usize,
    pub(crate) role: Role,
}

/// The faults of a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) owner_dead: bool,
    /// A waiter has a higher priority than the owner, which was not lent it.
    pub(crate) inversion: bool,
    pub(crate) cycle: bool,
}

impl Task {
    /// The longest time for which it is known, or was seen, to wait.
    pub(crate) fn longest_wait(&self) -> Option<Duration> {
        let seen = self.seen_for.filter(|_| self.waited_is_least);
        self.waited.max(seen)
    }
}

impl Lock {
    /// A lock of which nothing is known yet.
    pub(crate) fn new(key: Key, place: Location) -> Self {
        Self {
            key,
            pid: 0,
            address: 0,
            kind: Kind::Word,
            state: State::Unknown,
            place,
            name: String::new(),
            made_at: None,
            owners: Vec::new(),
            holds: Vec::new(),
            unseen_owner: None,
            waiters: Vec::new(),
            flags: Flags::default(),
            in_flight: 0,
            remark: String::new(),
        }
    }
}

impl Flags {
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.owner_dead, "owner-dead"),
            (self.inversion, "inversion"),
            (self.cycle, "cycle"),
        ]
        .into_iter()
        .filter_map(|(is_set, name)| is_set.then_some(name))
    }

    pub(crate) fn any(self) -> bool {
        self != Self::default()
    }
}

/// The identity of a lock for the kernel, or in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// In memory of one process.
    Private { pid: u32, address: u64 },
    /// In a file that several processes may have mapped.
    Shared {
        device: u64,
        inode: u64,
        offset: u64,
    },
    /// In a region, but not a word: a queue by its address, a task's events by its slot.
    Entry {
        device: u64,
        inode: u64,
        number: u64,
    },
}

/// What a lock lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A static of a program or library.
    Module(Module),
    /// In a region.
    Region {
        /// The index of the region in the picture.
        region: usize,
        /// The named object, if it is part of one.
        object: Option<String>,
    },
    /// In a file that was mapped to be shared.
    File {
        path: String,
        offset: u64,
    },
    Heap,
    Stack,
    /// Memory without a name.
    Anonymous,
}

/// Where a program or library is, for finding a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Module {
    pub(crate) path: String,
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// The start of its lowest mapping, and the offset of that in the file.
    pub(crate) start: u64,
    pub(crate) offset: u64,
}

impl Module {
    /// The last part of the path.
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

impl Picture {
    /// Whether a task waits for an object that has an owner, or that a region or a program names.
    pub(crate) fn waits_for_more_than_a_word(&self, task: &Task) -> bool {
        task.waits_for
            .iter()
            .any(|lock| !matches!(self.locks[*lock].kind, Kind::Word | Kind::Mutex))
    }

    /// What a task waits for, as text.
    pub(crate) fn wait_text(&self, task: usize) -> Option<String> {
        let lock = self.tasks.get(task)?.waits_for.first()?;
        let lock = &self.locks[*lock];
        let name = match &lock.place {
            Location::Region {
                object: Some(object),
                ..
            } => object,
            _ => &lock.name,
        };
        let waiter = lock.waiters.iter().find(|waiter| waiter.task == task)?;
        Some(match waiter.role {
            Role::Message => format!("message in {name}"),
            Role::Room => format!("room in {name}"),
            _ if lock.kind == Kind::Events => lock.remark.clone(),
            _ => format!("{name} ({})", lock.kind.name()),
        })
    }

    /// Whether other tasks wait for the owner to release it, or something is wrong with it.
    pub(crate) fn is_notable(&self, lock: &Lock) -> bool {
        // A wait for the end of another thread is not notable.
        lock.flags.any()
            || lock.kind.is_lock()
                && lock.kind != Kind::ThreadEnd
                && (!lock.owners.is_empty()
                    || lock.unseen_owner.is_some()
                    || (!lock.waiters.is_empty() && lock.kind != Kind::Mutex))
    }

    /// The locks that each task owns, as far as known.
    pub(crate) fn held(&self) -> Vec<Vec<usize>> {
        let mut held = vec![Vec::new(); self.tasks.len()];
        for (index, lock) in self.locks.iter().enumerate() {
            for owner in &lock.owners {
                held[*owner].push(index);
            }
        }
        held
    }

    /// Keeps what the tasks of these processes wait for and own, and whatever that leads to; and the processes' own
    /// findings.
    pub(crate) fn narrow_to(&mut self, pids: &[u32]) {
        self.findings.retain(|(pid, _)| pids.contains(pid));
        self.reports.retain(|report| pids.contains(&report.pid));
        let mut tasks: Vec<bool> = self
            .tasks
            .iter()
            .map(|task| pids.contains(&task.pid))
            .collect();
        let mut locks = vec![false; self.locks.len()];
        loop {
            let mut grown = false;
            for (lock, seen) in self.locks.iter().zip(&mut locks) {
                let mut concerned = lock
                    .owners
                    .iter()
                    .copied()
                    .chain(lock.waiters.iter().map(|waiter| waiter.task));
                if !*seen && concerned.any(|task| tasks[task]) {
                    *seen = true;
                    grown = true;
                    // Tasks that wait for the same event are unrelated.
                    if lock.kind.is_lock() {
                        lock.owners.iter().for_each(|task| tasks[*task] = true);
                        lock.waiters
                            .iter()
                            .for_each(|waiter| tasks[waiter.task] = true);
                    }
                }
            }
            if !grown {
                break;
            }
        }
        self.retain_locks(&locks);
    }

    /// Keeps these locks. Tasks keep their indices.
    pub(crate) fn retain_locks(&mut self, keep: &[bool]) {
        let mut places = vec![None; self.locks.len()];
        let mut retained = Vec::new();
        for (index, lock) in std::mem::take(&mut self.locks).into_iter().enumerate() {
            if keep[index] {
                places[index] = Some(retained.len());
                retained.push(lock);
            }
        }
        self.locks = retained;
        for task in &mut self.tasks {
            task.waits_for.retain_mut(|lock| match places[*lock] {
                Some(place) => {
                    *lock = place;
                    true
                }
                None => false,
            });
        }
        self.cycles.retain_mut(|cycle| {
            cycle.iter_mut().all(|(_, lock)| match places[*lock] {
                Some(place) => {
                    *lock = place;
                    true
                }
                None => false,
            })
        });
    }
}
