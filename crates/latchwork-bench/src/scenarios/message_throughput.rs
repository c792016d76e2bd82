//! The cost of passing messages between tasks: as many as possible in one direction, and round trips one at a time.
//!
//! Source: the talk "Recent new features in NPTL" (CELF Technical Jamboree 16, 2007), pages 26 to 30: a queue of robust
//! mutex and condition variable ("mu/cv"), one with a semaphore ("mu/sm"), and the POSIX message queue, which was the
//! fastest there.
//!
//! There is one sender and one receiver, threads or forked processes, each on its own CPU; round trips also on one CPU,
//! where each must wait for the other to sleep. At most ten messages are under way. Contestants that copy do so between
//! the queue and the task's own buffer. A message that is passed in place is written and read where it lies, a byte of
//! each cache line; of a message that is handed over, only the first byte is accessed.
//!
//! The largest messages are also *computed*: the sender writes each byte of a message, the receiver adds up all of
//! them. Contestants that copy compute in their own buffer, and copy in addition; in place, and handed over, nothing
//! more is done.
//!
//! *Several tasks*: all but one send, or all but one receive, or half and half, placed by the scheduler. The figure is
//! the time per message of all of them together.
//!
//! Impossible cases are left out: the floor that spins needs two CPUs, and the one that copies has no way back.

mod exchange;
mod published;
mod transfer;

use std::time::Duration;

use super::{Prepared, Scenario};
use crate::contestant::{Absent, Contestant};
use crate::measure::{Case, Sampler};
use crate::peers::queues::{self, MessageQueue};
use crate::plan::Plan;
use crate::published::{Experiment, NPTL, Source};
use crate::result::{Kind, Mode, Placement, Unit, Warning};

use exchange::{Exchange, among_many, between_two};
use transfer::sampler;

pub(super) struct MessageThroughput;

const SIZES: [u64; 6] = [1, 64, 256, 1024, 4096, 65_536];
const QUICK_SIZES: [u64; 3] = [64, 1024, 65_536];

/// One sender and one receiver are two tasks.
const TASKS: [u32; 3] = [2, 4, 8];
const QUICK_TASKS: [u32; 2] = [2, 4];

const BASE: &str = "posix-mq";

/// A contestant: its name, its sampler, and why it may be absent.
struct Peer {
    name: &'static str,
    sampler: fn(Exchange, Duration) -> Sampler,
    /// The reason why it does not support messages of a size.
    absent: fn(u64) -> Option<Absent>,
    /// The modes that it supports.
    modes: &'static [Mode],
    /// Whether it spins while it waits.
    spins: bool,
    /// Whether it supports several senders and receivers.
    many: bool,
    /// Whether it transports messages.
    carries: bool,
}

const fn peer<M: MessageQueue>(name: &'static str, modes: &'static [Mode]) -> Peer {
    Peer {
        name,
        sampler: sampler::<M>,
        absent: absent::<M>,
        modes,
        spins: false,
        many: true,
        carries: true,
    }
}

const fn one_to_one(peer: Peer) -> Peer {
    Peer {
        many: false,
        ..peer
    }
}

const BOTH: &[Mode] = &[Mode::Stream, Mode::RoundTrip];
const STREAM: &[Mode] = &[Mode::Stream];

const PEERS: &[Peer] = &[
    peer::<queues::Copied>("latchwork queue", BOTH),
    peer::<queues::InC>("latchwork queue-in-c", BOTH),
    peer::<queues::InPlace>("latchwork queue-in-place", BOTH),
    peer::<queues::HandedOver>("latchwork queue-handed-over", BOTH),
    peer::<queues::Batched>("latchwork queue-batched", STREAM),
    one_to_one(peer::<queues::Ring>("latchwork queue-spsc", BOTH)),
    one_to_one(peer::<queues::RingInPlace>(
        "latchwork queue-spsc-in-place",
        BOTH,
    )),
    one_to_one(peer::<queues::RingBatched>(
        "latchwork queue-spsc-batched",
        STREAM,
    )),
    peer::<queues::PosixMq>(BASE, BOTH),
    peer::<queues::MutexCond>("mutex+cond", BOTH),
    peer::<queues::MutexSem>("mutex+sem", BOTH),
    peer::<queues::RobustMutexCond>("robust mutex+cond", BOTH),
    peer::<queues::RobustMutexSem>("robust mutex+sem", BOTH),
    peer::<queues::OurMutexCond>("latchwork robust+cond", BOTH),
    peer::<queues::OurMutexSem>("latchwork robust+completion", BOTH),
    peer::<queues::Pipe>("pipe", BOTH),
    peer::<queues::SeqPacket>("unix-seqpacket", BOTH),
    peer::<queues::Boost>("boost-queue", BOTH),
    Peer {
        spins: true,
        many: false,
        ..peer::<queues::SpinningRing>("floor ring", BOTH)
    },
    Peer {
        carries: false,
        many: false,
        ..peer::<queues::Memcpy>("floor memcpy", STREAM)
    },
];

