//! Reads the state of all processes: their threads, the words that these sleep on, and the robust locks that they hold.

use super::clock::Clocks;
use super::maps::Maps;
use super::memory::Memory;
use super::picture::{Absence, Key, Location, Lock, Module, Picture, Task, UnseenOwner, Waiter};
use super::sleep::{self, Call, Sleep};
use super::thread::{INITIAL_NAMESPACE, Thread, namespace, own_namespace};
use super::word::{self, Classified, Kind, State};
use super::{robust, thread};
use latchwork::region::inspect::{self, RegionPlace, RegionReport};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::rc::Rc;

/// A picture that is being built.
#[derive(Default)]
pub(super) struct Gathering {
    pub(super) picture: Picture,
    /// The caller's PID namespace.
    pub(super) ours: u64,
    /// Threads, by PID namespace and the ID in it.
    pub(super) threads: HashMap<(u64, u32), usize>,
    pub(super) locks: HashMap<Key, usize>,
    /// Tasks of processes whose board was read.
    pub(super) on_board: HashSet<usize>,
    /// Tasks that publish themselves what they wait for.
    pub(super) published: HashSet<usize>,
    /// Indices of the picture's regions.
    pub(super) regions: HashMap<(u64, u64), usize>,
    /// Threads that were seen asleep, for the second reading.
    pub(super) asleep: HashMap<usize, Asleep>,
    /// The processes whose memory was read, for the second reading.
    subjects: Vec<Subject>,
    /// The memory mappings of processes, as far as they were asked for.
    maps: RefCell<HashMap<u32, Rc<Maps>>>,
}

/// A thread that sleeps on words.
pub(super) struct Asleep {
    pub(super) thread: Thread,
    pub(super) turns: Option<u64>,
    words: Vec<Sleep>,
    /// The index of its own process.
    subject: Option<usize>,
    /// If the one word that it sleeps on leads to a lock: the distance in bytes behind the lock's own word, as for a
    /// gate.
    pub(super) behind: Option<u64>,
}

impl Asleep {
    /// How it sleeps, if it sleeps on one word.
    pub(super) fn call(&self) -> Option<Call> {
        match self.words[..] {
            [word] => Some(word.call),
            _ => None,
        }
    }
}

/// The result of a second reading of a thread that slept on one word.
pub(super) enum Reread {
    /// It sleeps in the same way for the same lock; the values are for the next reading.
    Asleep(Thread, Option<u64>),
    /// It runs, or is about to: no conclusion is possible.
    Runs,
    /// It waits for something else, or cannot be read again.
    Elsewhere,
}

/// A process that is inspected.
pub(super) struct Subject {
    pub(super) pid: u32,
    pub(super) namespace: u64,
    pub(super) memory: Memory,
    /// Indices of its tasks in the picture.
    pub(super) tasks: Vec<usize>,
}

/// Where a lock is.
pub(super) struct Located {
    pub(super) key: Key,
    pub(super) place: Location,
    /// Whether it protects a region's own tables.
    is_regions_own: bool,
}

impl Located {
    fn new(key: Key, place: Location) -> Self {
        Self {
            key,
            place,
            is_regions_own: false,
        }
    }
}

fn numbers(directory: impl AsRef<Path>) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

impl Gathering {
    /// Reads regions, and all processes but this one.
    pub(super) fn all() -> Self {
        let survey = inspect::survey();
        let mut gathering = Self::of(survey.regions, numbers("/proc"));
        gathering.picture.hidden_descriptors = survey.hidden_processes;
        gathering
    }

    /// Reads these regions, and of these processes all but this one.
    pub(super) fn of(regions: Vec<RegionReport>, processes: Vec<u32>) -> Self {
        let files = regions.iter().map(|region| region.file);
        let mut gathering = Self {
            regions: files.zip(0..).collect(),
            ours: own_namespace(),
            ..Self::default()
        };
        gathering.picture.regions = regions;
        let subjects: Vec<_> = processes
            .into_iter()
            .filter(|pid| *pid != std::process::id())
            .filter_map(|pid| gathering.threads_of(pid))
            .collect();
        for subject in &subjects {
            gathering.board_of(subject);
        }
        for (place, subject) in subjects.iter().enumerate() {
            gathering.words_of(subject, place);
            gathering.robust_locks_of(subject);
        }
        gathering.subjects = subjects;
        gathering.time_waits();
        gathering
    }

