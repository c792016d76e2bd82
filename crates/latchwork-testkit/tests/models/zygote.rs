//! The records of coprocs: creator, zygote and coproc, each killed at any step, and the sweep of the creator's task.
//!
//! *Mirrors* `Chain::add`, `Chain::retire` and `Ref::free` of `coproc/record.rs`, `start_clean` and `handshake` of
//! `coproc/runtime.rs`, the join and drop of `coproc/join.rs`, `serve`, `make` and `end_all` of `coproc/zygote.rs`, `run` of
//! `coproc/child.rs` (crate `latchwork`); and `replace` and `finish_intent` of `region/heap/intent.rs` (crate
//! `latchwork-region`).
//!
//! *Abstraction.* One clean coproc, whose record is the only one in the chain; it is started, joined and freed, and then the
//! runtime ends. The order of a death is the kernel's: first the life-word, then the descriptors, then the process has ended.
//! A survivor sweeps at any time after the first. A sweep is one step (the heap's own tests kill it at each of its steps). A
//! zygote that dies is not replaced: the start fails. The pool and snapshots are not part of it.
//!
//! *Shown:* nobody uses a record, or the control record, after it was freed; nothing is freed twice; the creator waits for
//! nothing that cannot come; in the end both are free, unless creator and zygote were both killed, or the creator after the
//! zygote had ended.

