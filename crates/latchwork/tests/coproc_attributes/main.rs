//! Attributes of coprocs: each takes effect, or is reported by name before anything has run.
#![allow(unsafe_code)]

mod confinement;
#[path = "../coproc_support/mod.rs"]
mod coproc_support;
mod descriptors;
mod limits;
mod remains;
mod scheduling;

use coproc_support::{Copying as _, isolated, proc_file, region, runs, until};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{Attributes, Coprocs, Options, Outcome, Signal, SpawnError};
use latchwork::region::{Orphans, Region, Shareable};
use latchwork_testkit::{Child, Watchdog};

/// Counts a run, so that a test can tell that nothing ran.
fn run(region: &Region, (): ()) -> i32 {
    region
        .find::<AtomicU32>("runs")
        .unwrap()
        .fetch_add(1, Ordering::Relaxed);
    0
}

fn pause(region: &Region, (): ()) -> i32 {
    run(region, ());
    loop {
        std::thread::sleep(core::time::Duration::from_secs(1000));
    }
}

/// A region that counts runs.
fn counting() -> Region {
    let region = region();
    region.object("runs", || AtomicU32::new(0)).unwrap();
    region
}

fn counted() -> (Region, Coprocs) {
    let region = counting();
    let coprocs = coproc_support::start(&region).unwrap();
    (region, coprocs)
}

/// Asserts that an attribute is refused by name, clean and as a snapshot, and nothing runs.
fn refused((region, coprocs): &(Region, Coprocs), attributes: &Attributes, name: &str, errno: i32) {
    for attributes in [attributes.clone(), attributes.clone().copying()] {
        match coprocs.spawn_value(run, (), &attributes) {
            Err(SpawnError::Attribute { attribute, error }) => {
                assert_eq!((attribute, error.raw_os_error()), (name, errno));
            }
            other => panic!("{other:?} instead of {name}"),
        }
    }
    assert_eq!(
        region
            .find::<AtomicU32>("runs")
            .unwrap()
            .load(Ordering::Relaxed),
        0
    );
}

/// What a function returns in a coproc.
fn returned<A: Shareable + Copy>(
    coprocs: &Coprocs,
    entry: fn(&Region, A) -> i32,
    argument: A,
    attributes: &Attributes,
) -> i32 {
    let coproc = coprocs.spawn_value(entry, argument, attributes).unwrap();
    match coproc.join().unwrap().outcome {
        Outcome::Returned(value) => value,
        other => panic!("{other:?}"),
    }
}

/// Becomes nobody, if this process is root.
fn drop_privileges() {
    // SAFETY: changes this process alone, which is a test's own.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setresgid(65534, 65534, 65534), 0);
            assert_eq!(libc::setresuid(65534, 65534, 65534), 0);
        }
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        libc::setrlimit(libc::RLIMIT_RTPRIO, &raw const none);
        libc::setrlimit(libc::RLIMIT_NICE, &raw const none);
    }
}

#[test]
fn the_name_is_visible_in_comm_and_cmdline() {
    isolated(|| {
        let region = counting();
        for pool in [0, 1] {
            let coprocs = coproc_support::start_with(&region, &Options::new().pool(pool)).unwrap();
            for kind in [Attributes::new(), Attributes::new().copying()] {
                let coproc = coprocs
                    .spawn_value(pause, (), &kind.name("quite-a-long-name"))
                    .unwrap();
                until(|| proc_file(coproc.pid(), "comm") == "quite-a-long-na\n");
                let expected = "quite-a-long-name\0";
                until(|| {
                    let shown = proc_file(coproc.pid(), "cmdline");
                    shown == expected
                });
                coproc.kill(Signal::KILL).unwrap();
                coproc.join().unwrap();
            }
        }
    });
}

#[test]
fn an_impossible_stack_is_refused_by_name() {
    let counted = counted();
    for bytes in [usize::MAX, 1 << 60] {
        let attributes = Attributes::new().stack_size(bytes);
        refused(&counted, &attributes, "stack_size", libc::ENOMEM);
    }
}

#[test]
fn a_control_group_that_is_not_there_is_refused_by_name() {
    let attributes = Attributes::new().cgroup("/nowhere/at/all");
    refused(&counted(), &attributes, "cgroup", libc::ENOENT);
}