    /// Adds a process's threads; `None` if its memory cannot be read, or need not be.
    fn threads_of(&mut self, pid: u32) -> Option<Subject> {
        // If the namespace cannot be read, it is most likely the caller's: then the tasks of regions are still found.
        let namespace = match namespace(&pid.to_string()) {
            0 => self.ours,
            namespace => namespace,
        };
        let foreign = namespace != self.ours;
        let mut process = None;
        let mut tasks = Vec::new();
        let mut hidden = false;
        for tid in numbers(format!("/proc/{pid}/task")) {
            // Read before the call: a thread that runs meanwhile, and sleeps in the same call again, has had one more
            // turn.
            let turns = thread::turns_of(pid, tid);
            let Some(seen) = Thread::read(pid, tid, foreign) else {
                continue;
            };
            let index = self.picture.tasks.len();
            self.threads.insert((namespace, seen.own_tid), index);
            self.picture.tasks.push(Task {
                is_elsewhere: false,
                pid,
                tid,
                name: seen.name.clone(),
                // The first thread is listed first.
                process: process.get_or_insert_with(|| seen.name.clone()).clone(),
                state: seen.state,
                ticks: seen.ticks,
                started: seen.started,
                schedule: Some(seen.schedule),
                waited: None,
                waited_is_exact: false,
                waited_is_least: false,
                seen_for: None,
                waits_at: None,
                waits_for: Vec::new(),
                memberships: Vec::new(),
            });
            tasks.push(index);
            match &seen.call {
                None => hidden = true,
                Some(_) => {
                    self.asleep.insert(
                        index,
                        Asleep {
                            thread: seen,
                            turns,
                            words: Vec::new(),
                            subject: None,
                            behind: None,
                        },
                    );
                }
            }
        }
        if tasks.is_empty() {
            return None;
        }
        match Memory::of(pid) {
            Ok(memory) if !hidden => Some(Subject {
                pid,
                namespace,
                memory,
                tasks,
            }),
            _ => {
                self.picture.hidden_processes += 1;
                None
            }
        }
    }

    /// Adds the words that a process's threads sleep on.
    fn words_of(&mut self, subject: &Subject, place: usize) {
        for &task in &subject.tasks {
            let Some(asleep) = self.asleep.get_mut(&task) else {
                continue;
            };
            if self.published.contains(&task) {
                continue;
            }
            let words = sleep::of(subject.pid, &asleep.thread, &subject.memory);
            asleep.subject = Some(place);
            let words = self.beside_tables(subject, words);
            if let Some(asleep) = self.asleep.get_mut(&task) {
                asleep.words.clone_from(&words);
            }
            for sleep in &words {
                let Some(located) = self.locate(subject, sleep.address, sleep.private) else {
                    continue;
                };
                let found = self.classify(subject, sleep, &located);
                if let Some(located) = self.locate(subject, found.base, sleep.private) {
                    let role = found.role;
                    let lock = self.lock(subject, located, found);
                    self.add_waiter(lock, Waiter { task, role });
                    if let (Some(asleep), [_]) = (self.asleep.get_mut(&task), &words[..]) {
                        asleep.behind = Some(0);
                    }
                }
            }
        }
    }

    /// A thread that was seen asleep on one word, by which it waits for a lock; see [`Asleep::behind`].
    fn slept_on_one(&self, task: usize) -> Option<(&Asleep, &Sleep, &Subject, u64)> {
        let seen = self.asleep.get(&task)?;
        match &seen.words[..] {
            [word] => Some((seen, word, self.subjects.get(seen.subject?)?, seen.behind?)),
            _ => None,
        }
    }

    /// Reads the state of a thread again that was seen asleep.
    pub(super) fn reread(&self, task: usize) -> Reread {
        let Some((seen, word, subject, behind)) = self.slept_on_one(task) else {
            return Reread::Elsewhere;
        };
        // A waiter that has slept at a gate for long enough goes on to the lock's own word.
        let own = Sleep {
            address: word.address.wrapping_sub(behind),
            ..*word
        };
        // Read before the call, as in the first reading.
        let turns = thread::turns_of(subject.pid, seen.thread.tid);
        let thread = seen.thread.reread(subject.pid);
        let words = sleep::of(subject.pid, &thread, &subject.memory);
        match &self.beside_tables(subject, words)[..] {
            [] if thread.is_between_calls() => Reread::Runs,
            [now] if now.is_like(word) || now.is_like(&own) => Reread::Asleep(thread, turns),
            _ => Reread::Elsewhere,
        }
    }

