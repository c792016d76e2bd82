//! Tasks in a region that is nearly always full: workers that allocate, send, fill containers and make objects until they
//! are refused, and fork children that do the same. They are killed and stopped, and a process beside them takes memory
//! from the system and gives it back. Every refusal is an error; nothing that was committed is lost, and in the end
//! nothing is left over.
//!
//! `LATCHWORK_STRESS_SECONDS` says how long it goes on, 3 by default, and `LATCHWORK_PRESS_MIB` how much memory that process
//! takes at most, 64 by default. `ci/soak.sh` runs it beside other tests, in a group of processes with less memory than that.

use core::alloc::Layout;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{InRegion, Mutex};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, RegionOptions, Undo, Vec};
use latchwork_testkit::{Child, Exit, Page, Trial, fastrand, step};
use std::time::{Duration, Instant};

const WORKERS: usize = 5;
const ACCOUNTS: usize = 16;
/// The sum of all accounts, whatever is transferred.
const TOTAL: u64 = 1000 * ACCOUNTS as u64;
const LONGEST: usize = 6000;

type Accounts = Undo<[AtomicU64; ACCOUNTS], 4>;

/// What the tasks have done, in memory that is not the library's.
#[derive(Clone, Copy)]
enum Count {
    Operations,
    Refused,
    Checks,
    Deaths,
    Forks,
}
const COUNTS: usize = Count::Forks as usize + 1;

struct Field<'r> {
    region: &'r Region,
    accounts: Pin<&'r Mutex<Accounts, InRegion>>,
    numbers: Pin<&'r Mutex<Vec<u64>, InRegion>>,
    queue: Queue<'r>,
    counts: &'r Page<[AtomicU64; COUNTS]>,
}

/// A block of the task's own: where it is, how long, and what it is full of.
struct Block(NonNull<u8>, usize, u8);

impl Field<'_> {
    fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Relaxed);
    }

    /// Whether it was done; the other way is an error for want of room.
    fn note<T, E>(&self, result: Result<T, E>) -> Option<T> {
        self.count(if result.is_ok() {
            Count::Operations
        } else {
            Count::Refused
        });
        result.ok()
    }

    /// Two accounts, of which the one gets what the other loses.
    fn transfer(&self, random: &mut fastrand::Rng) {
        let mut accounts = match self.accounts.lock() {
            Ok(accounts) => accounts,
            Err(LockError::OwnerDied(died)) => {
                self.count(Count::Deaths);
                died.make_consistent()
            }
            // All slots are taken.
            Err(_) => return self.count(Count::Refused),
        };
        let mut undo = accounts.edit();
        undo.roll_back();
        assert_eq!(sum(undo.get()), TOTAL, "an update was half done");
        self.count(Count::Checks);
        let (from, to) = (random.usize(..ACCOUNTS), random.usize(..ACCOUNTS));
        let mut update = undo.begin();
        let left = update.get()[from].load(Relaxed);
        if from != to && left > 0 {
            update.store(|accounts| &accounts[from], left - 1).unwrap();
            let before = update.get()[to].load(Relaxed);
            update.store(|accounts| &accounts[to], before + 1).unwrap();
            update.commit();
        }
        self.count(Count::Operations);
    }

    /// Numbers that say where they stand.
    fn append(&self, random: &mut fastrand::Rng) {
        let mut numbers = match self.numbers.lock() {
            Ok(numbers) => numbers,
            Err(LockError::OwnerDied(died)) => {
                self.count(Count::Deaths);
                died.make_consistent()
            }
            Err(_) => return self.count(Count::Refused),
        };
        let mut numbers = numbers.edit();
        let length = numbers.len();
        let is_sound = (0..length).all(|place| numbers[place] == place as u64);
        assert!(is_sound, "a number stands in the place of another");
        self.count(Count::Checks);
        match random.u32(..8) {
            0 => numbers.truncate(length / 2),
            1 => drop(self.note(numbers.shrink_to_fit())),
            2..5 => drop(numbers.pop()),
            _ => drop(self.note(numbers.push(length as u64))),
        }
    }

    fn allocate(&self, random: &mut fastrand::Rng, blocks: &mut std::vec::Vec<Block>) {
        let most = if random.u32(..20) == 0 { 200_000 } else { 5000 };
        let bytes = random.usize(1..most);
        let layout = Layout::from_size_align(bytes, 8).unwrap();
        if let Some(start) = self.note(self.region.allocate(layout)) {
            let mark = random.u8(..);
            fill(start, bytes, mark);
            blocks.push(Block(start, bytes, mark));
        }
        while blocks.len() > 12 || (!blocks.is_empty() && random.u32(..3) == 0) {
            self.free(blocks.swap_remove(random.usize(..blocks.len())));
        }
    }

    #[allow(unsafe_code)]
    fn free(&self, Block(start, bytes, mark): Block) {
        // SAFETY: this task's own block, of that many bytes, which it uses no more.
        unsafe {
            let found = core::slice::from_raw_parts(start.as_ptr(), bytes);
            assert!(found.iter().all(|byte| *byte == mark), "a torn block");
            self.region.deallocate(start).unwrap();
        }
        self.count(Count::Checks);
    }

    /// Messages are full of one byte.
    fn exchange(&self, random: &mut fastrand::Rng) {
        if random.bool() {
            let message = vec![random.u8(..); random.usize(..LONGEST)];
            self.note(self.queue.try_send(&message));
            return;
        }
        let mut buffer = vec![0; LONGEST];
        if let Some(length) = self.note(self.queue.try_receive(&mut buffer)) {
            let message = &buffer[..length];
            assert!(
                message.iter().all(|byte| *byte == message[0]),
                "a torn message"
            );
            self.count(Count::Checks);
        }
    }

    #[allow(unsafe_code)]
    fn name(&self, random: &mut fastrand::Rng, worker: usize) {
        let name = format!("{worker} {}", random.u32(..30));
        let made = self
            .region
            .object(&name, || [7u64; 20])
            .map(|object| object[19]);
        if let Some(last) = self.note(made) {
            assert_eq!(last, 7);
            self.count(Count::Checks);
        }
        // SAFETY: only this worker and its successors use the name, and none has a reference.
        let _ = unsafe { self.region.remove::<[u64; 20]>(&name) };
    }

    /// One operation, whichever it is.
    fn act(&self, random: &mut fastrand::Rng, worker: usize, blocks: &mut std::vec::Vec<Block>) {
        match random.u32(..10) {
            0..3 => self.transfer(random),
            3..5 => self.append(random),
            5..7 => self.allocate(random, blocks),
            7..9 => self.exchange(random),
            _ => self.name(random, worker),
        }
        if random.u32(..500) == 0 {
            let _ = self.region.trim();
        }
    }

    /// Several children at once, some of which kill themselves in the midst of their work.
    #[allow(unsafe_code)]
    fn fork(&self, random: &mut fastrand::Rng, worker: usize) {
        let children: std::vec::Vec<_> = (0..random.usize(1..5))
            .map(|_| {
                let (seed, dies) = (random.u64(..), random.bool());
                self.count(Count::Forks);
                Child::fork(|| {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut blocks = std::vec::Vec::new();
                    for _ in 0..random.u32(..30) {
                        self.act(&mut random, worker, &mut blocks);
                    }
                    if dies {
                        // SAFETY: plain calls.
                        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
                    }
                    blocks.drain(..).for_each(|block| self.free(block));
                })
            })
            .collect();
        for mut child in children {
            let exit = child.wait();
            assert!(
                exit == Exit::Code(0) || exit == Exit::Signal(libc::SIGKILL),
                "{exit:?}"
            );
        }
    }

    /// Until it is killed, or told to stop.
    fn work(&self, worker: usize, seed: u64, stop: &Page<AtomicU64>) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut blocks = std::vec::Vec::new();
        while stop.load(SeqCst) == 0 {
            self.act(&mut random, worker, &mut blocks);
            if random.u32(..200) == 0 {
                self.fork(&mut random, worker);
            }
        }
        blocks.drain(..).for_each(|block| self.free(block));
    }
}

