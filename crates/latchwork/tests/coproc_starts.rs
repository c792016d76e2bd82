//! Starts under difficulties: little stack, few descriptors, no processes, threads that print and
//! panic meanwhile.
#![allow(unsafe_code)]

mod coproc_support;

use coproc_support::{Copying as _, children, isolated, proc_file, region, status_of, until};
use core::sync::atomic::{AtomicU32, Ordering};
use latchwork::coproc::{
    Attributes, Coprocs, Options, Outcome, Signal, SpawnError, StartError, SystemCalls, descriptors,
};
use latchwork::mutex::Mutex;
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::Region;
use latchwork::time::Deadline;
use latchwork_testkit::Child;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

fn give(_: &Region, value: i32) -> i32 {
    value
}

fn crash(_: &Region, (): ()) -> i32 {
    panic!("as it was told")
}

fn panics(coprocs: &Coprocs, attributes: &Attributes) {
    let coproc = coprocs.spawn_value(crash, (), attributes).unwrap();
    assert_eq!(
        coproc.join().unwrap().outcome,
        Outcome::Panicked("as it was told".into())
    );
}

fn far() -> Deadline {
    Deadline::after(Duration::from_secs(100))
}

fn limit_files(most: u64) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel reads and writes the variable.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = most.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
}

#[test]
fn the_smallest_stack_is_enough_to_start_and_to_panic() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        for bytes in [0, 1, 4096, 64 << 10] {
            let clean = Attributes::new().stack_size(bytes);
            for attributes in [clean.clone(), clean.copying()] {
                let coproc = coprocs.spawn_value(give, 3, &attributes).unwrap();
                assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(3));
                panics(&coprocs, &attributes);
            }
        }
    });
}

#[test]
fn descriptors_for_which_there_is_no_room_refuse_the_start() {
    fn count(_: &Region, (): ()) -> i32 {
        descriptors().len() as i32
    }
    isolated(|| {
        let region = region();
        limit_files(16);
        let coprocs = coproc_support::start(&region).unwrap();
        limit_files(100);
        let with = |count| {
            (0..count).fold(Attributes::new(), |attributes, _| {
                attributes.descriptor(std::fs::File::open("/dev/null").unwrap())
            })
        };
        match coprocs.spawn_value(count, (), &with(20)) {
            Err(SpawnError::Attribute {
                attribute: "descriptor",
                error,
            }) => assert_eq!(error.raw_os_error(), libc::EMFILE),
            other => panic!("{:?}", other.map(|coproc| coproc.join())),
        }
        // Those that did arrive are not kept: there is room for as many again.
        let coproc = coprocs.spawn_value(count, (), &with(5)).unwrap();
        assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(5));
    });
}

#[test]
fn coprocs_that_cannot_be_made_cost_the_host_no_child_of_its_own() {
    isolated(|| {
        // SAFETY: changes this process alone. A user whose processes all are of this test.
        unsafe {
            libc::setresgid(54321, 54321, 54321);
            libc::setresuid(54321, 54321, 54321);
            // Who waits for process 0 waits for any child of this group.
            libc::setpgid(0, 0);
        }
        let region = region();
        let coprocs = coproc_support::start_with(&region, &Options::new().pool(2)).unwrap();
        assert_eq!(coprocs.fill(far()).unwrap(), 2);
        let zygote = children()
            .into_iter()
            .find(|(pid, _)| proc_file(*pid, "comm") == "zygote\n");
        let no_process = libc::rlimit {
            rlim_cur: 1,
            rlim_max: 1,
        };
        // SAFETY: the kernel reads the limit.
        let limited = unsafe {
            libc::prlimit(
                zygote.unwrap().0.cast_signed(),
                libc::RLIMIT_NPROC,
                &raw const no_process,
                core::ptr::null_mut(),
            )
        };
        assert_eq!(limited, 0);
        for value in 0..2 {
            let coproc = coprocs.spawn_value(give, value, &Attributes::new());
            coproc.unwrap().join_reaped().unwrap();
        }
        match coprocs.spawn_value(give, 0, &Attributes::new().core_size(0)) {
            Err(SpawnError::Attribute {
                attribute: "process",
                error,
            }) => assert_eq!(error.raw_os_error(), libc::EAGAIN),
            other => {
                eprintln!("skipped: this user's processes cannot be limited: {other:?}");
                return;
            }
        }
        assert_eq!(coprocs.fill(far()).unwrap(), 0);
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "exit 7"])
            .spawn()
            .unwrap();
        until(|| status_of(child.id()).is_some_and(|(_, state)| state == 'Z'));
        for value in 0..4 {
            let snapshot = Attributes::new().copying();
            let coproc = coprocs.spawn_value(give, value, &snapshot).unwrap();
            coproc.join_reaped().unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(7));
        region.check_heap().unwrap();
    });
}

