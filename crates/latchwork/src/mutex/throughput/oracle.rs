//! Asking the scheduler who runs: an oracle for waiters, switched on by the program ([`enable_bpf`]).
//!
//! Without it a top waiter guesses whether the holder runs: within a process from the holder's CPU clock,
//! looked at twice; between processes not at all, so that it stops polling after some 20 µs. With it, some
//! twenty instructions run in the kernel at each switch of tasks (BPF, at the tracepoint `sched_switch`),
//! and write into memory that this process maps who has which processor; a look is a few loads.
//!
//! | value of a processor | meaning | written by |
//! | --- | --- | --- |
//! | lower half | the ID of the task that has it; 0: none | that processor, in the middle of a switch, by one store |
//! | upper half | how often that was written | the same |
//!
//! Invariants
//! 1. A processor's value is written by that processor alone, with interrupts off: at each switch; and
//!    once at the beginning, when switches are noted already, in an interrupt, which finds who runs there
//!    since before. (One that is not online begins with nobody: whoever comes first does so by a switch.)
//! 2. A task is in one value at most: it leaves a processor by a switch there before another one takes it.
//!
//! *A look* goes over all processors, that on which the task was last found first. Who is found runs, or
//! is in the middle of a switch. Who is not found may have moved, from a processor that was yet to be
//! looked at to one that had been; so the look is repeated until the counts add up to the same twice.
//! Counts only grow: nothing has changed between the two, so there was a moment when the task was nowhere.
//! After four times the answer is "unknown", and the waiter does as without this oracle.
//!
//! *Orderings:* a processor that takes a task sees, by the scheduler's own locks, that it has left the one
//! before. The loads of a look are Acquire: they happen in their order.
//!
//! *Exact* for every task of the machine, so between processes too. *Not exact:* the hypervisor of a
//! virtual machine may have stopped a processor whose task "runs"; an interrupt counts as the task that it
//! interrupts; an ID is one of the machine's own PID namespace, where this process has to be (it is refused
//! elsewhere, and a child that goes elsewhere is not answered), and it may be used again. Nothing depends
//! on an answer but how long a waiter polls.
//!
//! *Hostile events.* The program leaves the kernel when the last copy of its descriptor is closed: when this
//! process and the children of its forks have ended, by whatever death, or executed other programs. A child
//! of a fork goes on reading the same map, after it has found at its first look that it has the descriptor
//! and is in the same PID namespace; one that has closed it is not answered. Who closes it after that look
//! and outlives all others that have it reads a map that nobody writes any more: its waiters poll too
//! long, up to the threshold, or too short. A look allocates nothing and takes no lock: a signal handler
//! may make one.
//!
//! *Cost:* 64 bytes a processor. On 2 processors of a virtual machine 4 ns for a look at a task that is
//! where it was, 7 at one that is nowhere (every further processor is a load or two); some 50 ns of 850
//! for each switch of tasks on the machine, whoever they belong to. Each process that enables it loads its
//! own program.
//!
//! *What it brings:* there, with 4 tasks and sections of 20 and 200 µs, between threads or processes,
//! nothing: 0.94 to 1.02 of the sections in the same time, in noise of ±5 %. It is for who has more
//! processors, or wants waiters between processes not to guess.
//!
//! *Checked by:* unit tests (a task that moves while it is looked for), `tests/oracle.rs`,
//! `tests/oracle_refused.rs`. In the models nobody is asked.
#![allow(unsafe_code)]

use super::owner::Runs;
use crate::atomic::{AtomicPtr, AtomicU32, Ordering};
use crate::sys::bpf::{self, Slot, program, types};
use crate::sys::{memory, thread};
use core::ptr;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// Why the scheduler cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OracleError {
    /// The process lacks CAP_BPF or CAP_PERFMON; a sandbox may also forbid it.
    #[error("the process may not load programs into the kernel: it lacks CAP_BPF and CAP_PERFMON")]
    NotPermitted,
    /// The IDs that the kernel's program sees are not those that this process knows.
    #[error("the process is in a PID namespace of its own, where task IDs are not the machine's")]
    PidNamespace,
    /// The kernel is built without BPF, or without a description of its types.
    #[error("the kernel lacks what it takes ({0})")]
    Unsupported(&'static str),
    /// The system refused a step.
    #[error("{step}: {error}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The answer.
        error: Errno,
    },
}

