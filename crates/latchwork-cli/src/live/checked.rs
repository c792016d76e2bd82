//! What checked programs publish: on the board of their process, and in the slots of regions.

use super::gather::{Gathering, Subject};
use super::picture::{Hold, Key, Kind, Location, Lock, Report, Role, Spot, Waiter};
use super::regions::Tables;
use super::word::State;
use latchwork::check::hook::{self, Held, Mode, RecordedSite, TaskView, Traits};
use latchwork::check::{BoardReader, BoardTask};
use latchwork::region::inspect::RegionPlace;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The current time on the clock of the records.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
}

fn since(then: u64) -> Duration {
    Duration::from_nanos(now().saturating_sub(then))
}

impl Gathering {
    /// Adds the contents of a process's board.
    pub(super) fn board_of(&mut self, subject: &Subject) {
        let Some(board) = BoardReader::of(subject.pid) else {
            return;
        };
        self.picture.findings.push((subject.pid, board.findings()));
        let process = subject.tasks.first().map(|task| &self.picture.tasks[*task]);
        let process = process.map_or(String::new(), |task| task.process.clone());
        let reports = board.reports().into_iter().map(|finding| Report {
            pid: subject.pid,
            process: process.clone(),
            age: since(finding.told_at),
            finding,
        });
        self.picture.reports.extend(reports);
        for BoardTask { view, held, .. } in board.tasks() {
            let known = self.threads.get(&(subject.namespace, view.thread)).copied();
            let Some(task) = known.filter(|task| subject.tasks.contains(task)) else {
                continue;
            };
            // A thread has one place; a board that claims more is not trusted.
            if !self.on_board.insert(task) {
                continue;
            }
            for held in held {
                self.add_held(subject, &board, task, &held);
            }
            self.add_wanted(subject, &board, task, &view);
        }
    }

    fn add_held(&mut self, subject: &Subject, board: &BoardReader, task: usize, held: &Held) {
        let Some(lock) = self.checked_lock(subject, board, held) else {
            return;
        };
        let at = self.spot(subject, board, held.site);
        let entry = &mut self.picture.locks[lock];
        entry.state = match held.mode {
            Mode::Exclusive => State::Held,
            Mode::Shared => State::Read(entry.owners.len() as u32 + 1),
        };
        if !entry.owners.contains(&task) {
            entry.owners.push(task);
        }
        entry.holds.push(Hold {
            task,
            held_for: since(held.since),
            at,
        });
    }

    fn add_wanted(&mut self, subject: &Subject, board: &BoardReader, task: usize, view: &TaskView) {
        let Some(wanted) = view.wants else { return };
        let at = self.spot(subject, board, wanted.site);
        let entry = &mut self.picture.tasks[task];
        entry.waited = Some(since(wanted.since));
        entry.waited_is_exact = true;
        entry.waited_is_least = false;
        entry.waits_at = Some(at);
        // A region's tables say more about the remaining tasks.
        let by_table = matches!(
            wanted.lock.kind,
            hook::Kind::Semaphore
                | hook::Kind::OwnedSemaphore
                | hook::Kind::Queue
                | hook::Kind::Events
        );
        let Some(lock) = self.checked_lock(subject, board, &wanted) else {
            return;
        };
        if by_table && matches!(self.picture.locks[lock].place, Location::Region { .. }) {
            return;
        }
        self.published.insert(task);
        let role = match wanted.mode {
            _ if !wanted.lock.kind.has_owner() => Role::Event,
            Mode::Exclusive => Role::Exclusive,
            Mode::Shared => Role::Shared,
        };
        self.add_waiter(lock, Waiter { task, role });
    }

