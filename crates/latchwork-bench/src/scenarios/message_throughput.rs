//! What it costs to pass messages from one task to another: as many as possible in one direction, and
//! there and back one at a time.
//!
//! Source: the talk "Recent new features in NPTL" (CELF Technical Jamboree 16, 2007), pages 26 to 30:
//! a queue of robust mutex and condition variable ("mu/cv"), one with a semaphore ("mu/sm"), and the POSIX
//! message queue, which was best there.
//!
//! One sender and one receiver, threads or forked processes, on CPUs of their own; round trips also on
//! one CPU, where each must wait for the other to sleep. Ten messages may be under way. What copies does so
//! from and into a buffer of the task's own; what is passed in place is written where it lies, and read
//! there, a byte of each cache line; of what is handed over, only the first byte is touched.
//!
//! The largest messages are also *computed*: the sender writes each byte of a message, the receiver adds
//! up all. Who copies does so in its own buffer, and copies besides; in place, and handed over, it
//! is all that is done.
//!
//! Left out: what cannot be. The floor that spins needs two CPUs, the one that copies has no way back.

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

/// Messages, or round trips, after which both tasks surely run.
const IN_STEP: u64 = 20;

const BASE: &str = "posix-mq";

/// A contestant: its name, its sampler, and why it cannot take part.
struct Peer {
    name: &'static str,
    sampler: fn(Exchange) -> Sampler,
    /// Why it cannot take part with messages of a size.
    absent: fn(u64) -> Option<Absent>,
    /// In which modes it makes sense.
    modes: &'static [Mode],
    /// It keeps its CPU while it waits.
    spins: bool,
    /// It passes something on.
    carries: bool,
}

const fn peer<M: Mail>(name: &'static str, modes: &'static [Mode]) -> Peer {
    Peer {
        name,
        sampler: sampler::<M>,
        absent: absent::<M>,
        modes,
        spins: false,
        carries: true,
    }
}

const BOTH: &[Mode] = &[Mode::Stream, Mode::RoundTrip];
const STREAM: &[Mode] = &[Mode::Stream];

const PEERS: &[Peer] = &[
    peer::<mail::Copied>("latchwork queue", BOTH),
    peer::<mail::InPlace>("latchwork queue-in-place", BOTH),
    peer::<mail::HandedOver>("latchwork queue-handed-over", BOTH),
    peer::<mail::Batched>("latchwork queue-batched", STREAM),
    peer::<mail::Ring>("latchwork queue-spsc", BOTH),
    peer::<mail::RingInPlace>("latchwork queue-spsc-in-place", BOTH),
    peer::<mail::RingBatched>("latchwork queue-spsc-batched", STREAM),
    peer::<mail::PosixMq>(BASE, BOTH),
    peer::<mail::MutexCond>("mutex+cond", BOTH),
    peer::<mail::MutexSem>("mutex+sem", BOTH),
    peer::<mail::Pipe>("pipe", BOTH),
    peer::<mail::SeqPacket>("unix-seqpacket", BOTH),
    peer::<mail::Boost>("boost-queue", BOTH),
    Peer {
        spins: true,
        ..peer::<mail::SpinningRing>("floor ring", BOTH)
    },
    Peer {
        carries: false,
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

/// What helps one that cannot take part.
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
        "messages from one task to another, streaming or there and back; ns per message or round trip"
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

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let cpus = machine::cpus();
        let mut ways = vec![(Mode::RoundTrip, Placement::SameCpu, [cpus[0]; 2])];
        if cpus.len() > 1 {
            let two = [cpus[0], cpus[1]];
            ways.push((Mode::Stream, Placement::DifferentCpu, two));
            ways.push((Mode::RoundTrip, Placement::DifferentCpu, two));
        } else {
            ways.push((Mode::Stream, Placement::SameCpu, [cpus[0]; 2]));
            prepared.warnings.push(Warning::FewCpus {
                text: "1 CPU: tasks on different CPUs are left out".into(),
            });
        }
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
        let largest = *sizes.last().expect("there are sizes");
        let plain = sizes.iter().map(|&size| (size, None));
        let exchanges = plain.chain([(largest, Some(Variant::Computed))]);
        for &kind in kinds {
            for &(mode, placement, cpus) in &ways {
                for (size, case) in exchanges.clone() {
                    if case.is_some() && mode != Mode::Stream {
                        continue;
                    }
                    let params = Params {
                        kind: Some(kind),
                        mode: Some(mode),
                        placement: Some(placement),
                        size: Some(size),
                        case,
                        ..Params::default()
                    };
                    let able = |peer: &&&Peer| {
                        let one_cpu = placement == Placement::SameCpu;
                        peer.modes.contains(&mode)
                            && !(peer.spins && one_cpu)
                            && (peer.carries || case.is_none())
                            && !unable.contains(&(peer.name, size))
                    };
                    prepared.cases.extend(peers.iter().filter(able).map(|peer| {
                        let exchange = Exchange {
                            kind,
                            mode,
                            cpus,
                            size: size as usize,
                            computed: case.is_some(),
                            sample: plan.sample,
                        };
                        Case {
                            contestant: peer.name,
                            params: params.clone(),
                            group: params.clone(),
                            is_base: peer.name == BASE,
                            unit: Unit::Ns,
                            beside: Vec::new(),
                            sampler: (peer.sampler)(exchange),
                        }
                    }));
                }
            }
        }
        prepared
    }
}

