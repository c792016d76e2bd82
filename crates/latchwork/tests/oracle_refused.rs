//! Who may not ask the scheduler is told so. (A program of its own: a child of a process that has enabled
//! the oracle could use its parent's.)
#![cfg(all(feature = "bpf", not(loom)))]
#![allow(unsafe_code)]

use latchwork::mutex::Mutex;
use latchwork::mutex::throughput::oracle::{self, OracleError};
use latchwork_testkit::{Child, Trial};

/// Gives up all capabilities, for good.
fn drop_capabilities() {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let none = [0_u32; 6];
    // SAFETY: the kernel reads both.
    let done = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    assert_eq!(done, 0);
}

#[test]
fn without_the_privilege_it_is_refused_and_locks_work_as_before() {
    let _trial = Trial::begin("without_the_privilege");
    Child::fork(|| {
        drop_capabilities();
        let error = oracle::enable_bpf().expect_err("not permitted");
        let is_named = matches!(error, OracleError::NotPermitted | OracleError::PidNamespace);
        assert!(is_named, "{error}");
        assert_eq!(oracle::runs(std::process::id()), None);
        let mutex = Mutex::throughput(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..1000).for_each(|_| *mutex.lock() += 1));
            }
        });
        assert_eq!(*mutex.lock(), 2000);
    })
    .succeed();
}

#[test]
fn a_process_that_has_not_asked_for_it_has_no_oracle() {
    let _trial = Trial::begin("a_process_that_has_not_asked");
    assert_eq!(oracle::runs(std::process::id()), None);
    latchwork::probe::Features::probe();
    assert_eq!(
        oracle::runs(std::process::id()),
        None,
        "a probe enables nothing"
    );
}