fn sum(accounts: &[AtomicU64; ACCOUNTS]) -> u64 {
    accounts.iter().map(|account| account.load(Relaxed)).sum()
}

#[allow(unsafe_code)]
fn fill(start: NonNull<u8>, bytes: usize, mark: u8) {
    // SAFETY: the caller's own block, of that many bytes.
    unsafe { start.write_bytes(mark, bytes) };
}

/// Has the kernel choose this process where memory is short, before those of the test.
fn be_chosen() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
}

/// Waits to be chosen. A process that took memory may have given it back in the instant in which the kernel chooses one: without
/// this one, that would be the test itself.
fn be_at_hand() {
    be_chosen();
    loop {
        std::thread::park();
    }
}

/// Takes memory from the system and gives it back, again and again. If the system, or the group of processes to which this
/// one belongs, has too little, it is the process that the kernel kills.
fn press(seed: u64) {
    be_chosen();
    let most = std::env::var("LATCHWORK_PRESS_MIB").map_or(64, |most| most.parse().unwrap());
    let most = usize::max(most, 2) << 20;
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let (mut memory, bytes) = (std::vec::Vec::new(), random.usize(1 << 20..most));
        // Refused where the process has a limit.
        if memory.try_reserve_exact(bytes).is_ok() {
            memory.resize(bytes, 0_u8);
        }
        memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&memory);
        std::thread::sleep(Duration::from_millis(random.u64(..20)));
    }
}

