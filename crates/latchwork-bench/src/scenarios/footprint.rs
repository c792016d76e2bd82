//! The size of a lock, and the code of its fast paths.
//!
//! Source: Ingo Molnár's introduction of the kernel's mutexes (2005): `struct mutex` takes 16 bytes, its fast paths
//! three instructions each (a locked decrement or increment, a branch, the return), of 6 bytes ([`published`]).
//!
//! Four cases. *size*: bytes of the lock, without data (for a System V semaphore, of its number). *text* and
//! *instructions*: those of a function that locks, and of one that unlocks, with the lock's own code inlined, in this
//! executable: see [`Executable::fast_path`] for what counts. A lock whose fast path calls a library has none of these
//! figures. *executed*: instructions that the processor executes in those two functions, including libraries, by
//! single-stepping a traced child that has a second thread, and that has locked before. If no branch is taken and
//! nothing is called, this is the same number as *instructions*, so each checks the other. A system call is one
//! instruction.
//!
//! *program-text*, *-data* and *-bss* are those of a whole program in C, with semaphores, with a mutex that checks its
//! rules, and with mutexes; its *size* is that of the object that it locks. See [`program`].
//!
//! A figure is the sum of locking and unlocking; nothing is subtracted.

mod program;
mod published;

use std::hint::black_box;
use std::io;
use std::pin::Pin;
use std::thread;

use libc::c_int;

use super::{Prepared, Scenario};
use crate::contestant::Contestant;
use crate::measure::{Case, Sample};
use crate::peers::code::{Executable, FastPath};
use crate::peers::locks::{self, Between, Peer, Visitor};
use crate::peers::step::{Tracee, stop_here};
use crate::peers::{Lock, enter_fifo, placed};
use crate::plan::Plan;
use crate::published::{Experiment, GENERIC_MUTEX, Source};
use crate::result::{Params, Unit, Variant, Warning};

pub(super) struct Footprint;

const PEERS: &[&Peer] = &[
    locks::WAIT_WAKE,
    locks::THROUGHPUT,
    locks::INHERIT,
    locks::INHERIT_PLAIN,
    locks::PROTECT,
    locks::PROTECT_AT_CEILING,
    locks::PROTECT_KEPT,
    locks::ROBUST,
    locks::IN_REGION,
    locks::IN_REGION_THROUGHPUT,
    locks::ROBUST_INHERIT,
    locks::ROBUST_PROTECT,
    locks::ROBUST_THROUGHPUT,
    locks::GLIBC,
    locks::GLIBC_ROBUST,
    locks::GLIBC_PI,
    locks::GLIBC_PP,
    locks::GLIBC_RWLOCK,
    locks::GLIBC_SEM,
    locks::STD,
    locks::PARKING_LOT,
    locks::NSYNC,
    locks::ABSL,
    locks::SYSV,
    locks::TWO_RMW,
    locks::SPINNING,
];

impl Scenario for Footprint {
    fn name(&self) -> &'static str {
        "footprint"
    }

    fn about(&self) -> &'static str {
        "size of a lock; bytes and instructions of locking and unlocking it while it is free"
    }

    fn source(&self) -> Option<Source> {
        Some(Source {
            document: &GENERIC_MUTEX,
            place: ": the sizes of the structure, of the kernel and of the fast paths",
        })
    }

    fn experiments(&self) -> Vec<Experiment> {
        published::experiments()
    }

    fn base(&self) -> &'static str {
        locks::GLIBC.name
    }

    fn locks(&self) -> &'static [&'static Peer] {
        PEERS
    }

    fn contestants(&self) -> Vec<Contestant> {
        let locks = self.locks().iter().map(|peer| peer.contestant());
        locks
            .chain(program::PROGRAMS.iter().map(program::Program::contestant))
            .collect()
    }

    fn prepare(&self, plan: &Plan) -> Prepared {
        let mut prepared = Prepared::default();
        let executable = Executable::this().map_err(|error| error.to_string());
        // By reason.
        let mut unlisted: Vec<(String, Vec<&str>)> = Vec::new();
        let mut rows = Vec::new();
        for peer in self.available(plan) {
            let Ok(code) = peer.visit(Between::Threads, ReadCode(peer.priority)) else {
                continue;
            };
            rows.push((peer.name, Variant::Size, [code.size, 0.0]));
            match code.listed(&executable) {
                Ok(paths) => {
                    let of = |count: fn(FastPath) -> u32| paths.map(|path| f64::from(count(path)));
                    rows.push((peer.name, Variant::Text, of(|path| path.bytes)));
                    rows.push((
                        peer.name,
                        Variant::Instructions,
                        of(|path| path.instructions),
                    ));
                }
                Err(reason) => skip(&mut unlisted, format!("no listing: {reason}"), peer.name),
            }
            match code.executed {
                Ok(counts) => rows.push((peer.name, Variant::Executed, counts.map(f64::from))),
                Err(error) => skip(&mut unlisted, format!("not stepped: {error}"), peer.name),
            }
        }
        for (reason, names) in unlisted {
            prepared.warnings.push(Warning::Skipped {
                text: format!("{}: {reason}", names.join(", ")),
            });
        }
        // Case by case.
        for case in [
            Variant::Size,
            Variant::Text,
            Variant::Instructions,
            Variant::Executed,
        ] {
            let rows = rows.iter().filter(|(_, of, _)| *of == case);
            let cases = rows.map(|(name, _, pair)| self.case(name, case, *pair));
            prepared.cases.extend(cases);
        }
        for (index, case) in program::CASES.into_iter().enumerate() {
            let wanted = |one: &&program::Program| plan.wants(program::PROGRAMS[0].name, one.name);
            for program in program::PROGRAMS.iter().filter(wanted) {
                if let Ok(sizes) = program.sizes() {
                    let figure = [sizes[index], 0.0];
                    let of_program = self.case(program.name, case, figure);
                    prepared.cases.push(Case {
                        // The sizes of objects have the base of all sizes.
                        is_base: case != Variant::Size && program.name == program::PROGRAMS[0].name,
                        further: Vec::new(),
                        ..of_program
                    });
                }
            }
        }
        prepared
    }
}