    /// Whether the lock that a task was seen to wait for, by one word, is still owned by the same task.
    pub(super) fn is_still_owner(&self, task: usize, owner: usize) -> bool {
        let Some((_, sleep, subject, behind)) = self.slept_on_one(task) else {
            return false;
        };
        let located = self.locate(subject, sleep.address, sleep.private);
        let is_private = located
            .as_ref()
            .is_none_or(|found| matches!(found.key, Key::Private { .. }));
        let now = match (behind, &located) {
            (0, Some(located)) => {
                let found = self.classify(subject, sleep, located);
                self.owner_in(subject, located, &found).and_then(Result::ok)
            }
            (0, None) => None,
            (behind, _) => {
                let lock = sleep.address.wrapping_sub(behind);
                let word = subject.memory.u32(lock);
                word.and_then(|word| self.thread_of(subject, is_private, word & word::TID_MASK))
            }
        };
        now == Some(owner)
    }

    /// Records how long the threads that sleep on a word have slept.
    fn time_waits(&mut self) {
        let waiting = || {
            let on_words = |(_, asleep): &(_, &Asleep)| !asleep.words.is_empty();
            self.asleep.iter().filter(on_words)
        };
        let clocks = Clocks::of(
            waiting()
                .map(|(_, asleep)| asleep.thread.processor)
                .collect(),
        );
        for (&task, asleep) in waiting() {
            let task = &mut self.picture.tasks[task];
            if !task.waited_is_exact {
                task.waited = clocks.since_it_ran(task.pid, &asleep.thread);
                task.waited_is_least = asleep.words.iter().any(|word| word.is_limited);
            }
        }
    }

    /// Adds the robust locks that a process's threads hold.
    fn robust_locks_of(&mut self, subject: &Subject) {
        for &task in &subject.tasks {
            let tid = self.picture.tasks[task].tid;
            let Some(mut list) = robust::list(tid, &subject.memory) else {
                continue;
            };
            list.held.sort_unstable();
            list.held.dedup();
            for word in list.held {
                let Some(located) = self.locate(subject, word, false) else {
                    continue;
                };
                // A lock that the thread is about to link, or has just released, is not its own.
                if let Some(found) = word::classify_held(word, &subject.memory)
                    && found
                        .owner
                        .and_then(|tid| self.threads.get(&(subject.namespace, tid)))
                        == Some(&task)
                {
                    self.lock(subject, located, found);
                }
            }
        }
    }

    /// The mappings of a process, read once.
    pub(super) fn maps_of(&self, pid: u32) -> Rc<Maps> {
        let mut known = self.maps.borrow_mut();
        Rc::clone(known.entry(pid).or_insert_with(|| Rc::new(Maps::of(pid))))
    }

    /// The kernel's identity of an address, and the lock there; `None` if it is no lock but a region's tables, on which
    /// tasks sleep for each other's death.
    pub(super) fn locate(&self, subject: &Subject, address: u64, private: bool) -> Option<Located> {
        let own = Key::Private {
            pid: subject.pid,
            address,
        };
        let maps = self.maps_of(subject.pid);
        let Some(mapping) = maps.at(address) else {
            return Some(Located::new(own, Location::Anonymous));
        };
        let offset = mapping.offset_of(address);
        let file = (mapping.device, mapping.inode);
        if !mapping.shared || mapping.inode == 0 {
            let place = match maps.module(address) {
                Some(module) => {
                    let first = maps.first_of(module).unwrap_or(module);
                    Location::Module(Module {
                        path: module.path.clone(),
                        device: module.device,
                        inode: module.inode,
                        start: first.start,
                        offset: first.offset,
                    })
                }
                None if mapping.path == "[heap]" => Location::Heap,
                None if mapping.path.starts_with("[stack") => Location::Stack,
                None => Location::Anonymous,
            };
            return Some(Located::new(own, place));
        }
        let key = if private {
            own
        } else {
            Key::Shared {
                device: file.0,
                inode: file.1,
                offset,
            }
        };
        let Some(&region) = self.regions.get(&file) else {
            let path = mapping.path.clone();
            return Some(Located::new(key, Location::File { path, offset }));
        };
        let contents = self.picture.regions[region].contents.as_ref().ok();
        let (object, is_regions_own) = match contents.and_then(|contents| contents.place(offset)) {
            Some(RegionPlace::Tables) => return None,
            Some(RegionPlace::Lock(name)) => (Some(format!("({name} lock)")), true),
            Some(RegionPlace::Object { name, offset: 0 }) => (Some(name.to_owned()), false),
            Some(RegionPlace::Object { name, offset }) => {
                (Some(format!("{name}+{offset:#x}")), false)
            }
            _ => (None, false),
        };
        Some(Located {
            key,
            place: Location::Region { region, object },
            is_regions_own,
        })
    }