    /// Adds the contents of a task's slot in a region, if its process has no readable board: only about locks in that
    /// region, since other addresses mean nothing here.
    pub(super) fn record_of(&mut self, tables: &Tables<'_>, task: usize, view: &TaskView) {
        if self.on_board.contains(&task) {
            return;
        }
        let spot = |site: RecordedSite| match site {
            RecordedSite::UNKNOWN => Spot::Unknown,
            site => Spot::Text(format!(
                "{:#x} of process {}",
                site.raw() & !1,
                view.process
            )),
        };
        for held in view.held() {
            let Some(lock) = self.recorded_lock(tables, &held) else {
                continue;
            };
            let entry = &mut self.picture.locks[lock];
            if entry.holds.iter().any(|hold| hold.task == task) {
                continue;
            }
            if !entry.owners.contains(&task) {
                entry.owners.push(task);
            }
            if entry.state == State::Unknown {
                entry.state = State::Held;
            }
            entry.holds.push(Hold {
                task,
                held_for: since(held.since),
                at: spot(held.site),
            });
        }
        if let Some(wanted) = view.wants {
            let entry = &mut self.picture.tasks[task];
            entry.waited = Some(since(wanted.since));
            entry.waited_is_exact = true;
            entry.waited_is_least = false;
            entry.waits_at = Some(spot(wanted.site));
            let is_lock = matches!(
                wanted.lock.kind,
                hook::Kind::Mutex | hook::Kind::RwLock | hook::Kind::Spin
            );
            if is_lock && let Some(lock) = self.recorded_lock(tables, &wanted) {
                let role = match wanted.mode {
                    Mode::Exclusive => Role::Exclusive,
                    Mode::Shared => Role::Shared,
                };
                self.add_waiter(lock, Waiter { task, role });
            }
        }
    }

    fn recorded_lock(&mut self, tables: &Tables<'_>, held: &Held) -> Option<usize> {
        let address = held.lock.address() as u64;
        let offset = address.checked_sub(tables.contents.base)?;
        let object = match tables.contents.place(offset)? {
            RegionPlace::Object { name, offset: 0 } => name.to_owned(),
            RegionPlace::Object { name, offset } => format!("{name}+{offset:#x}"),
            RegionPlace::Heap => format!("{address:#x}"),
            _ => return None,
        };
        let kind = Kind::Checked(held.lock.kind, held.lock.traits.contains(Traits::LENDS));
        Some(self.lock_at(tables.key(address), || {
            tables.lock(&object, address, kind, State::Unknown)
        }))
    }

    /// The index, in the picture, of a lock that a thread of the process holds or wants.
    fn checked_lock(
        &mut self,
        subject: &Subject,
        board: &BoardReader,
        held: &Held,
    ) -> Option<usize> {
        let address = held.lock.address() as u64;
        let is_private = !held.lock.traits.contains(Traits::SHARED);
        let located = self.locate(subject, address, is_private)?;
        if let Some(&known) = self.locks.get(&located.key) {
            return Some(known);
        }
        let on_board = board.lock(address);
        let name = on_board.as_ref().and_then(|lock| lock.name.clone());
        let made_at = on_board.map(|lock| self.spot(subject, board, lock.made_at));
        Some(self.lock_at(located.key, || Lock {
            pid: subject.pid,
            address,
            kind: Kind::Checked(held.lock.kind, held.lock.traits.contains(Traits::LENDS)),
            name: name.unwrap_or_default(),
            made_at,
            ..Lock::new(located.key, located.place)
        }))
    }

    /// A place in the program, as far as it can be determined without its symbol tables.
    fn spot(&self, subject: &Subject, board: &BoardReader, site: RecordedSite) -> Spot {
        if let Some(text) = board.text(site.raw()) {
            return Spot::Text(text);
        }
        if site == RecordedSite::UNKNOWN || site.is_location() {
            return Spot::Unknown;
        }
        let located = self.locate(subject, site.raw(), true);
        match located.map(|located| (located.key, located.place)) {
            Some((Key::Private { .. }, Location::Module(module))) => Spot::Code {
                pid: subject.pid,
                module,
                address: site.raw(),
            },
            _ => Spot::Unknown,
        }
    }
}
