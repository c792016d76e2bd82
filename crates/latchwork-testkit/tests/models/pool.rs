//! A ready coproc of a pool: it gets work, or must end, and its runtime may be gone by then.
//!
//! *Mirrors* `wait_for_work` and `poll_for_work` of `coproc/child.rs`, `take` and `close` of `coproc/pool.rs`, `Record::close`
//! of `coproc/record.rs`, the drop of `coproc/runtime.rs`, and `end_all` of `coproc/zygote.rs` (crate `latchwork`).
//!
//! *Abstraction.* One coproc, which its creator takes, wakes ahead, or closes, before or after it is ready; creator, zygote and
//! coproc may be killed. A coproc that sleeps wakes by itself only if its creator is dead: otherwise that takes ten seconds. The
//! runtime's control record is freed when the zygote is gone. `zygote.rs` has the making of a coproc, and the chain of records.
//!
//! *Shown:* work that was assigned is begun, unless the coproc is killed; a coproc that was closed ends; a creator that
//! waits for it does not wait for ever; nobody uses a record after it was freed.

use crate::explore::{self, Model, STUCK, Steps};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Word {
    Requested,
    Ready,
    Awake,
    Assigned,
    Closed,
    Started,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Creator {
    Decides,
    /// It has assigned work to a sleeper.
    WakesForWork,
    WakesAhead,
    FreesControl,
    Closes,
    WakesClosed,
    FreesControlBeforeEnd,
    Reaps,
    Done,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Coproc {
    BecomesReady,
    ReadsWord,
    /// It has read another state than one that ends the wait.
    Sleeps,
    Asleep,
    BeginsPolls,
    Polls,
    EndsPolls,
    Starts,
    Closes,
    Ends,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Zygote {
    Serves,
    Closes,
    Wakes,
    Awaits,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    creator: Creator,
    coproc: Coproc,
    zygote: Zygote,
    word: Word,
    /// Work was assigned; the function has begun.
    assigned: bool,
    begun: bool,
    coproc_killed: bool,
    record_freed: bool,
    control_freed: bool,
    misuse: Option<&'static str>,
    kills: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// The coproc looks at the control record, too.
    ReadsControl,
    /// Whoever closes the record wakes nobody.
    ClosesInSilence,
    /// The coproc becomes ready, or stops to poll, by a store.
    StoresReady,
    StoresAfterPolls,
}

#[derive(Clone, Copy, Debug)]
struct Pool {
    kills: u8,
    fault: Fault,
}

const USED: &str = "a record is used after it was freed";
const LOST: &str = "work was assigned to a coproc that ends without it";

impl State {
    /// A compare-and-swap, or a store.
    fn change(&mut self, from: &[Word], to: Word) -> bool {
        self.use_record();
        let is = from.contains(&self.word);
        if is {
            self.word = to;
        }
        is
    }

    fn use_record(&mut self) {
        if self.record_freed {
            self.misuse = Some(USED);
        }
    }

    fn wake(&mut self) {
        if self.coproc == Coproc::Asleep {
            self.coproc = Coproc::BeginsPolls;
        }
    }
}

const IDLE: [Word; 3] = [Word::Requested, Word::Ready, Word::Awake];

impl Pool {
    fn create(&self, state: &State, steps: &mut Steps<State>) {
        let mut next = *state;
        next.creator = match state.creator {
            Creator::Decides => {
                steps.change(0, "wakes ahead", state, |next| {
                    next.creator = Creator::WakesAhead;
                });
                steps.change(0, "closes", state, |next| next.creator = Creator::Closes);
                let before = state.word;
                if ![Word::Ready, Word::Awake].contains(&before) {
                    return;
                }
                next.word = Word::Assigned;
                next.assigned = true;
                match before {
                    Word::Awake => Creator::FreesControl,
                    _ => Creator::WakesForWork,
                }
            }
            Creator::WakesForWork => {
                next.wake();
                Creator::FreesControl
            }
            Creator::WakesAhead => {
                next.wake();
                Creator::Decides
            }
            // The drop of the runtime. It has taken the coproc out of the pool, and waits for nobody.
            Creator::FreesControl => {
                next.zygote = Zygote::Gone;
                next.control_freed = true;
                Creator::Reaps
            }
            // The drop with the coproc in the pool. Another drop waits for its end.
            Creator::Closes => {
                next.change(&IDLE, Word::Closed);
                Creator::WakesClosed
            }
            Creator::WakesClosed => {
                if self.fault != Fault::ClosesInSilence {
                    next.wake();
                }
                Creator::FreesControlBeforeEnd
            }
            Creator::FreesControlBeforeEnd => {
                next.zygote = Zygote::Gone;
                next.control_freed = true;
                Creator::Reaps
            }
            Creator::Reaps if state.coproc == Coproc::Ended => {
                next.record_freed = true;
                Creator::Done
            }
            Creator::Reaps | Creator::Done | Creator::Dead => return,
        };
        steps.add(0, "goes on", next);
    }

    fn run(&self, state: &State) -> Option<State> {
        let mut next = *state;
        let is_orphan = state.creator == Creator::Dead;
        next.coproc = match state.coproc {
            Coproc::BecomesReady => {
                let any = [Word::Requested, Word::Closed];
                let from = match self.fault {
                    Fault::StoresReady => &any[..],
                    _ => &any[..1],
                };
                match next.change(from, Word::Ready) {
                    true => Coproc::ReadsWord,
                    false => Coproc::Ends,
                }
            }
            Coproc::ReadsWord => {
                next.use_record();
                if self.fault == Fault::ReadsControl && state.control_freed {
                    next.misuse = Some(USED);
                }
                match state.word {
                    Word::Assigned => Coproc::Starts,
                    Word::Closed => Coproc::Ends,
                    _ if is_orphan => Coproc::Closes,
                    _ => Coproc::Sleeps,
                }
            }
            // The kernel compares the word.
            Coproc::Sleeps if state.word == Word::Ready => Coproc::Asleep,
            Coproc::Sleeps => Coproc::ReadsWord,
            Coproc::Asleep if is_orphan => Coproc::ReadsWord,
            Coproc::BeginsPolls => match next.change(&[Word::Ready], Word::Awake) {
                true => Coproc::Polls,
                false => Coproc::ReadsWord,
            },
            Coproc::Polls => Coproc::EndsPolls,
            Coproc::EndsPolls => {
                let all = [Word::Awake, Word::Assigned, Word::Closed];
                let from = match self.fault {
                    Fault::StoresAfterPolls => &all[..],
                    _ => &all[..1],
                };
                next.change(from, Word::Ready);
                Coproc::ReadsWord
            }
            Coproc::Starts => {
                next.use_record();
                next.word = Word::Started;
                next.begun = true;
                Coproc::Ends
            }
            Coproc::Closes => match next.change(&[Word::Ready], Word::Closed) {
                true => Coproc::Ends,
                false => Coproc::ReadsWord,
            },
            Coproc::Ends => Coproc::Ended,
            Coproc::Asleep | Coproc::Ended => return None,
        };
        Some(next)
    }

    fn serve(&self, state: &State) -> Option<State> {
        let mut next = *state;
        next.zygote = match state.zygote {
            Zygote::Serves if state.creator == Creator::Dead => Zygote::Closes,
            Zygote::Closes => {
                next.change(&IDLE, Word::Closed);
                Zygote::Wakes
            }
            Zygote::Wakes => {
                next.wake();
                Zygote::Awaits
            }
            Zygote::Awaits if state.coproc == Coproc::Ended => {
                next.record_freed = true;
                next.control_freed = true;
                Zygote::Gone
            }
            Zygote::Serves | Zygote::Awaits | Zygote::Gone => return None,
        };
        Some(next)
    }
}

impl Model for Pool {
    type State = State;

    fn initial(&self) -> State {
        State {
            creator: Creator::Decides,
            coproc: Coproc::BecomesReady,
            zygote: Zygote::Serves,
            word: Word::Requested,
            assigned: false,
            begun: false,
            coproc_killed: false,
            record_freed: false,
            control_freed: false,
            misuse: None,
            kills: self.kills,
        }
    }

    fn kills(state: &mut State) -> Option<&mut u8> {
        Some(&mut state.kills)
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        self.create(state, steps);
        steps.go_on(1, self.serve(state));
        steps.go_on(2, self.run(state));
        if state.kills == 0 {
            return;
        }
        if !matches!(state.creator, Creator::Done | Creator::Dead) {
            steps.change(0, "is killed", state, |next| {
                next.creator = Creator::Dead;
                next.kills -= 1;
            });
        }
        if state.zygote != Zygote::Gone {
            steps.change(1, "is killed", state, |next| {
                next.zygote = Zygote::Gone;
                next.kills -= 1;
            });
        }
        if state.coproc != Coproc::Ended {
            steps.change(2, "is killed", state, |next| {
                next.coproc = Coproc::Ended;
                next.coproc_killed = true;
                next.kills -= 1;
            });
        }
    }

    fn trouble(&self, state: &State) -> Option<&'static str> {
        let is_lost =
            state.assigned && !state.begun && state.coproc == Coproc::Ended && !state.coproc_killed;
        state.misuse.or(is_lost.then_some(LOST))
    }

    fn is_end(&self, state: &State) -> bool {
        state.coproc == Coproc::Ended && matches!(state.creator, Creator::Done | Creator::Dead)
    }
}

const SMALL: Pool = Pool {
    kills: 3,
    fault: Fault::None,
};

#[test]
fn a_ready_coproc_gets_work_or_ends() {
    explore::prove("ready coprocs", &SMALL, &[SMALL]);
}

#[test]
fn each_fault_of_the_pool_is_found() {
    for (fault, trouble) in [
        (Fault::ReadsControl, USED),
        (Fault::ClosesInSilence, STUCK),
        (Fault::StoresReady, STUCK),
        (Fault::StoresAfterPolls, STUCK),
    ] {
        let twin = Pool { fault, ..SMALL };
        explore::expect(&format!("ready coprocs, {fault:?}"), &twin, trouble);
    }
}