#[test]
fn tasks_in_a_full_region_die_and_fork_and_nothing_is_lost() {
    let trial = Trial::begin("tasks_in_a_full_region_die_and_fork_and_nothing_is_lost");
    let region = RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(12)
        .max_names(12)
        .create_anonymous()
        .unwrap();
    let accounts = region
        .object("accounts", || {
            let accounts = [const { AtomicU64::new(TOTAL / ACCOUNTS as u64) }; ACCOUNTS];
            Mutex::in_region(Accounts::new(accounts))
        })
        .unwrap();
    let numbers = region
        .object("numbers", || Mutex::in_region(Vec::new_in(&region)))
        .unwrap();
    let queue = Queue::create(&region, "queue", &QueueOptions::new(8, LONGEST as u32)).unwrap();
    let (counts, stop) = (Page::<[AtomicU64; COUNTS]>::new(), Page::<AtomicU64>::new());
    let field = Field {
        region: &region,
        accounts,
        numbers,
        queue,
        counts: &counts,
    };
    let mut random = trial.seed().rng(0);
    let mut start = |worker| {
        let seed = random.u64(..);
        Child::fork(|| field.work(worker, seed, &stop))
    };
    let mut workers: std::vec::Vec<_> = (0..WORKERS).map(&mut start).collect();
    let begin = |which, seed| match which {
        0 => Child::fork(move || press(seed)),
        _ => Child::fork(be_at_hand),
    };
    let mut chosen = 0;
    let mut at_risk = [0, 1, 2].map(|which| begin(which, 0));
    let mut random = trial.seed().rng(1);
    let (end, mut kills, mut stops) = (Instant::now() + trial.stress_time(), 0, 0);
    while Instant::now() < end || kills == 0 {
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        let which = random.usize(..WORKERS);
        if random.bool() {
            workers[which].signal(libc::SIGSTOP);
            std::thread::sleep(Duration::from_micros(random.u64(..5000)));
            workers[which].signal(libc::SIGCONT);
            stops += 1;
        } else {
            assert_eq!(workers[which].kill(), Exit::Signal(libc::SIGKILL));
            workers[which] = start(which);
            kills += 1;
        }
        for (which, child) in at_risk.iter_mut().enumerate() {
            if let Some(exit) = child.try_wait() {
                assert_eq!(exit, Exit::Signal(libc::SIGKILL));
                chosen += 1;
                *child = begin(which, chosen);
            }
        }
        trial.progress();
    }
    stop.store(1, SeqCst);
    workers.into_iter().for_each(Child::succeed);
    for child in &mut at_risk {
        child.kill();
    }
    // Children of killed workers are killed with them, and end soon.
    trial.wait_until(|| {
        region.sweep().unwrap();
        region.heap_stats().private_blocks == 0
    });
    region.check_heap().unwrap();
    assert!(queue.is_consistent().unwrap());
    field.transfer(&mut random);
    field.append(&mut random);
    let count = |what: Count| counts[what as usize].load(SeqCst);
    println!(
        "{}: {} operations, {} refused; {kills} kills, {stops} stops, {} forks; {} deaths reported, {} checks; \
         {chosen} times the kernel ended a process for want of memory",
        trial.name(),
        count(Count::Operations),
        count(Count::Refused),
        count(Count::Forks),
        count(Count::Deaths),
        count(Count::Checks),
    );
    assert!(count(Count::Operations) > 0 && count(Count::Checks) > 0);
}

/// Most of a span.
const BLOCK: usize = 60_000;

/// Blocks of this size, until the region has no room for one more.
fn fill_up(region: &Region) -> std::vec::Vec<NonNull<u8>> {
    let layout = Layout::from_size_align(BLOCK, 8).unwrap();
    let next = || Some(region.allocate(layout).ok()?.cast());
    core::iter::from_fn(next).collect()
}

#[test]
#[allow(unsafe_code)]
fn a_trim_killed_at_any_instruction_loses_no_room() {
    let trial = Trial::begin("a_trim_killed_at_any_instruction_loses_no_room").across_namespaces();
    let world = || {
        let region = RegionOptions::new()
            .max_bytes(2 << 20)
            .max_tasks(8)
            .any_pid_namespace(trial.is_across_namespaces())
            .create_anonymous()
            .unwrap();
        let blocks = fill_up(&region);
        for block in &blocks {
            // SAFETY: allocated above, and not used.
            unsafe { region.deallocate(*block).unwrap() };
        }
        (region, blocks.len())
    };
    step::each_instruction_and_recovery(
        &trial,
        "trim",
        world,
        |(region, _), span| {
            region.join("trims").unwrap();
            span.run(|| region.trim().unwrap());
        },
        |_| false,
        |(region, _), span| {
            span.run(|| {
                region.join("recoverer").unwrap();
                region.sweep().unwrap();
                region.trim().unwrap();
            });
        },
        |(region, room), _| {
            region.sweep().unwrap();
            region.check_heap().unwrap();
            // What the dead task had not yet given back.
            let released = region.trim().unwrap();
            region.check_heap().unwrap();
            let blocks = fill_up(&region);
            assert_eq!(blocks.len(), room);
            // A span without memory would end the process here.
            blocks.iter().for_each(|block| fill(*block, BLOCK, 1));
            match released {
                0 => "all room was there, and the trim was done",
                _ => "all room was there, and memory was left to trim",
            }
        },
    );
}
