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

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::start::Start;
use super::{Prepared, Scenario};
use crate::contestant::{Absent, Contestant};
use crate::machine;
use crate::measure::{Case, Pace, Sample, Sampler};
use crate::peers::mail::{self, Mail, Receives, Sends};
use crate::peers::process::{self, Child};
use crate::peers::{Place, pin_to};
use crate::plan::Plan;
use crate::result::{Kind, Mode, Params, Placement, Unit, Variant, Warning};

pub(super) struct MessageThroughput;

const SIZES: [u64; 6] = [1, 64, 256, 1024, 4096, 65_536];
const QUICK_SIZES: [u64; 3] = [64, 1024, 65_536];
/// The sizes if there are several senders or receivers.
const SIZES_AMONG_MANY: [u64; 2] = [64, 1024];

/// One sender and one receiver are two tasks.
const TASKS: [u32; 3] = [2, 4, 8];
const QUICK_TASKS: [u32; 2] = [2, 4];

/// Messages from each sender to each receiver, or round trips, after which all tasks certainly run.
const IN_STEP: u64 = 20;

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

const fn peer<M: Mail>(name: &'static str, modes: &'static [Mode]) -> Peer {
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
    peer::<mail::Copied>("latchwork queue", BOTH),
    peer::<mail::InPlace>("latchwork queue-in-place", BOTH),
    peer::<mail::HandedOver>("latchwork queue-handed-over", BOTH),
    peer::<mail::Batched>("latchwork queue-batched", STREAM),
    one_to_one(peer::<mail::Ring>("latchwork queue-spsc", BOTH)),
    one_to_one(peer::<mail::RingInPlace>(
        "latchwork queue-spsc-in-place",
        BOTH,
    )),
    one_to_one(peer::<mail::RingBatched>(
        "latchwork queue-spsc-batched",
        STREAM,
    )),
    peer::<mail::PosixMq>(BASE, BOTH),
    peer::<mail::MutexCond>("mutex+cond", BOTH),
    peer::<mail::MutexSem>("mutex+sem", BOTH),
    peer::<mail::Pipe>("pipe", BOTH),
    peer::<mail::SeqPacket>("unix-seqpacket", BOTH),
    peer::<mail::Boost>("boost-queue", BOTH),
    Peer {
        spins: true,
        many: false,
        ..peer::<mail::SpinningRing>("floor ring", BOTH)
    },
    Peer {
        carries: false,
        many: false,
        ..peer::<mail::Memcpy>("floor memcpy", STREAM)
    },
];

fn absent<M: Mail>(size: u64) -> Option<Absent> {
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
                    beside: Vec::new(),
                    sampler: (peer.sampler)(exchange, plan.sample),
                }));
        }
        prepared
    }
}