#[test]
fn a_thread_inside_the_panic_hook_is_not_copied() {
    static LEAVE: AtomicU32 = AtomicU32::new(0);
    static INSIDE: AtomicU32 = AtomicU32::new(0);
    isolated(|| {
        std::panic::set_hook(Box::new(|_| {
            INSIDE.store(1, Ordering::Release);
            until(|| LEAVE.load(Ordering::Acquire) == 1);
        }));
        let panicking = std::thread::spawn(|| panic!("with the hook's lock"));
        until(|| INSIDE.load(Ordering::Acquire) == 1);
        // The first copy has been made.
        let release = std::thread::spawn(|| {
            until(|| !children().is_empty());
            LEAVE.store(1, Ordering::Release);
        });
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        panics(&coprocs, &Attributes::new());
        release.join().unwrap();
        panicking.join().unwrap_err();
    });
}

#[test]
fn a_thread_that_prints_a_panic_is_not_copied() {
    static THREAD: AtomicU32 = AtomicU32::new(0);
    extern "C" fn panic_as_a_thread(_: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: has no preconditions.
        THREAD.store(unsafe { libc::gettid() } as u32, Ordering::Release);
        let _ = std::panic::catch_unwind(|| panic!("into a pipe that is full"));
        core::ptr::null_mut()
    }
    isolated(|| {
        let _ = std::panic::take_hook();
        let (mut read, mut write) = std::io::pipe().unwrap();
        // SAFETY: standard error becomes the pipe, in this process alone.
        let usual = unsafe {
            let usual = libc::dup(2);
            libc::dup2(write.as_raw_fd(), 2);
            libc::fcntl(2, libc::F_SETFL, libc::O_NONBLOCK);
            usual
        };
        while write.write(&[0; 1 << 12]).is_ok() {}
        while write.write(&[0]).is_ok() {}
        // SAFETY: as above.
        unsafe { libc::fcntl(2, libc::F_SETFL, 0) };
        // Not by std: the harness captures what such a thread prints.
        let mut panicking = core::mem::MaybeUninit::uninit();
        // SAFETY: a function of this kind, and a place for the thread's handle.
        let started = unsafe {
            libc::pthread_create(
                panicking.as_mut_ptr(),
                core::ptr::null(),
                panic_as_a_thread,
                core::ptr::null_mut(),
            )
        };
        assert_eq!(started, 0);
        until(|| THREAD.load(Ordering::Acquire) != 0);
        let task = format!("task/{}/syscall", THREAD.load(Ordering::Acquire));
        let writes = format!("{} 0x2 ", libc::SYS_write);
        until(|| proc_file(std::process::id(), &task).starts_with(&writes));
        let release = std::thread::spawn(move || {
            until(|| !children().is_empty());
            drop(write);
            let mut said = Vec::new();
            read.read_to_end(&mut said).unwrap();
            said
        });
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        panics(&coprocs, &Attributes::new());
        drop(coprocs);
        // SAFETY: joined once; then standard error as it was.
        unsafe {
            libc::pthread_join(panicking.assume_init(), core::ptr::null_mut());
            libc::dup2(usual, 2);
        }
        let said = release.join().unwrap();
        assert!(String::from_utf8_lossy(&said).contains("a pipe that is full"));
    });
}