use crate::explore::{self, Model, Steps};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Creator {
    Allocates,
    IntendsLink,
    Shares,
    Links,
    EndsLink,
    Requests,
    ReadsLife,
    ReadsRecord,
    Joins,
    Reaps,
    IntendsUnlink,
    Unlinks,
    Frees,
    EndsUnlink,
    EndsZygote,
    FreesControl,
    Done,
    LifeEnds,
    DescriptorsClose,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Zygote {
    Serves,
    Makes,
    AwaitsParent,
    Sweeps,
    Follows,
    AwaitsCoproc,
    FreesControl,
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Coproc {
    Unmade,
    Begins,
    Starts,
    Runs,
    /// Its function has left the region, and runs on.
    RunsOutside,
    Finishes,
    Leaves,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Intent {
    None,
    Link,
    Unlink,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Block {
    Free,
    Private,
    Shared,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Requested,
    Started,
    Done,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct State {
    creator: Creator,
    zygote: Zygote,
    coproc: Coproc,
    record: Block,
    control: Block,
    /// The control record leads to the record.
    linked: bool,
    intent: Intent,
    phase: Phase,
    /// The process's ID is in the record.
    made: bool,
    /// The request is in the socket.
    sent: bool,
    /// The coproc's task is in the region.
    has_task: bool,
    /// What the creator has read: the zygote lives.
    zygote_lives: bool,
    /// What it has read if it reads the process's ID first.
    was_made: bool,
    swept: bool,
    misuse: Option<&'static str>,
    creator_killed: bool,
    zygote_killed: bool,
    kills: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// A record is shared before it is linked.
    KeepsBeforeLink,
    /// A record is unlinked without an intent.
    UnlinksWithoutIntent,
    ZygoteDoesNotSweep,
    ZygoteFreesRunning,
    JoinFreesAtEndOfTask,
    HandshakeIgnoresZygote,
    HandshakeReadsLifeLast,
}

#[derive(Clone, Copy, Debug)]
struct Protocol {
    kills: u8,
    fault: Fault,
}

const USED: &str = "a record is used after it was freed";
const TWICE: &str = "a record is freed twice";
const LEAK: &str = "a record leaks";

impl State {
    fn use_record(&mut self) {
        if self.record == Block::Free {
            self.misuse = Some(USED);
        }
    }

    fn use_control(&mut self) {
        if self.control == Block::Free {
            self.misuse = Some(USED);
        }
    }

    fn free_record(&mut self) {
        if self.record == Block::Free {
            self.misuse = Some(TWICE);
        }
        self.record = Block::Free;
    }

    /// The sweep of the creator's task.
    fn sweep(&mut self) {
        self.swept = true;
        if self.intent != Intent::None {
            self.use_control();
        }
        match (self.intent, self.linked) {
            (Intent::Link, false) if self.record == Block::Shared => self.record = Block::Private,
            (Intent::Unlink, false) => self.record = Block::Free,
            _ => {}
        }
        self.intent = Intent::None;
        if self.record == Block::Private {
            self.record = Block::Free;
        }
    }

    fn creator_has_ended(&self) -> bool {
        matches!(self.creator, Creator::Ended | Creator::Done)
    }
}

impl Protocol {
    fn create(&self, state: &State) -> Option<State> {
        let mut next = *state;
        next.creator = match state.creator {
            Creator::Allocates => {
                let early = self.fault == Fault::KeepsBeforeLink;
                next.record = if early { Block::Shared } else { Block::Private };
                if early {
                    Creator::Links
                } else {
                    Creator::IntendsLink
                }
            }
            Creator::IntendsLink => {
                next.intent = Intent::Link;
                Creator::Shares
            }
            Creator::Shares => {
                next.record = Block::Shared;
                Creator::Links
            }
            Creator::Links => {
                next.use_control();
                next.linked = true;
                Creator::EndsLink
            }
            Creator::EndsLink => {
                next.intent = Intent::None;
                Creator::Requests
            }
            // The socket is closed.
            Creator::Requests if state.zygote == Zygote::Gone => Creator::IntendsUnlink,
            Creator::Requests => {
                next.sent = true;
                Creator::ReadsLife
            }
            Creator::ReadsLife => {
                next.zygote_lives = state.zygote != Zygote::Gone;
                next.was_made = state.made;
                Creator::ReadsRecord
            }
            Creator::ReadsRecord => {
                next.use_record();
                let late = self.fault == Fault::HandshakeReadsLifeLast;
                let made = if late { state.was_made } else { state.made };
                let lives = if late {
                    state.zygote != Zygote::Gone
                } else {
                    state.zygote_lives
                };
                match state.phase {
                    Phase::Started | Phase::Done => Creator::Joins,
                    Phase::Requested if made && state.coproc == Coproc::Ended => Creator::Reaps,
                    Phase::Requested if made => Creator::ReadsLife,
                    Phase::Requested if !lives && self.fault != Fault::HandshakeIgnoresZygote => {
                        Creator::IntendsUnlink
                    }
                    Phase::Requested => Creator::ReadsLife,
                }
            }
            Creator::Joins if state.has_task => return None,
            Creator::Joins => {
                next.use_record();
                let at_once = self.fault == Fault::JoinFreesAtEndOfTask;
                match state.phase {
                    Phase::Done => Creator::IntendsUnlink,
                    _ if at_once => Creator::IntendsUnlink,
                    _ => Creator::Reaps,
                }
            }
            Creator::Reaps if state.coproc == Coproc::Ended => Creator::IntendsUnlink,
            Creator::IntendsUnlink => {
                if self.fault != Fault::UnlinksWithoutIntent {
                    next.intent = Intent::Unlink;
                }
                Creator::Unlinks
            }
            Creator::Unlinks => {
                next.linked = false;
                Creator::Frees
            }
            Creator::Frees => {
                next.free_record();
                Creator::EndsUnlink
            }
            Creator::EndsUnlink => {
                next.intent = Intent::None;
                Creator::EndsZygote
            }
            Creator::EndsZygote => {
                next.zygote = Zygote::Gone;
                Creator::FreesControl
            }
            Creator::FreesControl => {
                next.use_control();
                next.control = Block::Free;
                Creator::Done
            }
            Creator::LifeEnds => Creator::DescriptorsClose,
            Creator::DescriptorsClose => Creator::Ended,
            Creator::Reaps | Creator::Done | Creator::Ended => return None,
        };
        Some(next)
    }

    fn serve(&self, state: &State) -> Option<State> {
        let mut next = *state;
        let coproc_has_ended = matches!(state.coproc, Coproc::Unmade | Coproc::Ended);
        next.zygote = match state.zygote {
            Zygote::Serves if state.sent => {
                next.sent = false;
                next.use_record();
                Zygote::Makes
            }
            // A dying process closes its descriptors before it has ended.
            Zygote::Serves if state.creator == Creator::Ended => Zygote::AwaitsParent,
            Zygote::Makes => {
                next.use_record();
                next.made = true;
                next.coproc = Coproc::Begins;
                Zygote::Serves
            }
            Zygote::AwaitsParent if state.creator == Creator::Ended => {
                next.use_control();
                Zygote::Sweeps
            }
            Zygote::Sweeps => {
                if self.fault != Fault::ZygoteDoesNotSweep && !state.swept {
                    next.sweep();
                }
                Zygote::Follows
            }
            Zygote::Follows => {
                next.use_control();
                if state.linked {
                    Zygote::AwaitsCoproc
                } else {
                    Zygote::FreesControl
                }
            }
            Zygote::AwaitsCoproc => {
                let waits = state.made
                    && state.phase != Phase::Done
                    && self.fault != Fault::ZygoteFreesRunning;
                if waits && !coproc_has_ended {
                    return None;
                }
                next.free_record();
                Zygote::FreesControl
            }
            Zygote::FreesControl => {
                next.control = Block::Free;
                Zygote::Gone
            }
            Zygote::Serves | Zygote::AwaitsParent | Zygote::Gone => return None,
        };
        Some(next)
    }

    fn run(state: &State) -> Option<State> {
        let mut next = *state;
        next.coproc = match state.coproc {
            Coproc::Begins => {
                next.use_record();
                next.has_task = true;
                Coproc::Starts
            }
            Coproc::Starts => {
                next.use_record();
                next.phase = Phase::Started;
                Coproc::Runs
            }
            Coproc::Runs | Coproc::RunsOutside => Coproc::Finishes,
            Coproc::Finishes => {
                next.use_record();
                next.phase = Phase::Done;
                Coproc::Leaves
            }
            Coproc::Leaves => {
                next.has_task = false;
                Coproc::Ended
            }
            Coproc::Unmade | Coproc::Ended => return None,
        };
        Some(next)
    }
}

impl Model for Protocol {
    type State = State;

    fn initial(&self) -> State {
        State {
            creator: Creator::Allocates,
            zygote: Zygote::Serves,
            coproc: Coproc::Unmade,
            record: Block::Free,
            control: Block::Shared,
            linked: false,
            intent: Intent::None,
            phase: Phase::Requested,
            made: false,
            sent: false,
            has_task: false,
            zygote_lives: true,
            was_made: false,
            swept: false,
            misuse: None,
            creator_killed: false,
            zygote_killed: false,
            kills: self.kills,
        }
    }

    fn kills(state: &mut State) -> Option<&mut u8> {
        Some(&mut state.kills)
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        let parts = [self.create(state), self.serve(state), Self::run(state)];
        for (who, next) in parts.into_iter().enumerate() {
            steps.go_on(who, next);
        }
        if state.coproc == Coproc::Runs {
            steps.change(2, "leaves the region", state, |next| {
                next.has_task = false;
                next.coproc = Coproc::RunsOutside;
            });
        }
        let is_dead = matches!(state.creator, Creator::DescriptorsClose | Creator::Ended);
        if is_dead && !state.swept {
            steps.change(3, "sweeps", state, State::sweep);
        }
        if state.kills == 0 {
            return;
        }
        let creator_runs = !matches!(
            state.creator,
            Creator::Done | Creator::LifeEnds | Creator::DescriptorsClose | Creator::Ended
        );
        if creator_runs {
            steps.change(0, "is killed", state, |next| {
                next.creator = Creator::LifeEnds;
                next.creator_killed = true;
                // It had ended the zygote itself.
                next.zygote_killed |= state.creator == Creator::FreesControl;
                next.kills -= 1;
            });
        }
        if state.zygote != Zygote::Gone {
            steps.change(1, "is killed", state, |next| {
                next.zygote = Zygote::Gone;
                next.zygote_killed = true;
                next.kills -= 1;
            });
        }
        if !matches!(state.coproc, Coproc::Unmade | Coproc::Ended) {
            steps.change(2, "is killed", state, |next| {
                next.coproc = Coproc::Ended;
                next.has_task = false;
                next.kills -= 1;
            });
        }
    }

    fn trouble(&self, state: &State) -> Option<&'static str> {
        let is_over = state.creator_has_ended()
            && state.zygote == Zygote::Gone
            && matches!(state.coproc, Coproc::Unmade | Coproc::Ended)
            && (state.creator == Creator::Done || state.swept);
        let is_left = state.record != Block::Free || state.control != Block::Free;
        let leaks = is_over && is_left && !(state.creator_killed && state.zygote_killed);
        state.misuse.or(leaks.then_some(LEAK))
    }

    fn is_end(&self, state: &State) -> bool {
        state.creator_has_ended() && state.zygote == Zygote::Gone
    }
}

const SMALL: Protocol = Protocol {
    kills: 3,
    fault: Fault::None,
};

#[test]
fn records_are_used_while_they_exist_and_freed_once() {
    // Three processes: each may be killed.
    explore::prove("records of coprocs", &SMALL, &[SMALL]);
}

#[test]
fn each_fault_of_the_protocol_of_records_is_found() {
    for (fault, trouble) in [
        (Fault::KeepsBeforeLink, LEAK),
        (Fault::UnlinksWithoutIntent, LEAK),
        (Fault::ZygoteDoesNotSweep, USED),
        (Fault::ZygoteFreesRunning, USED),
        (Fault::JoinFreesAtEndOfTask, USED),
        (Fault::HandshakeIgnoresZygote, explore::ENDLESS),
        (Fault::HandshakeReadsLifeLast, USED),
    ] {
        let name = format!("records of coprocs, {fault:?}");
        explore::expect(&name, &Protocol { fault, ..SMALL }, trouble);
    }
}
