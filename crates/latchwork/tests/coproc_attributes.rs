//! Attributes of coprocs: each takes effect, or is reported by name before anything has run.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{fork, isolated, proc_file, region, runs, until};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{
    Attributes, Coproc, Coprocs, Options, Outcome, Scheduling, Signal, SpawnError, descriptors,
};
use latchwork::region::{Orphans, Region};
use latchwork_testkit::Watchdog;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

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

fn counted() -> (Region, Coprocs) {
    let region = region();
    region.object("runs", || AtomicU32::new(0)).unwrap();
    let coprocs = Coprocs::new(&region).unwrap();
    (region, coprocs)
}

/// Asserts that an attribute is refused by name, clean and as a snapshot, and nothing runs.
fn refused(region: &Region, coprocs: &Coprocs, attributes: &Attributes, name: &str, errno: i32) {
    for attributes in [attributes.clone(), attributes.clone().snapshot()] {
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

fn returned(coproc: Coproc) -> i32 {
    match coproc.join().unwrap().outcome {
        Outcome::Returned(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_name_is_visible_in_comm_and_cmdline() {
    isolated(|| {
        let region = region();
        region.object("runs", || AtomicU32::new(0)).unwrap();
        for pool in [0, 1] {
            let coprocs = Coprocs::with_options(&region, &Options::new().pool(pool)).unwrap();
            for kind in [Attributes::new(), Attributes::new().snapshot()] {
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
fn limits_take_effect() {
    fn limits(_: &Region, (): ()) -> i32 {
        let limit = |resource| {
            let mut limit = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: the kernel fills in the variable.
            unsafe { libc::getrlimit(resource, &raw mut limit) };
            (limit.rlim_cur, limit.rlim_max)
        };
        assert_eq!(limit(libc::RLIMIT_AS), (32 << 30, 32 << 30));
        assert_eq!(limit(libc::RLIMIT_CORE), (0, 0));
        let (soft, hard) = limit(libc::RLIMIT_CPU);
        assert_eq!(soft, 7);
        assert!(hard > soft);
        0
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new()
        .address_space(32 << 30)
        .core_size(0)
        .cpu_time(7);
    assert_eq!(
        returned(coprocs.spawn_value(limits, (), &attributes).unwrap()),
        0
    );
}

#[test]
fn too_much_address_space_fails_in_the_coproc_alone() {
    fn greedy(_: &Region, (): ()) -> i32 {
        i32::from(Vec::<u8>::new().try_reserve_exact(2 << 30).is_err())
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().address_space(1 << 30);
    assert_eq!(
        returned(coprocs.spawn_value(greedy, (), &attributes).unwrap()),
        1
    );
    assert_eq!(
        returned(coprocs.spawn_value(greedy, (), &Attributes::new()).unwrap()),
        0
    );
}

#[test]
fn used_up_processor_time_is_announced_before_it_kills() {
    fn spin(_: &Region, (): ()) -> i32 {
        loop {
            core::hint::spin_loop();
        }
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().cpu_time(1).core_size(0);
    let exit = coprocs
        .spawn_value(spin, (), &attributes)
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(
        exit.outcome,
        Outcome::Signalled {
            signal: libc::SIGXCPU,
            core: false
        }
    );
}

#[test]
fn limits_above_the_hard_ones_are_refused_by_name() {
    isolated(|| {
        let (region, coprocs) = {
            let region = region();
            region.object("runs", || AtomicU32::new(0)).unwrap();
            for resource in [libc::RLIMIT_AS, libc::RLIMIT_CORE] {
                let limit = libc::rlimit {
                    rlim_cur: 64 << 30,
                    rlim_max: 64 << 30,
                };
                // SAFETY: the kernel reads the limit.
                assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
            }
            let limit = libc::rlimit {
                rlim_cur: 1000,
                rlim_max: 1000,
            };
            // SAFETY: as above.
            assert_eq!(
                // SAFETY: the limit lives across the call.
                unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const limit) },
                0
            );
            drop_privileges();
            let coprocs = Coprocs::new(&region).unwrap();
            (region, coprocs)
        };
        refused(
            &region,
            &coprocs,
            &Attributes::new().address_space(65 << 30),
            "address_space",
            libc::EPERM,
        );
        refused(
            &region,
            &coprocs,
            &Attributes::new().core_size(65 << 30),
            "core_size",
            libc::EPERM,
        );
        refused(
            &region,
            &coprocs,
            &Attributes::new().cpu_time(1000),
            "cpu_time",
            libc::EPERM,
        );
    });
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
fn real_time_and_less_niceness_without_privilege_are_refused_by_name() {
    isolated(|| {
        let region = region();
        region.object("runs", || AtomicU32::new(0)).unwrap();
        drop_privileges();
        let coprocs = Coprocs::new(&region).unwrap();
        let with = |scheduling| Attributes::new().scheduling(scheduling);
        refused(
            &region,
            &coprocs,
            &with(Scheduling::Fifo { priority: 10 }),
            "scheduling",
            libc::EPERM,
        );
        refused(
            &region,
            &coprocs,
            &with(Scheduling::RoundRobin { priority: 1 }),
            "scheduling",
            libc::EPERM,
        );
        refused(
            &region,
            &coprocs,
            &with(Scheduling::Other { nice: -20 }),
            "nice",
            libc::EACCES,
        );
    });
}

#[test]
fn impossible_scheduling_and_affinity_are_refused_by_name() {
    let (region, coprocs) = counted();
    let with = |scheduling| Attributes::new().scheduling(scheduling);
    refused(
        &region,
        &coprocs,
        &with(Scheduling::Fifo { priority: 0 }),
        "scheduling",
        libc::EINVAL,
    );
    refused(
        &region,
        &coprocs,
        &with(Scheduling::Other { nice: 20 }),
        "nice",
        libc::EINVAL,
    );
    refused(
        &region,
        &coprocs,
        &Attributes::new().affinity([]),
        "affinity",
        libc::EINVAL,
    );
    refused(
        &region,
        &coprocs,
        &Attributes::new().affinity([1023]),
        "affinity",
        libc::EINVAL,
    );
    // One that is there does not excuse one that is not.
    refused(
        &region,
        &coprocs,
        &Attributes::new().affinity([0, 1023]),
        "affinity",
        libc::EINVAL,
    );
    refused(
        &region,
        &coprocs,
        &Attributes::new().affinity([5000]),
        "affinity",
        libc::EINVAL,
    );
    refused(
        &region,
        &coprocs,
        &Attributes::new().stack_size(usize::MAX),
        "stack_size",
        libc::ENOMEM,
    );
    refused(
        &region,
        &coprocs,
        &Attributes::new().stack_size(1 << 60),
        "stack_size",
        libc::ENOMEM,
    );
}

#[test]
fn policy_niceness_and_affinity_take_effect() {
    fn report(_: &Region, (): ()) -> i32 {
        // SAFETY: these calls ask about the calling process.
        unsafe { libc::sched_getscheduler(0) * 100 + libc::getpriority(libc::PRIO_PROCESS, 0) }
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
            coprocs
                .spawn_value(report, (), &Attributes::new().scheduling(scheduling))
                .unwrap(),
        )
    };
    assert_eq!(report(Scheduling::Other { nice: 4 }), 4);
    assert_eq!(
        report(Scheduling::Batch { nice: 7 }),
        libc::SCHED_BATCH * 100 + 7
    );
    assert_eq!(report(Scheduling::Idle) / 100, libc::SCHED_IDLE);
    assert_eq!(
        returned(
            coprocs
                .spawn_value(cpus, (), &Attributes::new().affinity([0]))
                .unwrap()
        ),
        1
    );
}

#[test]
fn a_real_time_policy_takes_effect_where_it_is_allowed() {
    fn policy(_: &Region, (): ()) -> i32 {
        // SAFETY: asks about the calling process.
        unsafe { libc::sched_getscheduler(0) }
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().scheduling(Scheduling::Fifo { priority: 1 });
    match coprocs.spawn_value(policy, (), &attributes) {
        Ok(coproc) => assert_eq!(returned(coproc), libc::SCHED_FIFO),
        Err(SpawnError::Attribute {
            attribute: "scheduling",
            error,
        }) => eprintln!("skipped: SCHED_FIFO: {error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_control_group_that_is_not_there_is_refused_by_name() {
    let (region, coprocs) = counted();
    refused(
        &region,
        &coprocs,
        &Attributes::new().cgroup("/nowhere/at/all"),
        "cgroup",
        libc::ENOENT,
    );
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
fn chosen_descriptors_arrive_and_no_others() {
    fn entry(_: &Region, secret: i32) -> i32 {
        // SAFETY: asks whether the number is open.
        if unsafe { libc::fcntl(secret, libc::F_GETFD) } != -1 {
            return 1;
        }
        let mut passed: Vec<_> = descriptors().into_iter().map(std::fs::File::from).collect();
        if passed.len() != 2 || !descriptors().is_empty() {
            return 2;
        }
        let mut text = String::new();
        passed[0].read_to_string(&mut text).unwrap();
        passed[1].write_all(text.to_uppercase().as_bytes()).unwrap();
        let ours = passed.iter().map(AsRawFd::as_raw_fd);
        let ours: Vec<_> = ours
            .chain([0, 1, 2])
            .map(|number| number.to_string().into())
            .collect();
        for entry in std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter(|entry| !ours.contains(&entry.file_name()))
        {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            // The regions of the test program, and the directory itself.
            assert!(
                target.contains("latchwork") || target.starts_with("/proc/"),
                "{target}"
            );
        }
        7
    }
    isolated(|| {
        let secret = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: copies to a number that nobody uses.
        let secret = unsafe { libc::fcntl(secret.as_raw_fd(), libc::F_DUPFD, 200) };
        let region = region();
        let coprocs = Coprocs::new(&region).unwrap();
        let (input, mut write) = std::io::pipe().unwrap();
        let (mut read, output) = std::io::pipe().unwrap();
        write.write_all(b"hello").unwrap();
        drop(write);
        let attributes = Attributes::new().descriptor(input).descriptor(output);
        assert_eq!(
            returned(coprocs.spawn_value(entry, secret, &attributes).unwrap()),
            7
        );
        drop(attributes);
        let mut text = String::new();
        // The end comes, for neither this process nor the zygote holds a copy.
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HELLO");
    });
}

#[test]
fn a_snapshot_gets_descriptors_of_its_own() {
    fn entry(_: &Region, (): ()) -> i32 {
        let mut passed: Vec<_> = descriptors().into_iter().map(std::fs::File::from).collect();
        passed[0].write_all(b"x").unwrap();
        passed.len() as i32
    }
    let (_region, coprocs) = counted();
    let (mut read, write) = std::io::pipe().unwrap();
    let attributes = Attributes::new().descriptor(write).snapshot();
    assert_eq!(
        returned(coprocs.spawn_value(entry, (), &attributes).unwrap()),
        1
    );
    let mut byte = [0];
    read.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"x");
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
            let coprocs = Coprocs::with_options(&region, &Options::new().pool(pool)).unwrap();
            for attributes in [Attributes::new(), Attributes::new().snapshot()] {
                assert_eq!(
                    returned(coprocs.spawn_value(entry, (), &attributes).unwrap()),
                    0
                );
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
        assert_eq!(
            returned(coprocs.spawn_value(change, (), &Attributes::new()).unwrap()),
            0
        );
        assert_eq!(std::env::current_dir().unwrap().as_os_str(), "/");
        assert_eq!(
            returned(
                coprocs
                    .spawn_value(change, (), &Attributes::new().share_fs())
                    .unwrap()
            ),
            0
        );
        assert_eq!(std::env::current_dir().unwrap().as_os_str(), "/proc");
    });
}

#[test]
fn descriptors_are_shared_on_request() {
    fn open(_: &Region, number: i32) -> i32 {
        // SAFETY: copies standard error to a number that nobody uses.
        unsafe { libc::dup2(2, number) }
    }
    isolated(|| {
        let (_region, coprocs) = counted();
        // SAFETY: asks about a number, whatever it stands for.
        let is_open = |number| unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
        assert_eq!(
            returned(coprocs.spawn_value(open, 300, &Attributes::new()).unwrap()),
            300
        );
        assert!(!is_open(300));
        // SAFETY: `open` closes nothing.
        let sharing = unsafe { Attributes::new().share_files() };
        assert_eq!(
            returned(
                coprocs
                    .spawn_value(open, 300, &sharing.share_sysv_undo())
                    .unwrap()
            ),
            300
        );
        assert!(is_open(300));
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
    let region = region();
    region.object("runs", || AtomicU32::new(0)).unwrap();
    let pids = region
        .object("pids", || [const { AtomicU32::new(0) }; 4])
        .unwrap();
    let mut host = fork(|| {
        let coprocs = Coprocs::with_options(&region, &Options::new().pool(1)).unwrap();
        let kinds = [
            Attributes::new().die_with_parent(),
            Attributes::new().die_with_parent().snapshot(),
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
