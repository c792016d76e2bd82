//! The talks and mailing-list posts whose experiments the scenarios repeat.

use std::fmt;

/// A document with published experiments.
pub(crate) struct Document {
    /// The name of its page in a report, without `.md`; none for a program without published figures.
    pub(crate) page: Option<&'static str>,
    pub(crate) title: &'static str,
    pub(crate) author: &'static str,
    /// Where it was published, and the year.
    pub(crate) occasion: &'static str,
    /// What it is about, and what its experiments are to show.
    pub(crate) about: &'static str,
    /// Its experiments and statements that no scenario repeats.
    pub(crate) left_out: &'static [LeftOut],
}

/// A part of a document that no scenario repeats.
pub(crate) struct LeftOut {
    pub(crate) place: &'static str,
    pub(crate) what: &'static str,
    pub(crate) why: &'static str,
}

const fn left_out(place: &'static str, what: &'static str, why: &'static str) -> LeftOut {
    LeftOut { place, what, why }
}

/// All documents that have pages.
pub(crate) static ALL: [&Document; 5] = [&NPTL, &TP_FUTEX, &COPROC, &GENERIC_MUTEX, &RTEMS];

pub(crate) static NPTL: Document = Document {
    page: Some("nptl"),
    title: "Recent new features in NPTL",
    author: "H. Kumagai",
    occasion: "CELF Technical Jamboree 16, 2007",
    about: "A talk on what glibc 2.5 and Linux 2.6.17 and 2.6.18 brought: robust mutexes, priority inheritance and \
            priority protection. It measures what they cost where a lock is free and where tasks wait for each other, \
            what inheritance does against priority inversion, and how fast messages pass through queues that are made \
            of them. The text does not name the machine.",
    left_out: &[
        left_out(
            "pages 12 and 13",
            "the steps of the fast and of the slow paths in user space and in the kernel",
            "It is a description, not a measurement. `latchwork bench footprint` counts the instructions of fast paths.",
        ),
        left_out(
            "pages 15, 23, 24 and 29",
            "graphs of the performance",
            "The text of the talk has the graphs' conclusions (pages 16, 25 and 30), and not their figures.",
        ),
        left_out(
            "page 18",
            "what robust mutexes do, and two of their defects of that time",
            "It is no measurement. The kill tests of this library prove the same property of its own locks.",
        ),
    ],
};

pub(crate) static TP_FUTEX: Document = Document {
    page: Some("tp-futex"),
    title: "TP-futex, doc: Add TP futexes documentation",
    author: "W. Long",
    occasion: "patch 15 of 22, version 6, linux-kernel, 2017",
    about: "The documentation of a futex whose waiters spin in the kernel as long as the owner runs, and which any \
            task may steal: throughput-optimised (TP). A microbenchmark compares mutexes made of wait-wake (WW), \
            priority-inheriting (PI) and TP futexes, and glibc's. The kernel did not take the patches. Latchwork's \
            throughput lock does the same in user space.",
    left_out: &[left_out(
        "\"Implementation\"",
        "the system calls `FUTEX_LOCK` and `FUTEX_UNLOCK`, and their results",
        "No kernel has them. The acquisition codes (stolen, as the top waiter, handed off) are figures of \
         `latchwork bench futex-lock` for the throughput lock, in the results as JSON.",
    )],
};

pub(crate) static COPROC: Document = Document {
    page: Some("coproc"),
    title: "On Threads, Processes and Co-Processes",
    author: "G. Ben-Yossef",
    occasion: "CELF Embedded Linux Conference Europe 2009",
    about: "A talk on whether an application of several tasks should use threads or processes. It measures the cost \
            of context switches between threads and between processes on two machines, finds the difference quite \
            small, and introduces the library CoProc: processes that are as easy to use as threads. Latchwork's \
            coprocs are the third column here.",
    left_out: &[
        left_out(
            "pages 8 to 11",
            "page tables, translation look-aside buffers, and indices of caches",
            "They explain the measurement, and have no figures.",
        ),
        left_out(
            "pages 24 to 28",
            "the interfaces of threads and of processes, compared",
            "It is no measurement.",
        ),
        left_out(
            "pages 29 to 33",
            "the interface of CoProc",
            "It is no measurement. `coproc.h` has this interface; tests compile and run a program that uses it.",
        ),
    ],
};

pub(crate) static GENERIC_MUTEX: Document = Document {
    page: Some("generic-mutex"),
    title: "generic mutex subsystem",
    author: "I. Molnár",
    occasion: "linux-kernel, 2005",
    about: "The post that introduced the mutexes of the Linux kernel, and gave reasons why a mutex is better than a \
            semaphore that is used as one: it is smaller, its code is shorter, it is faster, and its rules can be \
            checked. The figures are those of a kernel; ours are of programs in user space, with Latchwork's \
            `migrate.h`, which has the types and calls of 2005, and with its locks. The post has no pages; the parts \
            are in its order.",
    left_out: &[
        left_out(
            "\"the per-call-site inlining cost\"",
            "the code of an inlined fast path is one instruction shorter than a semaphore's",
            "The kernel's call of the slow path (a jump to a trampoline that takes its argument in a register) has no \
             counterpart in user space.",
        ),
        left_out(
            "\"semantics are well-defined and are enforced\"",
            "the rules that `CONFIG_DEBUG_MUTEXES` checks",
            "No figures were published. Latchwork's checker enforces these rules; tests break each of them. \
             `latchwork bench check-overhead` measures what checking costs.",
        ),
        left_out(
            "\"no wholesale or dangerous migration path\"",
            "the migration of a program in steps",
            "It is no measurement. `examples/migrate` makes these steps.",
        ),
    ],
};

pub(crate) static RTEMS: Document = Document {
    page: Some("rtems-locking"),
    title: "One Step Towards Fine Grained Locking",
    author: "S. Huber",
    occasion: "RTEMS ticket 2273, 2015",
    about: "The ticket under which the real-time system RTEMS replaced the one lock for its whole kernel, the giant \
            lock, by a lock in each object. Its benchmark, `tmfine01`, has tasks on each processor use objects of \
            their own or one for all. RTEMS keeps results of it beside its source; those of March 2015 (in which only \
            events have locks of their own) and of October 2017 (in which all objects have) are shown, too.",
    left_out: &[
        left_out(
            "description",
            "the structure of a binary semaphore with inheritance, with the giant lock and with its own",
            "It is a design. DESIGN.md describes that of Latchwork's semaphores.",
        ),
        left_out(
            "comments 7 and 10, plots",
            "the figures of each number of processors",
            "They are pictures in the ticket. The figures in the text, and those of the results beside the \
             benchmark's source, are shown.",
        ),
        left_out(
            "results beside the benchmark's source",
            "the case AllToOneEvent",
            "In it, each task of RTEMS's benchmark sends to itself. `latchwork bench fine-grained` has other tasks send \
             to the first one, and these figures stand alone in the report.",
        ),
    ],
};

pub(crate) static CYCLICTEST: Document = Document {
    page: None,
    title: "cyclictest",
    author: "",
    occasion: "the package rt-tests",
    about: "",
    left_out: &[],
};

/// The part of a document that a scenario repeats.
pub(crate) struct Source {
    pub(crate) document: &'static Document,
    /// The pages, tables or programs, beginning with the punctuation that separates it from the document's name.
    pub(crate) place: &'static str,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.document, self.place)
    }
}

impl fmt::Display for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.page {
            Some(_) => write!(f, "\"{}\" ({}, {})", self.title, self.author, self.occasion),
            None => write!(f, "{} ({})", self.title, self.occasion),
        }
    }
}
