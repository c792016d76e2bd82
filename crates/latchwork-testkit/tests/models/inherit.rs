//! The robust mutex with priority inheritance: the word, the kernel's record of its sleepers, and their hand-over.
//!
//! *Mirrors* `acquire_free`, `acquire_slowly`, `link` and `release_word` of `mutex/robust/lock.rs`; `take`, `free` and
//! `pass_on` of `mutex/robust/inherit.rs`; `take_free`, `sleep`, `interpret`, `mark_owner_died` and `release_by_kernel` of
//! `mutex/inherit/word.rs` (crate `latchwork-sync`); and of Linux 6.8 and later, in `kernel/futex`: `futex_lock_pi` with
//! `futex_lock_pi_atomic`, `attach_to_pi_state`, `attach_to_pi_owner` and `handle_exit_race`, `fixup_pi_owner`,
//! `futex_unlock_pi` with `wake_futex_pi`, and a task's exit: `exit_robust_list` with `handle_futex_death`, then
//! `exit_pi_state_list`. `steps.rs` has the tasks, `kernel.rs` the kernel.
//!
//! *Abstraction.* One lock, without the gate: whoever comes may sleep in the kernel at once. One step is what the kernel does under
//! its lock of the hash bucket, or one access to a word, in a total order. Priorities are left out: an unlock, and a death, may
//! wake any sleeper, and a task that comes between a wake-up and the woken task may take the lock or queue behind it. A task
//! that is killed in a system call leaves it first, as in the kernel: so it may own the lock as it dies. The kernel's loops that
//! wait for a dying task to be gone are one step that waits. IDs are not used again. The links of the list are one bit.
//!
//! *Shown:* mutual exclusion; torn data is reported; each death of an owner is reported, and once; each wait ends, with no naps.
//! The same if no list names the lock: the kernel's record, or the next locker's question for the owner, shows the death
//! (`unlisted`).

mod kernel;
mod steps;
mod tests;

use crate::explore::{Model, Steps};
use crate::futex_word::Word;
use crate::section::{Data, Section, exclusion};

const MOST: usize = 4;

/// The kernel's record of a word for which tasks sleep (`futex_pi_state`, with its `rt_mutex`).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
struct Record {
    /// The task to which the record belongs, from 1; 0: it died.
    owner: u8,
    /// The owner of the `rt_mutex`, from 1; 0: none, and whoever was woken is about to take it.
    taken_by: u8,
    /// The tasks that are on the futex's queue, as bits; without any, there is no record.
    queued: u8,
    /// Those of them that wait for the `rt_mutex`.
    waiting: u8,
}

/// What a task is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum At {
    Idle,
    TakesFree,
    // Asks the kernel for the word.
    Guesses,
    KernelReads,
    KernelAttaches,
    AwaitsExit,
    Asleep,
    Woken,
    /// Leaves the call: because it was killed, or gives up.
    Cleans,
    /// Corrects the word, and leaves the queue; it has the `rt_mutex`, or it has not.
    Fixes(bool),
    MarksDied,
    ReadsWord,
    // The lock is this task's.
    StoresState,
    Links,
    ReadsState,
    Inside(Section),
    Unlinks,
    Gives,
    KernelReadsToUnlock,
    KernelUnlocks,
    // It was killed.
    WalksList,
    LeavesRecord,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Task {
    at: At,
    read: Word,
    announced: bool,
    listed: bool,
    /// Killed in a system call, which it is about to leave.
    doomed: bool,
    /// It leaves the repair to the next owner.
    passes_on: bool,
    rounds: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    word: Word,
    inconsistent: bool,
    record: Record,
    /// The task that holds the lock of the hash bucket, from 1.
    bucket: u8,
    tasks: [Task; MOST],
    data: Data,
    /// An owner has died, and no task has got the report.
    unreported: bool,
    wrong: Option<&'static str>,
    kills: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// An unlock with sleepers stores 0.
    UnlockIgnoresSleepers,
    /// A taker does not look at `OWNER_DIED`.
    HidesDeath,
    /// A waiter that finds no such task makes the word free, whatever it has become.
    MarksAnyWord,
    /// An unlock by the kernel keeps `OWNER_DIED` in the word.
    KeepsOwnerDied,
    /// The kernel passes the word of a dead owner on to nobody.
    RecordIsForgotten,
    /// A sleeper that is killed after it was woken does not take the lock.
    KilledHeirLeaves,
    /// A task that takes the lock from under a woken one does not correct the word.
    ThiefKeepsWord,
    /// A locker queues behind an owner whose exit has passed the point at which it looks for sleepers.
    AttachesToDead,
    /// A woken task from which the lock was taken, and which gives up, leaves its ID in the word.
    LoserKeepsWord,
    /// The kernel's walk marks a word, whoever is its owner.
    WalkComparesNothing,
}

#[derive(Clone, Copy, Debug)]
struct Inherit {
    tasks: usize,
    rounds: u8,
    kills: u8,
    /// The last task may give up as it sleeps.
    gives_up: bool,
    /// No robust list names the lock.
    unlisted: bool,
    fault: Fault,
}

impl State {
    /// Whether a task has the lock, or died with it: what the word says.
    fn is_owned_by(&self, who: usize) -> bool {
        usize::from(self.word.owner) == who + 1
    }
}

impl Model for Inherit {
    type State = State;

    fn initial(&self) -> State {
        let task = |who| Task {
            at: if who < self.tasks { At::Idle } else { At::Gone },
            read: Word::default(),
            announced: false,
            listed: false,
            doomed: false,
            passes_on: false,
            rounds: self.rounds,
        };
        State {
            word: Word::default(),
            inconsistent: false,
            record: Record::default(),
            bucket: 0,
            tasks: std::array::from_fn(task),
            data: Data::default(),
            unreported: false,
            wrong: None,
            kills: self.kills,
        }
    }

    fn kills(state: &mut State) -> Option<&mut u8> {
        Some(&mut state.kills)
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        for who in 0..self.tasks {
            let at = state.tasks[who].at;
            steps.go_on(who, self.go(state, who));
            self.ask_kernel(state, who, steps);
            match at {
                At::Asleep if self.gives_up && who + 1 == self.tasks => {
                    steps.change(who, "gives up", state, |next| {
                        next.tasks[who].at = At::Cleans;
                    });
                }
                // The owner of torn data may leave its repair to the next one.
                At::Inside(Section::Repairs) => steps.change(who, "passes on", state, |next| {
                    next.tasks[who].passes_on = true;
                    next.tasks[who].at = At::Unlinks;
                    next.unreported = true;
                }),
                _ => {}
            }
            if state.kills > 0 {
                self.kill(state, who, steps);
            }
        }
    }

    fn trouble(&self, state: &State) -> Option<&'static str> {
        let has = |task: &&Task| {
            matches!(
                task.at,
                At::StoresState
                    | At::Links
                    | At::ReadsState
                    | At::Inside(_)
                    | At::Unlinks
                    | At::Gives
            )
        };
        let two = exclusion(state.tasks.iter().filter(has).count());
        two.or(state.wrong).or(state.data.trouble())
    }

    fn is_end(&self, state: &State) -> bool {
        let rests = |task: &Task| match task.at {
            At::Gone => true,
            At::Idle => task.rounds == 0,
            _ => false,
        };
        state.tasks.iter().all(rests)
    }
}

const LOST: &str = "an owner's death is not reported";
const TWICE: &str = "a death is reported that was reported before";