    /// The index of a lock in the picture; updates the entry with the new findings.
    fn lock(&mut self, subject: &Subject, located: Located, found: Classified) -> usize {
        let is_private = matches!(located.key, Key::Private { .. });
        let owner = self.owner_in(subject, &located, &found);
        let lock = self.lock_at(located.key, || Lock {
            pid: subject.pid,
            address: found.base,
            kind: found.kind,
            state: found.state,
            ..Lock::new(located.key, located.place)
        });
        let unseen_owner = owner.and_then(Result::err).map(|tid| UnseenOwner {
            tid,
            // A region's table says that its task is alive.
            absence: match found.kind {
                Kind::InRegion => Absence::NotVisible,
                _ => self.absence_of(subject, is_private, tid),
            },
        });
        let owner_gone = unseen_owner.is_some_and(|owner| owner.absence != Absence::NotVisible);
        let entry = &mut self.picture.locks[lock];
        // One thread's call may show more of the kind than another's, or than the program's own data.
        if entry.kind.is_less_specific_than(found.kind) {
            entry.kind = found.kind;
        }
        if located.is_regions_own {
            entry.kind = Kind::RegionLock;
        }
        // The latest reading counts, unless the owner itself has published more.
        if !entry.holds.is_empty() {
            return lock;
        }
        entry.state = found.state;
        entry.owners = owner.and_then(Result::ok).into_iter().collect();
        entry.unseen_owner = unseen_owner;
        entry.flags.owner_dead = found.state == State::OwnerDied || owner_gone;
        lock
    }

    /// Why the owner of a lock, by its ID in the namespace of `subject`, is not among the threads that were read.
    fn absence_of(&self, subject: &Subject, in_process: bool, tid: u32) -> Absence {
        let is_foreign = subject.namespace != self.ours;
        if in_process {
            // It may have been created during the reading.
            let exists = numbers(format!("/proc/{}/task", subject.pid))
                .into_iter()
                .any(|other| {
                    let thread = || Thread::read(subject.pid, other, true);
                    other == tid && !is_foreign
                        || is_foreign && thread().is_none_or(|thread| thread.own_tid == tid)
                });
            return match exists {
                true => Absence::NotVisible,
                false => Absence::Died,
            };
        }
        let is_elsewhere =
            |(namespace, other): &(u64, u32)| *other == tid && *namespace != subject.namespace;
        // An ID of another PID namespace cannot be looked up.
        if is_foreign
            || self.threads.keys().any(is_elsewhere)
            || fs::exists(format!("/proc/{tid}")).unwrap_or(true)
        {
            Absence::NotVisible
        } else if self.ours == INITIAL_NAMESPACE {
            Absence::Died
        } else {
            Absence::DiedOrElsewhere
        }
    }

    pub(super) fn lock_at(&mut self, key: Key, make: impl FnOnce() -> Lock) -> usize {
        *self.locks.entry(key).or_insert_with(|| {
            self.picture.locks.push(make());
            self.picture.locks.len() - 1
        })
    }

    pub(super) fn add_waiter(&mut self, lock: usize, waiter: Waiter) {
        let waits_for = &mut self.picture.tasks[waiter.task].waits_for;
        if !waits_for.contains(&lock) {
            waits_for.push(lock);
            self.picture.locks[lock].waiters.push(waiter);
        }
    }
}