#[test]
fn a_thread_that_holds_standard_error_may_wait_for_standard_output() {
    isolated(|| {
        let held = AtomicU32::new(0);
        let region = region();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let errors = std::io::stderr().lock();
                held.store(1, Ordering::Release);
                // Whoever takes both, that one first, has it by now.
                std::thread::sleep(Duration::from_millis(20));
                drop(std::io::stdout().lock());
                drop(errors);
            });
            until(|| held.load(Ordering::Acquire) == 1);
            let coprocs = coproc_support::start(&region).unwrap();
            let coproc = coprocs.spawn_value(give, 1, &Attributes::new()).unwrap();
            assert_eq!(coproc.join().unwrap().outcome, Outcome::Returned(1));
        });
    });
}

#[test]
fn what_c_code_printed_before_is_printed_once() {
    isolated(|| {
        let (read, write) = std::io::pipe().unwrap();
        Child::fork(|| {
            // SAFETY: standard output becomes the pipe, in this process alone.
            unsafe {
                libc::dup2(write.as_raw_fd(), 1);
                libc::printf(c"once-".as_ptr());
            }
            let region = region();
            let coprocs = coproc_support::start(&region).unwrap();
            for attributes in [Attributes::new(), Attributes::new().copying()] {
                let coproc = coprocs.spawn_value(give, 1, &attributes).unwrap();
                coproc.join_reaped().unwrap();
            }
            // SAFETY: writes what is left in all streams.
            unsafe { libc::fflush(core::ptr::null_mut()) };
        })
        .succeed();
        drop(write);
        assert_eq!(std::io::read_to_string(read).unwrap(), "once-");
    });
}

#[test]
fn a_coproc_that_shares_descriptors_leaves_none_behind() {
    fn pause(_: &Region, (): ()) -> i32 {
        loop {
            std::thread::sleep(Duration::from_secs(1000));
        }
    }
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open();
        for _ in 0..5 {
            // SAFETY: the functions close nothing.
            let sharing = unsafe { Attributes::new().share_files() }.die_with_parent();
            let coproc = coprocs.spawn_value(give, 0, &sharing).unwrap();
            coproc.join_reaped().unwrap();
            let coproc = coprocs.spawn_value(pause, (), &sharing).unwrap();
            coproc.kill(Signal::KILL).unwrap();
            coproc.join_reaped().unwrap();
            let confined = sharing.clone().system_calls(SystemCalls::library());
            let coproc = coprocs.spawn_value(give, 0, &confined).unwrap();
            coproc.join_reaped().unwrap();
        }
        assert_eq!(open(), before);
    });
}

#[test]
fn a_thread_that_holds_a_lock_is_not_copied() {
    isolated(|| {
        let region = region();
        let coprocs = coproc_support::start(&region).unwrap();
        let lock = region.object("lock", || Mutex::robust(0u32)).unwrap();
        let queue = Queue::create(&region, "queue", &QueueOptions::new(2, 8)).unwrap();
        let snapshot = Attributes::new().copying();
        let clean = Attributes::new();
        let spawn = |attributes| coprocs.spawn_value(|_, (): ()| 0, (), attributes);
        let held = lock.lock().unwrap();
        assert!(matches!(spawn(&snapshot), Err(SpawnError::Holding)));
        assert!(matches!(
            coproc_support::start(&region),
            Err(StartError::Holding)
        ));
        assert!(spawn(&clean).unwrap().join().unwrap().is_success());
        drop(held);
        queue.send(b"message").unwrap();
        let message = queue.receive_held().unwrap();
        assert!(matches!(spawn(&snapshot), Err(SpawnError::Holding)));
        message.done();
        assert!(spawn(&snapshot).unwrap().join().unwrap().is_success());
    });
}