/// Names the step that failed.
fn at(step: &'static str) -> impl Fn(Errno) -> OracleError {
    move |error| match error {
        Errno::PERM | Errno::ACCESS => OracleError::NotPermitted,
        Errno::NOSYS | Errno::NOENT => OracleError::Unsupported(step),
        error => OracleError::System { step, error },
    }
}

/// An oracle that runs. Never freed: a look may be under way anywhere.
struct Live {
    slots: &'static [Slot],
    /// Held, here and by the children of forks, as long as the program is to run.
    link: OwnedFd,
    link_id: u32,
    /// Whether this very process may ask: [`MAY`], [`MAY_NOT`], or 0 if that was not looked into, as in
    /// the child of a fork, where it reads 0 again.
    here: &'static AtomicU32,
}

const MAY: u32 = 1;
const MAY_NOT: u32 = 2;

/// Null as long as no oracle was enabled.
static LIVE: AtomicPtr<Live> = AtomicPtr::new(ptr::null_mut());

/// The oracle of this process.
#[inline]
fn live() -> Option<&'static Live> {
    // Acquire: pairs with the Release in `enable_bpf`.
    let live = LIVE.load(Ordering::Acquire);
    // SAFETY: null, or from a box that is never freed.
    unsafe { live.as_ref() }.filter(|live| live.may_answer())
}

impl Live {
    #[inline]
    fn may_answer(&self) -> bool {
        // Relaxed: a fact about this process, which each thread finds alike.
        match self.here.load(Ordering::Relaxed) {
            0 => self.look_into_it(),
            known => known == MAY,
        }
    }

    #[cold]
    fn look_into_it(&self) -> bool {
        let has_link = bpf::link_id(self.link.as_fd()) == Ok(self.link_id);
        let may = has_link && is_root_namespace();
        self.here
            .store(if may { MAY } else { MAY_NOT }, Ordering::Relaxed);
        may
    }
}

fn is_root_namespace() -> bool {
    memory::pid_namespace() == Ok(memory::ROOT_PID_NAMESPACE)
}

/// Has this process's throughput locks, plain and robust, ask the scheduler whether a holder runs. A
/// second call does nothing.
///
/// Explicit, since it costs the whole machine a little at each switch of tasks; what it brings stands in
/// the [module](self). Needs CAP_BPF and CAP_PERFMON, or root, at this moment only; Linux 5.10; and the
/// machine's own PID namespace. It stays until the process ends. Fork: the child keeps it, within the
/// limits that the module names. Takes some 30 ms, and allocates.
///
/// ```no_run
/// use latchwork::mutex::throughput::oracle;
///
/// if let Err(why) = oracle::enable_bpf() {
///     eprintln!("waiters guess whether a holder runs: {why}");
/// }
/// ```
///
/// # Errors
/// [`OracleError`]: waiters go on as before.
pub fn enable_bpf() -> Result<(), OracleError> {
    let before = LIVE.load(Ordering::Relaxed);
    if live().is_some() {
        return Ok(());
    }
    let new = Box::into_raw(Box::new(Parts::prepare()?.start()?));
    // Release: pairs with the Acquire in `live`. One that is replaced, in a child that could not use its
    // parent's, may still be looked at: it stays.
    if LIVE
        .compare_exchange(before, new, Ordering::Release, Ordering::Relaxed)
        .is_err()
    {
        // Another thread was faster. Its one will do; this one's program goes with its descriptor.
        // SAFETY: from a box, and nobody else has seen it.
        drop(unsafe { Box::from_raw(new) });
    }
    Ok(())
}

