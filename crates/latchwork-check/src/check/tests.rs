//! Unit tests that go through the whole checker.

use super::record::board;
use super::record::holder::Holder;
use super::record::rule::Rule;
use super::record::tag::Tag;
use super::report::finding::{Finding, TaskText};
use super::report::sink::{forget_reported, set_reporter};
use super::{checked, observer};
use crate::atomic::{AtomicU32, Ordering};
use crate::hook::{How, Kind, Lock, Mode, Site, Traits, Verdict};
use core::cell::Cell;
use core::panic::Location;
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread::scope;

/// Runs `body` while `reporter` gets the findings. The reporter is the process's, so only one body runs at a time.
fn reporting_to(reporter: fn(&Finding), body: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    set_reporter(Some(reporter));
    body();
    set_reporter(None);
}

/// The number of consistent reports, and of those that named tasks that had moved on.
static REPORTS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Two tasks complete a cycle at the same time, and one is refused while the other reports it.
#[test]
fn reported_cycles_existed() {
    let locks = [0x5000, 0x6000].map(|address| Lock::new(address, Kind::Mutex));
    let reporter = |finding: &Finding| {
        let is_whole = |task: &TaskText| task.wants.is_some() && task.holds.is_some();
        if finding.rule == Rule::NoDeadlock {
            REPORTS[usize::from(!finding.tasks.iter().all(is_whole))]
                .fetch_add(1, Ordering::Relaxed);
        }
    };
    let all = Barrier::new(2);
    let task = |mine: Lock, theirs: Lock| {
        let at = Site::from_return_address(mine.address());
        for round in 0..2_000 {
            observer::taken(mine, Mode::Exclusive, How::Locked, at);
            all.wait();
            let _ = observer::wants(theirs, Mode::Exclusive, false, at);
            if round == 0 {
                all.wait();
            }
            observer::gave_up(theirs);
            let _ = observer::releasing(mine, at);
            all.wait();
            forget_reported();
        }
    };
    reporting_to(reporter, || {
        scope(|scope| {
            scope.spawn(|| task(locks[0], locks[1]));
            task(locks[1], locks[0]);
        });
    });
    let [whole, mixed] = REPORTS
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    assert!(whole > 0);
    assert_eq!(mixed, 0, "of {whole}");
}

type Takes = fn(Lock, Mode, How, Site);
type Releases = fn(Lock, Site);

/// A thread takes and releases locks as the numbers say. Returns what the records say after each step.
fn steps(takes: Takes, releases: Releases, seed: u64) -> Vec<String> {
    // A lock that stores its holder; its address is the same each time.
    static WORD: AtomicU32 = AtomicU32::new(0);
    // SAFETY: the first half's address is made up, and the word lies at its end.
    let with_word =
        unsafe { Lock::new(core::ptr::from_ref(&WORD).addr() - 4, Kind::Mutex).with_word(4) };
    let recursive = Lock::new(0x3000, Kind::Mutex).with(Traits::RECURSIVE);
    let locks = [
        (with_word, Mode::Exclusive),
        (Lock::new(0x1000, Kind::Mutex), Mode::Exclusive),
        (Lock::new(0x2000, Kind::Spin), Mode::Exclusive),
        (recursive, Mode::Exclusive),
        (Lock::new(0x4000, Kind::RwLock), Mode::Shared),
    ];
    let mut number = seed;
    let mut next = || {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (number >> 33) as usize
    };
    let mut held = [0_u32; 5];
    let mut step = |index: usize, takes_it: bool, tried: bool| {
        let (lock, mode) = locks[index];
        let at = |line| Site::from_return_address(0x100 * (index + 1) + line);
        let how = if tried { How::Tried } else { How::Locked };
        match takes_it {
            true if held[index] == 0 || index > 2 => {
                takes(lock, mode, how, at(0x10));
                held[index] += 1;
            }
            false if held[index] > 0 => {
                releases(lock, at(0x20));
                held[index] -= 1;
            }
            _ => {}
        }
        let own = observer::enter().expect("a place");
        let mine: Vec<_> = own
            .held()
            .map(|mine| (mine.address, mine.what, mine.depth))
            .collect();
        let said = own.record().view();
        let said: Vec<_> = said
            .held()
            .map(|held| (held.lock, held.mode, held.site, held.depth))
            .collect();
        let board = board::board().expect("a board");
        let entries = locks.map(|(lock, _)| {
            let entry = board.lock(lock.address())?;
            let is_held = Holder::of(lock, entry).is(&own);
            let note = board.note(own.index.get() as usize, lock.address());
            let note = [&note.lock, &note.taken, &note.released];
            Some((is_held, note.map(|part| part.load(Ordering::Relaxed))))
        });
        format!("{mine:?} {said:?} {entries:?}")
    };
    // Each lock is known, and has been released.
    let known = (0..5).flat_map(|index| [(index, true), (index, false)]);
    known.for_each(|(index, takes_it)| drop(step(index, takes_it, false)));
    let mut said: Vec<_> = (0..500)
        .map(|_| step(next() % 5, next() % 2 == 0, next() % 4 == 0))
        .collect();
    said.extend((0..400).map(|number| step(number % 5, false, false)));
    assert!(
        observer::enter().is_some_and(|own| own.is_free()),
        "all is released"
    );
    said
}

#[test]
fn fast_path_records_what_the_slow_path_records() {
    // The orders contradict each other, and would be reported.
    super::set_text(false);
    for seed in 1..20 {
        // The threads run one after the other, so that the addresses are the same.
        let run = |takes: Takes, releases: Releases| {
            let thread = std::thread::spawn(move || steps(takes, releases, seed));
            thread.join().expect("the steps")
        };
        let fast = run(observer::taken, |lock, site| {
            assert_ne!(observer::releasing(lock, site), Verdict::NotHeld)
        });
        let slow = run(observer::taken_slowly, |lock, site| {
            assert_ne!(observer::releasing_slowly(lock, site), Verdict::NotHeld);
        });
        assert_eq!(fast, slow, "seed {seed}");
    }
}

/// Two tasks use a lock for the first time, and one checks the tag again after the other has settled it.
#[test]
fn second_task_at_a_first_use_reports_no_copy() {
    std::thread_local!(static FOUND: Cell<u32> = const { Cell::new(0) });
    let tag = Tag::new("a", Location::caller());
    let lock = tag.lock(Kind::Mutex, Traits::empty());
    assert!(tag.settle());
    let reporter = |_: &Finding| FOUND.set(FOUND.get() + 1);
    let explain = || {
        FOUND.set(0);
        reporting_to(reporter, || checked::explain(&tag, lock, Site::UNKNOWN));
        FOUND.get()
    };
    assert_eq!(explain(), 0);
    // A copy would have been reported.
    tag.pretend_copied();
    assert_eq!(explain(), 1);
}