#[test]
fn a_coproc_starts_in_its_control_group() {
    let name = format!("latchwork-test-{}", std::process::id());
    let roots = [
        "/sys/fs/cgroup",
        "/sys/fs/cgroup/unified",
        "/sys/fs/cgroup/pids",
    ]
    .map(std::path::Path::new);
    let group = roots.iter().map(|root| root.join(&name)).find(|group| {
        let made = std::fs::create_dir(group).is_ok();
        let real = made && group.join("cgroup.procs").exists();
        if made && !real {
            let _ = std::fs::remove_dir(group);
        }
        real
    });
    let Some(group) = group else {
        eprintln!("skipped: no control group can be made here");
        return;
    };
    let (_region, coprocs) = counted();
    let coproc = coprocs
        .spawn_value(pause, (), &Attributes::new().cgroup(&group))
        .unwrap();
    let shown = proc_file(coproc.pid(), "cgroup");
    coproc.kill(Signal::KILL).unwrap();
    coproc.join_reaped().unwrap();
    std::fs::remove_dir(&group).unwrap();
    assert!(shown.contains(&name), "{shown}");
}

#[test]
fn signal_mask_and_handlers_are_reset() {
    extern "C" fn handler(_: i32) {}
    fn entry(_: &Region, (): ()) -> i32 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        // The C library's own signals, 32 and 33, are its own.
        let own = 3 << 31;
        let usr1 = 1 << (libc::SIGUSR1 - 1);
        i32::from(field("SigBlk") != 0)
            + 2 * i32::from(field("SigCgt") & !own != 0)
            + 4 * i32::from(field("SigIgn") & usr1 != 0)
    }
    isolated(|| {
        // SAFETY: a handler that does nothing; the mask is this thread's.
        unsafe {
            libc::signal(libc::SIGUSR1, handler as *const () as usize);
            let mut set: libc::sigset_t = core::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
        }
        let region = region();
        for pool in [0, 1] {
            let coprocs = coproc_support::start_with(&region, &Options::new().pool(pool)).unwrap();
            for attributes in [Attributes::new(), Attributes::new().copying()] {
                assert_eq!(returned(&coprocs, entry, (), &attributes), 0);
            }
        }
    });
}

#[test]
fn the_directory_is_shared_on_request() {
    fn change(_: &Region, (): ()) -> i32 {
        std::env::set_current_dir("/proc").unwrap();
        0
    }
    isolated(|| {
        std::env::set_current_dir("/").unwrap();
        let (_region, coprocs) = counted();
        assert_eq!(returned(&coprocs, change, (), &Attributes::new()), 0);
        assert_eq!(std::env::current_dir().unwrap().as_os_str(), "/");
        assert_eq!(
            // SAFETY: `change` uses nothing that the creator owns.
            returned(&coprocs, change, (), &unsafe {
                Attributes::new().share_fs()
            }),
            0
        );
        assert_eq!(std::env::current_dir().unwrap().as_os_str(), "/proc");
    });
}

#[test]
fn blocks_of_the_dead_are_kept_on_request() {
    fn leak(region: &Region, (): ()) -> i32 {
        region
            .allocate(core::alloc::Layout::new::<[u8; 1000]>())
            .unwrap();
        std::process::abort()
    }
    isolated(|| {
        let (region, coprocs) = counted();
        let blocks = || {
            let stats = region.heap_stats();
            stats.private_blocks + stats.shared_blocks
        };
        let before = blocks();
        for (policy, kept) in [(Orphans::Free, 0), (Orphans::Keep, 1)] {
            let attributes = Attributes::new().orphans(policy).core_size(0);
            coprocs
                .spawn_value(leak, (), &attributes)
                .unwrap()
                .join_reaped()
                .unwrap();
            assert_eq!(blocks(), before + kept);
        }
    });
}

#[test]
fn a_coproc_dies_with_its_parent_on_request_and_not_otherwise() {
    let _watchdog = Watchdog::start("die with parent".into());
    let region = counting();
    let pids = region
        .object("pids", || [const { AtomicU32::new(0) }; 4])
        .unwrap();
    let mut host = Child::fork(|| {
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(1)).unwrap();
        let kinds = [
            Attributes::new().die_with_parent(),
            Attributes::new().die_with_parent().copying(),
            Attributes::new().core_size(0),
        ];
        // The thread that creates them ends; that is no reason to die.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (place, kind) in pids.iter().zip(kinds) {
                    let coproc = coprocs.spawn_value(pause, (), &kind).unwrap();
                    place.store(coproc.pid(), Ordering::Release);
                }
            });
        });
        std::thread::sleep(core::time::Duration::from_millis(20));
        pids[3].store(1, Ordering::Release);
        std::thread::sleep(core::time::Duration::from_secs(1000));
    });
    until(|| pids[3].load(Ordering::Acquire) == 1);
    let pid = |index: usize| pids[index].load(Ordering::Acquire);
    assert!((0..3).all(|index| runs(pid(index))));
    host.kill();
    until(|| !runs(pid(0)) && !runs(pid(1)));
    assert!(runs(pid(2)));
    // SAFETY: our coproc's, which lives.
    unsafe { libc::kill(pid(2) as i32, libc::SIGKILL) };
    until(|| !runs(pid(2)));
}
