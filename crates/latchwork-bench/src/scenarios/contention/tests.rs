//! Tests of the contending tasks.

use rustix::process::{Signal, getpid, kill_process};

use super::*;

#[test]
fn a_sample_has_longs_columns() {
    let of = |in_window| Counts {
        in_window,
        operations: 1000,
        sleeps: 1,
        slow_paths: SlowPaths {
            acquisitions: 40,
            sleeps: 30,
            wakes: 20,
            inheriting: 10,
        },
    };
    let counted = Counted {
        window: Duration::from_millis(500),
        cpu: Some(Duration::from_millis(800)),
        tasks: vec![of(100), of(300)],
    };
    let slow = counted.slow_paths().map(|(_, count)| count);
    assert_eq!(slow, [40.0, 30.0, 20.0, 10.0]);
    let sample = counted.sample();
    assert_eq!(sample.figure, 800.0);
    let extra = |wanted| {
        let mut extra = sample.extra.iter();
        extra.find(|(name, _)| *name == wanted).unwrap().1
    };
    assert_eq!(extra("window_ms"), 500.0);
    assert_eq!(extra("task_min_ops"), 200.0);
    assert_eq!(extra("task_avg_ops"), 400.0);
    assert_eq!(extra("task_max_ops"), 600.0);
    assert_eq!(extra("slowest_pct"), 50.0);
    assert_eq!(extra("stddev_pct"), 50.0);
    assert_eq!(extra("sleeps_per_1000"), 1.0);
    assert_eq!(extra("ops_per_cpu_second"), 500.0);
}

#[test]
fn dice_fall_below_their_sides_and_evenly() {
    let work = Work { load: 0, sleeps: 0 };
    let mut worker = Worker::new(work, 3, Untimed);
    let mut fallen = [0_u32; 4];
    for _ in 0..4000 {
        fallen[worker.roll(4) as usize] += 1;
    }
    assert!(
        fallen.iter().all(|times| (900..1100).contains(times)),
        "{fallen:?}"
    );
}

#[test]
fn a_task_that_panics_is_reported_and_ends_nothing_else() {
    struct Panicking(AtomicBool);
    impl Turn for Panicking {
        fn turn<W: WaitTimer>(&self, worker: &mut Worker<W>) {
            worker.section();
            // Relaxed: only which task is first matters.
            assert!(self.0.swap(true, Ordering::Relaxed), "on purpose");
        }
    }
    let work = Work { load: 1, sleeps: 0 };
    let turn = Panicking(AtomicBool::new(false));
    let contenders = Contenders {
        kind: Kind::Threads,
        tasks: 3,
    };
    let run = measure(&turn, contenders, work, Duration::from_millis(1));
    assert_eq!(run.err().unwrap().to_string(), "a task panicked");
}

#[test]
fn a_task_that_cannot_begin_ends_the_run() {
    /// The second task cannot begin.
    struct Refusing(SharedPage<AtomicBool>);
    impl Turn for Refusing {
        fn begin(&self) -> io::Result<()> {
            // Relaxed: nothing else is handed over.
            match self.0.swap(true, Ordering::Relaxed) {
                false => Ok(()),
                true => Err(io::ErrorKind::Unsupported.into()),
            }
        }

        fn turn<W: WaitTimer>(&self, _: &mut Worker<W>) {
            unreachable!("a turn without all tasks");
        }
    }
    let work = Work { load: 1, sleeps: 0 };
    for kind in [Kind::Threads, Kind::Processes] {
        let turn = Refusing(SharedPage::new(AtomicBool::new(false)).unwrap());
        let contenders = Contenders { kind, tasks: 3 };
        assert!(measure(&turn, contenders, work, Duration::from_millis(1)).is_err());
    }
}

#[test]
fn no_task_waits_for_a_process_that_died() {
    /// The first task dies, and the others wait for it, before they begin or in their turn.
    struct Dying {
        at_begin: bool,
        first: SharedPage<AtomicBool>,
    }
    impl Dying {
        fn die_or_wait(&self) -> ! {
            // Relaxed: nothing else is handed over.
            if !self.first.swap(true, Ordering::Relaxed) {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
            loop {
                thread::park();
            }
        }
    }
    impl Turn for Dying {
        fn begin(&self) -> io::Result<()> {
            if self.at_begin {
                self.die_or_wait();
            }
            Ok(())
        }

        fn turn<W: WaitTimer>(&self, _: &mut Worker<W>) {
            self.die_or_wait();
        }
    }
    let work = Work { load: 1, sleeps: 0 };
    let contenders = Contenders {
        kind: Kind::Processes,
        tasks: 3,
    };
    for at_begin in [true, false] {
        let first = SharedPage::new(AtomicBool::new(false)).unwrap();
        let turn = Dying { at_begin, first };
        let run = measure(&turn, contenders, work, Duration::from_millis(1));
        assert!(run.err().unwrap().to_string().contains("status 0x9"));
    }
}
