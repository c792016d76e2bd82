//! Policy, niceness and affinity.

use super::coproc_support::isolated;
use super::{counted, drop_privileges, refused, returned};
use latchwork::coproc::{Attributes, Outcome, Scheduling, SpawnError};
use latchwork::region::Region;
use latchwork_testkit::priority::{nice, now};

#[test]
fn real_time_and_less_niceness_without_privilege_are_refused_by_name() {
    isolated(|| {
        drop_privileges();
        let counted = counted();
        for (scheduling, name, errno) in [
            (Scheduling::Fifo { priority: 10 }, "scheduling", libc::EPERM),
            (
                Scheduling::RoundRobin { priority: 1 },
                "scheduling",
                libc::EPERM,
            ),
            (Scheduling::Other { nice: -20 }, "nice", libc::EACCES),
        ] {
            let attributes = Attributes::new().scheduling(scheduling);
            refused(&counted, &attributes, name, errno);
        }
    });
}

#[test]
fn impossible_scheduling_and_affinity_are_refused_by_name() {
    let counted = counted();
    for (scheduling, name) in [
        (Scheduling::Fifo { priority: 0 }, "scheduling"),
        (Scheduling::Other { nice: 20 }, "nice"),
    ] {
        let attributes = Attributes::new().scheduling(scheduling);
        refused(&counted, &attributes, name, libc::EINVAL);
    }
    // In the third, one that is there does not excuse one that is not.
    for cpus in [&[][..], &[1023], &[0, 1023], &[5000]] {
        let attributes = Attributes::new().affinity(cpus.iter().copied());
        refused(&counted, &attributes, "affinity", libc::EINVAL);
    }
}

#[test]
fn policy_niceness_and_affinity_take_effect() {
    fn report(_: &Region, (): ()) -> i32 {
        now().policy * 100 + nice()
    }
    fn cpus(_: &Region, (): ()) -> i32 {
        // SAFETY: the kernel fills in the set.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            libc::CPU_COUNT(&set)
        }
    }
    let (_region, coprocs) = counted();
    let report = |scheduling| {
        returned(
            &coprocs,
            report,
            (),
            &Attributes::new().scheduling(scheduling),
        )
    };
    // Less than one has needs a privilege.
    // SAFETY: asks about the calling process.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let (nice, nicer) = (own.max(4), own.max(7));
    assert_eq!(report(Scheduling::Other { nice }), nice);
    assert_eq!(
        report(Scheduling::Batch { nice: nicer }),
        libc::SCHED_BATCH * 100 + nicer
    );
    assert_eq!(report(Scheduling::Idle), libc::SCHED_IDLE * 100 + own);
    // Not each processor need be this process's.
    // SAFETY: has no preconditions.
    let here = unsafe { libc::sched_getcpu() } as usize;
    assert_eq!(
        returned(&coprocs, cpus, (), &Attributes::new().affinity([here])),
        1
    );
}

#[test]
fn a_real_time_policy_takes_effect_where_it_is_allowed() {
    fn policy(_: &Region, (): ()) -> i32 {
        now().policy
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().scheduling(Scheduling::Fifo { priority: 1 });
    match coprocs.spawn_value(policy, (), &attributes) {
        Ok(coproc) => assert_eq!(
            coproc.join().unwrap().outcome,
            Outcome::Returned(libc::SCHED_FIFO)
        ),
        Err(SpawnError::Attribute {
            attribute: "scheduling",
            error,
        }) => eprintln!("skipped: SCHED_FIFO: {error}"),
        Err(error) => panic!("{error}"),
    }
}
