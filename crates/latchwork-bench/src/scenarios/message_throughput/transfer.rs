//! One sample: the tasks of an exchange transfer messages, and one of them measures the time.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::exchange::Exchange;
use crate::measure::{Pace, Sample, Sampler};
use crate::peers::SharedPage;
use crate::peers::process::{self, Child};
use crate::peers::queues::{MessageQueue, Receives, Sends};
use crate::result::{Kind, Mode};
use crate::scenarios::start::Start;

/// Messages from each sender to each receiver, or round trips, after which all tasks certainly run.
const IN_STEP: u64 = 20;

pub(super) fn sampler<M: MessageQueue>(exchange: Exchange, sample: Duration) -> Sampler {
    let mut pace = Pace::new(sample);
    Box::new(move || {
        let size = exchange.size as usize;
        let figure = pace.ns(|messages| {
            let transfer = Transfer::<M> {
                requests: M::make(size)?,
                replies: match exchange.mode {
                    Mode::Stream => None,
                    Mode::RoundTrip => Some(M::make(size)?),
                },
                start: SharedPage::new(Start::default())?,
                nanoseconds: SharedPage::new(AtomicU64::new(0))?,
                exchange,
                messages,
            };
            transfer.run()
        })?;
        Ok(match exchange.mode {
            Mode::Stream => Sample {
                figure,
                extra: vec![("mb_per_s", size as f64 / figure * 1000.0)],
                timed: None,
            },
            Mode::RoundTrip => figure.into(),
        })
    })
}

struct Transfer<M> {
    requests: M,
    replies: Option<M>,
    start: SharedPage<Start>,
    /// The longest time of a task.
    nanoseconds: SharedPage<AtomicU64>,
    exchange: Exchange,
    messages: u64,
}

impl<M: MessageQueue> Transfer<M> {
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
            (Mode::RoundTrip, true) => self.round_trips(),
            (Mode::RoundTrip, false) => return self.reply(),
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
        let mut sender = self
            .requests
            .sender()
            .inspect_err(|_| self.start.give_up())?;
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
        let receiver = self.requests.receiver();
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

    fn round_trips(&self) -> io::Result<Duration> {
        let ends = self.ends(Some(&self.requests), self.replies.as_ref());
        let (mut sender, mut receiver) = ends.inspect_err(|_| self.start.give_up())?;
        let (message, mut buffer) = (self.buffer(), self.buffer());
        let mut round_trips = |times| {
            (0..times).try_for_each(|_| {
                sender.send(&message, 1)?;
                receiver.receive(&mut buffer, 1)
            })
        };
        self.meet()?;
        round_trips(IN_STEP)?;
        let started = Instant::now();
        round_trips(self.messages)?;
        Ok(started.elapsed())
    }

    fn reply(&self) -> io::Result<()> {
        let ends = self.ends(self.replies.as_ref(), Some(&self.requests));
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
        input: Option<&'a M>,
    ) -> io::Result<(M::Sender<'a>, M::Receiver<'a>)> {
        let one_way = || io::Error::other("a stream has one direction only");
        let (out, input) = (out.ok_or_else(one_way)?, input.ok_or_else(one_way)?);
        Ok((out.sender()?, input.receiver()?))
    }
}