/// Records that a contestant has no figure, with the reason.
fn skip(skipped: &mut Vec<(String, Vec<&str>)>, reason: String, name: &'static str) {
    match skipped.iter_mut().find(|(known, _)| *known == reason) {
        Some((_, names)) => names.push(name),
        None => skipped.push((reason, vec![name])),
    }
}

impl Footprint {
    fn case(&self, name: &'static str, case: Variant, pair: [f64; 2]) -> Case {
        let params = Params {
            case: Some(case),
            ..Params::default()
        };
        let further = match case {
            Variant::Size => Vec::new(),
            _ => vec![("lock", pair[0]), ("unlock", pair[1])],
        };
        let unit = match case {
            Variant::Instructions | Variant::Executed => Unit::Instructions,
            _ => Unit::Bytes,
        };
        Case {
            contestant: name,
            params: params.clone(),
            group: params,
            is_base: name == self.base(),
            unit,
            further,
            sampler: Box::new(move || Ok(Sample::from(pair[0] + pair[1]))),
        }
    }
}

/// The code of a lock.
struct Code {
    size: f64,
    /// The addresses of [`lock`] and [`unlock`].
    functions: [usize; 2],
    executed: io::Result<[u32; 2]>,
}

impl Code {
    fn listed(&self, executable: &Result<Executable, String>) -> Result<[FastPath; 2], String> {
        let executable = executable.as_ref().map_err(String::clone)?;
        let [lock, unlock] = self
            .functions
            .map(|function| executable.fast_path(function));
        Ok([lock?, unlock?])
    }
}

/// Examines a lock, in the scheduling class that it needs.
struct ReadCode(Option<c_int>);

impl Visitor for ReadCode {
    type Output = Code;

    fn visit<L: Lock>(self, make: impl Fn() -> io::Result<L> + Send + Sync + 'static) -> Code {
        let lock: fn(Pin<&'static L>) -> L::Held<'static> = lock::<L>;
        let unlock: fn(L::Held<'static>) = unlock::<L>;
        let functions = [lock as *const () as usize, unlock as *const () as usize];
        let step = || {
            let place = placed(make()?)?;
            Tracee::start(|| run::<L>(place.pin(), self.0))?.count(functions)
        };
        Code {
            size: L::BYTES as f64,
            functions,
            executed: step(),
        }
    }
}

/// The traced child.
fn run<L: Lock>(place: Pin<&L>, priority: Option<c_int>) -> c_int {
    // A second thread, so that the C library does not omit atomic operations.
    thread::spawn(thread::park);
    if let Some(priority) = priority
        && enter_fifo(priority).is_err()
    {
        return 1;
    }
    let Ok(_enlisted) = L::enlist() else {
        return 1;
    };
    // Work that only the first call does is not part of the fast path.
    for _ in 0..2 {
        black_box(unlock::<L> as fn(_))(black_box(lock::<L> as fn(_) -> _)(place));
    }
    stop_here();
    black_box(unlock::<L> as fn(_))(black_box(lock::<L> as fn(_) -> _)(place));
    0
}

/// The code of a caller that locks.
#[inline(never)]
fn lock<'a, L: Lock>(lock: Pin<&'a L>) -> L::Held<'a> {
    lock.lock()
}

/// The code of a caller that unlocks.
#[inline(never)]
fn unlock<L: Lock>(held: L::Held<'_>) {
    drop(held);
}
