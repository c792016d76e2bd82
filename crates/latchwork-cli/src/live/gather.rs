//! Looking at all processes: their threads, the words that these sleep on, and the robust locks that they hold.

use super::clock::Clocks;
use super::maps::Maps;
use super::memory::Memory;
use super::picture::{Key, Lock, Module, Picture, Place, Task, Waiter};
use super::sleep::{self, Call, Sleep};
use super::thread::Thread;
use super::word::{self, Found, Kind, State};
use super::{robust, thread};
use latchwork::region::inspect::{self, RegionPlace};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// A picture in the making.
#[derive(Default)]
pub(super) struct Gathering {
    pub(super) picture: Picture,
    /// The caller's PID namespace.
    ours: u64,
    /// Threads by the ID in their own PID namespace.
    pub(super) threads: HashMap<(u64, u32), usize>,
    pub(super) locks: HashMap<Key, usize>,
    /// Tasks of processes whose board was read.
    pub(super) on_board: HashSet<usize>,
    /// Tasks that say themselves what they wait for.
    pub(super) told: HashSet<usize>,
    /// Of the picture's regions.
    pub(super) regions: HashMap<(u64, u64), usize>,
    /// Threads as they were seen asleep, for a second look.
    pub(super) asleep: HashMap<usize, Asleep>,
    /// The processes whose memory was read, for a second look.
    subjects: Vec<Subject>,
}

/// A thread that sleeps on words.
pub(super) struct Asleep {
    pub(super) thread: Thread,
    pub(super) turns: Option<u64>,
    words: Vec<Sleep>,
    /// Which of the processes is its own.
    subject: Option<usize>,
    /// If the one word that it sleeps on leads to a lock: how many bytes it stands behind the lock's own, as a gate
    /// does.
    pub(super) behind: Option<u64>,
}

impl Asleep {
    /// How it sleeps, if that is on one word.
    pub(super) fn call(&self) -> Option<Call> {
        match self.words[..] {
            [word] => Some(word.call),
            _ => None,
        }
    }
}

/// What a second look finds of a thread that slept on one word.
pub(super) enum Again {
    /// It sleeps in the same way for the same lock. This is for the next look.
    Asleep(Thread, Option<u64>),
    /// It runs, or is about to: that says nothing.
    Runs,
    /// It waits for something else, or cannot be looked at again.
    Elsewhere,
}

/// A process that is looked at.
pub(super) struct Subject {
    pub(super) pid: u32,
    pub(super) namespace: u64,
    memory: Memory,
    maps: OnceCell<Maps>,
    /// Places in the picture's tasks.
    pub(super) tasks: Vec<usize>,
}

impl Subject {
    fn maps(&self) -> &Maps {
        self.maps.get_or_init(|| Maps::of(self.pid))
    }
}

/// Where a lock is.
pub(super) struct Located {
    pub(super) key: Key,
    pub(super) place: Place,
    /// It protects a region's own tables.
    is_regions_own: bool,
}