/// One sender and one receiver.
fn between_two(kind: Kind, sizes: &[u64], warnings: &mut Vec<Warning>) -> Vec<Exchange> {
    let mut ways = vec![(Mode::RoundTrip, Placement::SameCpu)];
    if machine::cpus().len() > 1 {
        ways.push((Mode::Stream, Placement::DifferentCpu));
        ways.push((Mode::RoundTrip, Placement::DifferentCpu));
    } else {
        ways.push((Mode::Stream, Placement::SameCpu));
        let text = "1 CPU: tasks on different CPUs are left out".into();
        let warning = Warning::FewCpus { text };
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    let plain = sizes.iter().map(|&size| (size, None));
    let largest = sizes.last().map(|&size| (size, Some(Variant::Computed)));
    let mut exchanges = Vec::new();
    for (mode, placement) in ways {
        let fits = |(_, case): &(u64, Option<Variant>)| case.is_none() || mode == Mode::Stream;
        let sized = plain.clone().chain(largest).filter(fits);
        exchanges.extend(sized.map(|(size, case)| Exchange {
            kind,
            mode,
            placement,
            size,
            case,
            senders: 1,
            receivers: 1,
        }));
    }
    exchanges
}

/// Several senders, several receivers, or both.
fn among_many(kind: Kind, tasks: u32) -> impl Iterator<Item = Exchange> {
    let shapes = [
        (Variant::ManyToOne, tasks - 1),
        (Variant::OneToMany, 1),
        (Variant::ManyToMany, tasks / 2),
    ];
    shapes.into_iter().flat_map(move |(case, senders)| {
        SIZES_AMONG_MANY.into_iter().map(move |size| Exchange {
            kind,
            mode: Mode::Stream,
            placement: Placement::Free,
            size,
            case: Some(case),
            senders,
            receivers: tasks - senders,
        })
    })
}

/// The tasks and messages of a case.
#[derive(Clone, Copy)]
struct Exchange {
    kind: Kind,
    mode: Mode,
    placement: Placement,
    size: u64,
    case: Option<Variant>,
    senders: u32,
    receivers: u32,
}

impl Exchange {
    fn params(&self) -> Params {
        Params {
            kind: Some(self.kind),
            mode: Some(self.mode),
            placement: Some(self.placement),
            size: Some(self.size),
            tasks: Some(self.tasks()).filter(|tasks| *tasks > 2),
            case: self.case,
            ..Params::default()
        }
    }

    fn tasks(&self) -> u32 {
        self.senders + self.receivers
    }

    /// Whether each byte is written and read.
    fn is_computed(&self) -> bool {
        self.case == Some(Variant::Computed)
    }

    /// How many messages go from each sender to each receiver, on average, so that there are at least `messages` in
    /// total.
    fn share(&self, messages: u64) -> u64 {
        messages.div_ceil(u64::from(self.senders * self.receivers))
    }

    /// Places the task with this number on its CPU.
    fn place(&self, number: u32) -> io::Result<()> {
        let cpus = machine::cpus();
        match self.placement {
            Placement::SameCpu => pin_to(cpus[0]),
            Placement::DifferentCpu => pin_to(cpus[number as usize]),
            Placement::Free => Ok(()),
        }
    }
}

fn sampler<M: Mail>(exchange: Exchange, sample: Duration) -> Sampler {
    let mut pace = Pace::new(sample);
    Box::new(move || {
        let size = exchange.size as usize;
        let figure = pace.ns(|messages| {
            let scene = Scene::<M> {
                there: M::make(size)?,
                back: match exchange.mode {
                    Mode::Stream => None,
                    Mode::RoundTrip => Some(M::make(size)?),
                },
                start: Place::new(Start::default())?,
                nanoseconds: Place::new(AtomicU64::new(0))?,
                exchange,
                messages,
            };
            scene.run()
        })?;
        Ok(match exchange.mode {
            Mode::Stream => Sample {
                figure,
                extra: vec![("mb_per_s", size as f64 / figure * 1000.0)],
            },
            Mode::RoundTrip => figure.into(),
        })
    })
}

struct Scene<M> {
    there: M,
    back: Option<M>,
    start: Place<Start>,
    /// The longest time of a task.
    nanoseconds: Place<AtomicU64>,
    exchange: Exchange,
    messages: u64,
}

impl<M: Mail> Scene<M> {
    /// How long the messages took.
    fn run(&self) -> io::Result<Duration> {
        let numbers = 0..self.exchange.tasks();
        match self.exchange.kind {
            Kind::Threads => thread::scope(|scope| {
                let spawn = |number| {
                    let spawned =
                        thread::Builder::new().spawn_scoped(scope, move || self.live(number));
                    spawned.inspect_err(|_| self.start.give_up())
                };
                let threads = numbers.map(spawn).collect::<io::Result<Vec<_>>>()?;
                threads.into_iter().try_for_each(|thread| {
                    let ended = thread.join();
                    ended.unwrap_or_else(|_| Err(io::Error::other("a task panicked")))
                })
            })?,
            Kind::Processes | Kind::Coprocs => {
                let fork = |number| Child::fork(|| i32::from(self.live(number).is_err()));
                process::wait_all(numbers.map(fork).collect::<io::Result<_>>()?)?;
            }
        }
        // Relaxed: the tasks have ended.
        let took = Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed));
        let exchange = &self.exchange;
        let pairs = u64::from(exchange.senders * exchange.receivers);
        let all = exchange.share(self.messages) * pairs;
        Ok(took.mul_f64(self.messages as f64 / all as f64))
    }

    /// The function of a task that sends or begins, or (with a higher number) receives.
    fn live(&self, number: u32) -> io::Result<()> {
        let placed = self.exchange.place(number);
        placed.inspect_err(|_| self.start.give_up())?;
        let time = match (self.exchange.mode, number < self.exchange.senders) {
            (Mode::Stream, true) => return self.send(),
            (Mode::Stream, false) => self.receive(),
            (Mode::RoundTrip, true) => self.ask(),
            (Mode::RoundTrip, false) => return self.answer(),
        }?;
        // Relaxed: read after all tasks have ended.
        self.nanoseconds
            .fetch_max(time.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn meet(&self) -> io::Result<()> {
        self.start.wait_for(self.exchange.tasks() as usize)
    }

    fn buffer(&self) -> Vec<u8> {
        vec![7; self.exchange.size as usize]
    }

    fn send(&self) -> io::Result<()> {
        let mut sender = self.there.sender().inspect_err(|_| self.start.give_up())?;
        let mut message = self.buffer();
        self.meet()?;
        let share = self.exchange.share(self.messages);
        let times = (IN_STEP + share) * u64::from(self.exchange.receivers);
        if self.exchange.is_computed() {
            sender.send_computed(&mut message, times)
        } else {
            sender.send(&message, times)
        }
    }

    fn receive(&self) -> io::Result<Duration> {
        let receiver = self.there.receiver();
        let mut receiver = receiver.inspect_err(|_| self.start.give_up())?;
        let mut buffer = self.buffer();
        let mut receive = |times| {
            if self.exchange.is_computed() {
                receiver.receive_computed(&mut buffer, times)
            } else {
                receiver.receive(&mut buffer, times)
            }
        };
        self.meet()?;
        let senders = u64::from(self.exchange.senders);
        receive(IN_STEP * senders)?;
        let started = Instant::now();
        receive(self.exchange.share(self.messages) * senders)?;
        Ok(started.elapsed())
    }

    fn ask(&self) -> io::Result<Duration> {
        let ends = self.ends(Some(&self.there), self.back.as_ref());
        let (mut sender, mut receiver) = ends.inspect_err(|_| self.start.give_up())?;
        let (message, mut buffer) = (self.buffer(), self.buffer());
        let mut ask = |times| {
            (0..times).try_for_each(|_| {
                sender.send(&message, 1)?;
                receiver.receive(&mut buffer, 1)
            })
        };
        self.meet()?;
        ask(IN_STEP)?;
        let started = Instant::now();
        ask(self.messages)?;
        Ok(started.elapsed())
    }

    fn answer(&self) -> io::Result<()> {
        let ends = self.ends(self.back.as_ref(), Some(&self.there));
        let (mut sender, mut receiver) = ends.inspect_err(|_| self.start.give_up())?;
        let (message, mut buffer) = (self.buffer(), self.buffer());
        self.meet()?;
        (0..IN_STEP + self.messages).try_for_each(|_| {
            receiver.receive(&mut buffer, 1)?;
            sender.send(&message, 1)
        })
    }

    fn ends<'a>(
        &self,
        out: Option<&'a M>,
        back: Option<&'a M>,
    ) -> io::Result<(M::Sender<'a>, M::Receiver<'a>)> {
        let nowhere = || io::Error::other("there is one way only");
        let (out, back) = (out.ok_or_else(nowhere)?, back.ok_or_else(nowhere)?);
        Ok((out.sender()?, back.receiver()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes a sample of a message or two.
    fn try_out(peer: &Peer, exchange: Exchange) {
        let mut sample = (peer.sampler)(exchange, Duration::ZERO);
        sample().unwrap_or_else(|error| panic!("{}, {}: {error}", peer.name, exchange.params()));
    }

    #[test]
    fn all_messages_arrive_by_every_way() {
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