/// Whether a task runs at this moment, by its thread ID, as the oracle of [`enable_bpf`] knows it. `None` if
/// there is none, if it may not be asked here, or if the machine switches tasks too fast for an answer.
///
/// For tests and diagnosis: the answer may be stale before it arrives. An ID that nobody has does not
/// run.
#[must_use]
pub fn runs(thread: u32) -> Option<bool> {
    match Look::default().at(thread) {
        Runs::Yes => Some(true),
        Runs::No => Some(false),
        Runs::Unknown => None,
    }
}

/// Whether it could be enabled: everything but the start is tried.
pub(crate) fn can_enable() -> Result<(), OracleError> {
    Parts::prepare().map(drop)
}

/// Loaded, and not running.
struct Parts {
    map: OwnedFd,
    cpus: u32,
    at_switch: OwnedFd,
    in_interrupt: OwnedFd,
}

impl Parts {
    fn prepare() -> Result<Self, OracleError> {
        if !is_root_namespace() {
            return Err(OracleError::PidNamespace);
        }
        let cpus = bpf::possible_cpus().map_err(at("counting the processors"))?;
        let map = bpf::create_map(cpus).map_err(at("making a BPF map"))?;
        let offset = types::offset_of_task_id().map_err(at("reading the kernel's types"))?;
        let load = |program: &[_]| bpf::load(program).map_err(at("loading a BPF program"));
        Ok(Self {
            cpus,
            at_switch: load(&program::at_switch(map.as_fd(), offset))?,
            in_interrupt: load(&program::in_interrupt(map.as_fd()))?,
            map,
        })
    }

    fn start(&self) -> Result<Live, OracleError> {
        let link =
            bpf::at_each_switch(self.at_switch.as_fd()).map_err(at("attaching a BPF program"))?;
        let link_id = bpf::link_id(link.as_fd()).map_err(at("asking for the BPF link"))?;
        let slots = bpf::map_slots(self.map.as_fd(), self.cpus).map_err(at("mapping a BPF map"))?;
        let begun = self.find_who_runs(slots).and_then(|()| {
            bpf::protect_slots(slots).map_err(at("protecting the map"))?;
            thread::map_wipe_on_fork().map_err(at("mapping a page"))
        });
        match begun {
            Ok(page) => {
                // SAFETY: zeroed memory, aligned to a page, that is never unmapped.
                let here = unsafe { page.cast::<AtomicU32>().as_ref() };
                Ok(Live {
                    slots,
                    link,
                    link_id,
                    here,
                })
            }
            Err(error) => {
                // SAFETY: nobody else knows them yet.
                unsafe { bpf::unmap_slots(slots) };
                Err(error)
            }
        }
    }

    /// Establishes invariant 1 for those who run since before the start.
    fn find_who_runs(&self, slots: &[Slot]) -> Result<(), OracleError> {
        /// Counted once, and nobody there.
        const EMPTY: u64 = 1 << 32;
        for (cpu, slot) in slots.iter().enumerate() {
            match bpf::run_on(self.in_interrupt.as_fd(), cpu as u32) {
                Ok(()) => {}
                // Not online. Relaxed: if it has come since, its own first word on it stays, or comes.
                Err(Errno::NXIO) => {
                    let (none, relaxed) = (0, Ordering::Relaxed);
                    let _ = slot.0.compare_exchange(none, EMPTY, relaxed, relaxed);
                }
                Err(error) => return Err(at("running a BPF program")(error)),
            }
        }
        Ok(())
    }
}

/// Repetitions of a look after which the answer is "unknown".
const LOOKS: u32 = 4;

/// Where a task was last found.
#[derive(Default)]
pub(super) struct Look {
    cpu: usize,
}

impl Look {
    /// Whether a task runs.
    #[inline]
    pub(super) fn at(&mut self, thread: u32) -> Runs {
        let Some(Live { slots, .. }) = live() else {
            return Runs::Unknown;
        };
        // Acquire: see the orderings in the head of this file.
        self.among(slots.len(), thread, |cpu| {
            slots[cpu].0.load(Ordering::Acquire)
        })
    }