impl Located {
    fn new(key: Key, place: Place) -> Self {
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

/// The number of a process's PID namespace; 0 where that is not to be seen.
fn namespace(pid: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |file| file.ino())
}

impl Gathering {
    /// Looks at regions, and at all processes but the caller's own.
    pub(super) fn all() -> Self {
        let mut gathering = Self::default();
        let survey = inspect::survey();
        gathering.regions = survey
            .regions
            .iter()
            .enumerate()
            .map(|(index, region)| (region.file, index))
            .collect();
        gathering.picture.regions = survey.regions;
        gathering.picture.hidden_descriptors = survey.hidden_processes;
        gathering.ours = namespace("self");
        let subjects: Vec<_> = numbers("/proc")
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

    /// Adds a process's threads; `None` if its memory is not to be looked at, or not worth it.
    fn threads_of(&mut self, pid: u32) -> Option<Subject> {
        // One that is not to be seen is ours, most likely: then regions' tasks are found all the same.
        let namespace = match namespace(&pid.to_string()) {
            0 => self.ours,
            namespace => namespace,
        };
        let foreign = namespace != self.ours;
        let mut process = None;
        let mut tasks = Vec::new();
        let mut hidden = false;
        for tid in numbers(format!("/proc/{pid}/task")) {
            // Before its call: who runs meanwhile, and sleeps in the same one again, has had one more turn.
            let turns = thread::turns_of(pid, tid);
            let Some(seen) = Thread::read(pid, tid, foreign) else {
                continue;
            };
            let index = self.picture.tasks.len();
            self.threads.insert((namespace, seen.own_tid), index);
            self.picture.tasks.push(Task {
                pid,
                tid,
                name: seen.name.clone(),
                // The first thread comes first.
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
                maps: OnceCell::new(),
                tasks,
            }),
            _ => {
                self.picture.hidden_processes += 1;
                None
            }
        }
    }

    /// Adds what a process's threads sleep on.
    fn words_of(&mut self, subject: &Subject, place: usize) {
        for &task in &subject.tasks {
            let Some(asleep) = self.asleep.get_mut(&task) else {
                continue;
            };
            if self.told.contains(&task) {
                continue;
            }
            asleep.words = sleep::of(subject.pid, &asleep.thread, &subject.memory);
            asleep.subject = Some(place);
            let words = asleep.words.clone();
            for sleep in &words {
                let Some(located) = self.locate(subject, sleep.address, sleep.private) else {
                    continue;
                };
                let is_private = matches!(located.key, Key::Private { .. });
                let known = |tid: u32| self.thread_of(subject, is_private, tid).is_some();
                let found = word::judge(sleep, &subject.memory, &known);
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

    /// The task that a word names, if it can have what that word is part of: a thread of the same process, where the
    /// word is no other one's.
    fn thread_of(&self, subject: &Subject, is_private: bool, tid: u32) -> Option<usize> {
        let task = self.threads.get(&(subject.namespace, tid)).copied();
        task.filter(|task| !is_private || self.picture.tasks[*task].pid == subject.pid)
    }

    /// A thread that was seen asleep on one word, by which it waits for a lock; see [`Asleep::behind`].
    fn slept_on_one(&self, task: usize) -> Option<(&Asleep, &Sleep, &Subject, u64)> {
        let seen = self.asleep.get(&task)?;
        match &seen.words[..] {
            [word] => Some((seen, word, self.subjects.get(seen.subject?)?, seen.behind?)),
            _ => None,
        }
    }

    /// Looks again at a thread that was seen asleep.
    pub(super) fn look_again(&self, task: usize) -> Again {
        let Some((seen, word, subject, behind)) = self.slept_on_one(task) else {
            return Again::Elsewhere;
        };
        // Whoever has slept at a gate for long enough goes on to the lock's own word.
        let own = Sleep {
            address: word.address.wrapping_sub(behind),
            ..*word
        };
        // Before its call, as at the first look.
        let turns = thread::turns_of(subject.pid, seen.thread.tid);
        let thread = seen.thread.again(subject.pid);
        match &sleep::of(subject.pid, &thread, &subject.memory)[..] {
            [] if thread.is_between_calls() => Again::Runs,
            [now] if now.is_like(word) || now.is_like(&own) => Again::Asleep(thread, turns),
            _ => Again::Elsewhere,
        }
    }

    /// Whether the lock that a task was seen to wait for, by one word, is another one's still.
    pub(super) fn is_owner_again(&self, task: usize, owner: usize) -> bool {
        let Some((_, sleep, subject, behind)) = self.slept_on_one(task) else {
            return false;
        };
        let located = self.locate(subject, sleep.address, sleep.private);
        let is_private = located.is_none_or(|found| matches!(found.key, Key::Private { .. }));
        let thread_of = |tid| self.thread_of(subject, is_private, tid);
        let now = match behind {
            0 => word::judge(sleep, &subject.memory, &|tid| thread_of(tid).is_some()).owner,
            behind => {
                let lock = sleep.address.wrapping_sub(behind);
                let word = subject.memory.u32(lock);
                word.map(|word| word & word::TID_MASK)
            }
        };
        now.and_then(thread_of) == Some(owner)
    }

    /// Notes for how long those have slept that sleep on a word.
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
                // One that it is about to link, or has just released, is not its own.
                if let Some(found) = word::judge_held(word, &subject.memory)
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

    /// What the kernel takes an address for, and what lies there; `None` for what is no lock: a region's
    /// tables, on which its tasks sleep for each other's death.
    pub(super) fn locate(&self, subject: &Subject, address: u64, private: bool) -> Option<Located> {
        let own = Key::Private {
            pid: subject.pid,
            address,
        };
        let maps = subject.maps();
        let Some(mapping) = maps.at(address) else {
            return Some(Located::new(own, Place::Anonymous));
        };
        let offset = mapping.offset_of(address);
        let file = (mapping.device, mapping.inode);
        if !mapping.shared || mapping.inode == 0 {
            let place = match maps.module(address) {
                Some(module) => {
                    let first = maps.first_of(module).unwrap_or(module);
                    Place::Module(Module {
                        path: module.path.clone(),
                        device: module.device,
                        inode: module.inode,
                        start: first.start,
                        offset: first.offset,
                    })
                }
                None if mapping.path == "[heap]" => Place::Heap,
                None if mapping.path.starts_with("[stack") => Place::Stack,
                None => Place::Anonymous,
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
            return Some(Located::new(key, Place::File { path, offset }));
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
            place: Place::Region { region, object },
            is_regions_own,
        })
    }

    /// The place of a lock in the picture, which is told what was found.
    fn lock(&mut self, subject: &Subject, located: Located, found: Found) -> usize {
        let is_private = matches!(located.key, Key::Private { .. });
        let owner = found.owner.map(|tid| {
            // None: a number that another process's thread has by now.
            self.thread_of(subject, is_private, tid).ok_or(tid)
        });
        let lock = self.lock_at(located.key, || Lock {
            pid: subject.pid,
            address: found.base,
            kind: found.kind,
            state: found.state,
            ..Lock::new(located.key, located.place)
        });
        let owner_gone =
            matches!(owner, Some(Err(tid)) if !self.is_somebody(subject, is_private, tid));
        let entry = &mut self.picture.locks[lock];
        // One thread's call may tell more of the kind than another's, or than the program.
        if entry.kind.says_less_than(found.kind) {
            entry.kind = found.kind;
        }
        if located.is_regions_own {
            entry.kind = Kind::RegionLock;
        }
        // What was seen last counts, unless the owner itself has said more.
        if !entry.holds.is_empty() {
            return lock;
        }
        entry.state = found.state;
        entry.owners = owner.and_then(Result::ok).into_iter().collect();
        entry.unseen_owner = owner.and_then(Result::err);
        entry.flags.owner_dead = found.state == State::OwnerDied || owner_gone;
        lock
    }

    /// Whether there may be such a thread: one that came while we looked. A number of another PID namespace
    /// cannot be looked up.
    fn is_somebody(&self, subject: &Subject, in_process: bool, tid: u32) -> bool {
        let path = match in_process {
            true => format!("/proc/{}/task/{tid}", subject.pid),
            false => format!("/proc/{tid}"),
        };
        subject.namespace != self.ours || fs::exists(path).unwrap_or(true)
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