/// Who exchanges what.
#[derive(Clone, Copy)]
struct Exchange {
    kind: Kind,
    mode: Mode,
    cpus: [usize; 2],
    size: usize,
    /// Each byte is written and read.
    computed: bool,
    sample: Duration,
}

fn sampler<M: Mail>(exchange: Exchange) -> Sampler {
    let mut pace = Pace::new(exchange.sample);
    Box::new(move || {
        let figure = pace.ns(|messages| {
            let scene = Scene::<M> {
                there: M::make(exchange.size)?,
                back: match exchange.mode {
                    Mode::Stream => None,
                    Mode::RoundTrip => Some(M::make(exchange.size)?),
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
                extra: vec![("mb_per_s", exchange.size as f64 / figure * 1000.0)],
            },
            Mode::RoundTrip => figure.into(),
        })
    })
}

struct Scene<M> {
    there: M,
    back: Option<M>,
    start: Place<Start>,
    nanoseconds: Place<AtomicU64>,
    exchange: Exchange,
    messages: u64,
}

impl<M: Mail> Scene<M> {
    fn run(&self) -> io::Result<Duration> {
        match self.exchange.kind {
            Kind::Threads => thread::scope(|scope| {
                let spawn = |number| {
                    let spawned =
                        thread::Builder::new().spawn_scoped(scope, move || self.live(number));
                    spawned.inspect_err(|_| self.start.give_up())
                };
                let threads = [spawn(0)?, spawn(1)?];
                threads.into_iter().try_for_each(|thread| {
                    let ended = thread.join();
                    ended.unwrap_or_else(|_| Err(io::Error::other("a task panicked")))
                })
            })?,
            Kind::Processes | Kind::Coprocs => {
                let fork = |number| Child::fork(|| i32::from(self.live(number).is_err()));
                process::wait_all(vec![fork(0)?, fork(1)?])?;
            }
        }
        // Relaxed: the tasks have ended.
        Ok(Duration::from_nanos(
            self.nanoseconds.load(Ordering::Relaxed),
        ))
    }

    /// The life of the one who begins (0), or of the other (1).
    fn live(&self, number: usize) -> io::Result<()> {
        pin_to(self.exchange.cpus[number]).inspect_err(|_| self.start.give_up())?;
        let time = match (self.exchange.mode, number) {
            (Mode::Stream, 0) => return self.send(),
            (Mode::Stream, _) => self.receive(),
            (Mode::RoundTrip, 0) => self.ask(),
            (Mode::RoundTrip, _) => return self.answer(),
        }?;
        // Relaxed: looked at when this task has ended.
        let nanoseconds = time.as_nanos() as u64;
        self.nanoseconds.store(nanoseconds, Ordering::Relaxed);
        Ok(())
    }

    fn buffer(&self) -> Vec<u8> {
        vec![7; self.exchange.size]
    }

    fn send(&self) -> io::Result<()> {
        let mut sender = self.there.sender().inspect_err(|_| self.start.give_up())?;
        let mut message = self.buffer();
        self.start.wait_for(2)?;
        let times = IN_STEP + self.messages;
        if self.exchange.computed {
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
            if self.exchange.computed {
                receiver.receive_computed(&mut buffer, times)
            } else {
                receiver.receive(&mut buffer, times)
            }
        };
        self.start.wait_for(2)?;
        receive(IN_STEP)?;
        let started = Instant::now();
        receive(self.messages)?;
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
        self.start.wait_for(2)?;
        ask(IN_STEP)?;
        let started = Instant::now();
        ask(self.messages)?;
        Ok(started.elapsed())
    }

    fn answer(&self) -> io::Result<()> {
        let ends = self.ends(self.back.as_ref(), Some(&self.there));
        let (mut sender, mut receiver) = ends.inspect_err(|_| self.start.give_up())?;
        let (message, mut buffer) = (self.buffer(), self.buffer());
        self.start.wait_for(2)?;
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

    #[test]
    fn all_messages_arrive_by_every_way() {
        let cpu = machine::cpus()[0];
        for peer in PEERS
            .iter()
            .filter(|peer| (peer.absent)(1024).is_none() && !peer.spins)
        {
            for kind in [Kind::Threads, Kind::Processes] {
                for (&mode, computed) in peer.modes.iter().zip([false, true].into_iter().cycle()) {
                    let mut sample = (peer.sampler)(Exchange {
                        kind,
                        mode,
                        cpus: [cpu; 2],
                        size: 1024,
                        computed: computed || kind == Kind::Threads,
                        sample: Duration::ZERO,
                    });
                    sample().unwrap();
                }
            }
        }
    }
}