    /// The same, of so many processors with these values.
    fn among(&mut self, cpus: usize, thread: u32, mut value: impl FnMut(usize) -> u64) -> Runs {
        let is_there = |value: u64| value as u32 == thread;
        // 0 is nobody's ID, and that of a processor without a task.
        if thread == 0 {
            return Runs::No;
        }
        if is_there(value(self.cpu)) {
            return Runs::Yes;
        }
        let mut before = None;
        for _ in 0..LOOKS {
            let mut changes = 0_u64;
            for cpu in 0..cpus {
                let value = value(cpu);
                if is_there(value) {
                    self.cpu = cpu;
                    return Runs::Yes;
                }
                changes = changes.wrapping_add(value >> 32);
            }
            if before.replace(changes) == Some(changes) {
                return Runs::No;
            }
        }
        Runs::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three processors, and what happens on them from one load to the next.
    struct Machine {
        values: [u64; 3],
        loads: usize,
    }

    impl Machine {
        fn new(tasks: [u64; 3]) -> Self {
            Self {
                values: tasks.map(|task| 7 << 32 | task),
                loads: 0,
            }
        }

        fn switch(&mut self, cpu: usize, task: u64) {
            self.values[cpu] = ((self.values[cpu] >> 32) + 1) << 32 | task;
        }

        /// Looks for a task. `happens` before each load, which it is told the number of.
        fn look(
            mut self,
            look: &mut Look,
            thread: u32,
            happens: impl Fn(&mut Self, usize),
        ) -> Runs {
            look.among(3, thread, |cpu| {
                let number = self.loads;
                happens(&mut self, number);
                self.loads += 1;
                self.values[cpu]
            })
        }
    }

    #[test]
    fn a_task_runs_if_a_processor_has_it() {
        let mut look = Look::default();
        let mut find = |task| Machine::new([0, 12, 34]).look(&mut look, task, |_, _| ());
        assert_eq!(find(34), Runs::Yes);
        assert_eq!(find(12), Runs::Yes);
        assert_eq!(find(3), Runs::No);
        assert_eq!(find(0), Runs::No, "nobody");
        assert_eq!(find(7), Runs::No, "a count is no task");
        assert_eq!(look.cpu, 1, "where it was found");
    }

    #[test]
    fn a_task_that_moves_while_it_is_looked_for_is_not_said_to_be_off() {
        const MOVES: usize = 14;
        for at in (0..MOVES * MOVES * 27).map(|all| [all / 27 % MOVES, all / 27 / MOVES, all % 27])
        {
            let [first, second, places] = at;
            let [from, via, to] = [places % 3, places / 3 % 3, places / 9];
            let mut machine = Machine::new([0; 3]);
            machine.switch(from, 5);
            let answer = machine.look(&mut Look::default(), 5, |machine, load| {
                for (moment, from, to) in [(first, from, via), (second, via, to)] {
                    if load == moment && first < second && from != to {
                        // One that follows at once: the task is away at no moment of the look's.
                        machine.switch(from, 0);
                        machine.switch(to, 5);
                    }
                }
            });
            assert_ne!(answer, Runs::No, "{at:?}");
        }
    }

    #[test]
    fn where_switches_never_end_it_cannot_be_said() {
        let busy = |machine: &mut Machine, load| machine.switch(load % 3, 9);
        let look = |happens: fn(&mut Machine, usize)| {
            Machine::new([0; 3]).look(&mut Look::default(), 5, happens)
        };
        assert_eq!(look(busy), Runs::Unknown);
        assert_eq!(look(|_, _| ()), Runs::No);
    }

    #[test]
    fn from_the_start_something_is_known_of_every_processor() {
        let live = match Parts::prepare().and_then(|parts| parts.start()) {
            Ok(live) => live,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        for (cpu, slot) in live.slots.iter().enumerate() {
            assert_ne!(slot.0.load(Ordering::Relaxed) >> 32, 0, "processor {cpu}");
        }
    }
}