fn absent<M: MessageQueue>(size: u64) -> Option<Absent> {
    let error = M::make(size as usize).err()?;
    Some(Absent {
        reason: error.to_string(),
        package: M::PACKAGE,
    })
}

/// What the user can do about an absent contestant.
fn hint(peer: &Peer) -> &'static str {
    if peer.name == BASE {
        "; `sysctl fs.mqueue.msgsize_max=65536` admits them, and `ulimit -q unlimited` as many as needed"
    } else {
        ""
    }
}

impl Scenario for MessageThroughput {
    fn name(&self) -> &'static str {
        "message-throughput"
    }

    fn about(&self) -> &'static str {
        "messages from one task to another, streaming or there and back, and among many; ns per message or round trip"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &NPTL,
            place: ", pages 26 to 30",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        BASE
    }

    fn contestants(&self) -> Vec<Contestant> {
        let contestant = |peer: &Peer| Contestant {
            name: peer.name,
            absent: (peer.absent)(SIZES[0]),
        };
        PEERS.iter().map(contestant).collect()
    }

    fn varies_tasks(&self) -> bool {
        true
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let (sizes, kinds): (&[u64], &[Kind]) = if plan.quick {
            (&QUICK_SIZES, &[Kind::Processes])
        } else {
            (&SIZES, &[Kind::Processes, Kind::Threads])
        };
        let peers: Vec<&Peer> = PEERS
            .iter()
            .filter(|peer| plan.wants(BASE, peer.name) && (peer.absent)(SIZES[0]).is_none())
            .collect();
        let mut unable = Vec::new();
        for peer in &peers {
            for &size in sizes {
                if let Some(absent) = (peer.absent)(size) {
                    prepared.warnings.push(Warning::Skipped {
                        text: format!(
                            "{} with {size} bytes skipped: {absent}{}",
                            peer.name,
                            hint(peer)
                        ),
                    });
                    unable.push((peer.name, size));
                }
            }
        }
        let counts: &[u32] = match (&plan.tasks[..], plan.quick) {
            ([], false) => &TASKS,
            ([], true) => &QUICK_TASKS,
            (counts, _) => counts,
        };
        let mut exchanges = Vec::new();
        for &kind in kinds {
            for &tasks in counts {
                match tasks {
                    // One task cannot be sender and receiver.
                    0 | 1 => {}
                    2 => exchanges.extend(between_two(kind, sizes, &mut prepared.warnings)),
                    _ => exchanges.extend(among_many(kind, tasks)),
                }
            }
        }
        for exchange in exchanges {
            let params = exchange.params();
            let able = |peer: &&&Peer| {
                let one_cpu = exchange.placement == Placement::SameCpu;
                peer.modes.contains(&exchange.mode)
                    && !(peer.spins && one_cpu)
                    && (peer.carries || exchange.case.is_none())
                    && (peer.many || exchange.tasks() == 2)
                    && !unable.contains(&(peer.name, exchange.size))
            };
            prepared
                .cases
                .extend(peers.iter().filter(able).map(|peer| Case {
                    contestant: peer.name,
                    params: params.clone(),
                    group: params.clone(),
                    is_base: peer.name == BASE,
                    unit: Unit::Ns,
                    further: Vec::new(),
                    sampler: (peer.sampler)(exchange, plan.sample),
                }));
        }
        prepared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Variant;

    /// Takes a sample of a message or two.
    fn try_out(peer: &Peer, exchange: Exchange) {
        let mut sample = (peer.sampler)(exchange, Duration::ZERO);
        sample().unwrap_or_else(|error| panic!("{}, {}: {error}", peer.name, exchange.params()));
    }

    #[test]
    fn all_messages_arrive_through_each_queue() {
        for peer in PEERS
            .iter()
            .filter(|peer| (peer.absent)(1024).is_none() && !peer.spins)
        {
            for kind in [Kind::Threads, Kind::Processes] {
                for (&mode, computed) in peer.modes.iter().zip([false, true].into_iter().cycle()) {
                    let computed = computed || kind == Kind::Threads;
                    let exchange = Exchange {
                        kind,
                        mode,
                        placement: Placement::SameCpu,
                        size: 1024,
                        case: computed.then_some(Variant::Computed),
                        senders: 1,
                        receivers: 1,
                    };
                    try_out(peer, exchange);
                }
                if peer.many {
                    among_many(kind, 5).for_each(|exchange| try_out(peer, exchange));
                }
            }
        }
    }
}
