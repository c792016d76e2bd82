//! Tasks of several user namespaces, each with a PID namespace of its own.

use super::{Lock, options};
use latchwork::mutex::Mutex;
use latchwork::mutex::in_region::LockError;
use latchwork::region::Region;
use latchwork_testkit::{Child, Exit, Leftover, Trial};

const NO_NAMESPACE: i32 = 2;

fn leave(code: i32) -> ! {
    // SAFETY: nothing of the process is needed any more.
    unsafe { libc::_exit(code) }
}

/// Runs `body` as the first process of a new PID namespace and as the only user of a new user namespace, where the caller's
/// user has the user ID `inside`.
fn as_mapped_user(inside: u32, body: impl Fn()) -> Exit {
    let make = || {
        let outside = rustix::process::geteuid().as_raw();
        // SAFETY: the process has one thread.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) } != 0 {
            leave(NO_NAMESPACE);
        }
        if std::fs::write("/proc/self/uid_map", format!("{inside} {outside} 1")).is_err() {
            leave(NO_NAMESPACE);
        }
        let first = Child::fork_outside(|| {
            assert_eq!(std::process::id(), 1);
            assert_eq!(rustix::process::geteuid().as_raw(), inside);
            body();
        });
        match { first }.wait() {
            Exit::Code(code) => leave(code),
            Exit::Signal(signal) => leave(128 + signal),
        }
    };
    Child::fork(make).wait()
}

fn lock_of(region: &Region) -> &Lock {
    let lock = region.object("lock", || Mutex::in_region(0_u64));
    lock.unwrap().get_ref()
}

/// A region belongs to a user, whatever user ID that user has in a namespace. A task in such a namespace is like any other.
#[test]
fn a_user_shares_a_region_with_itself_in_other_user_namespaces() {
    let _trial = Trial::begin("a_user_shares_a_region_with_itself_in_other_user_namespaces");
    for inside in [0, 1000] {
        let (name, _file) = Leftover::region("users");
        let region = options()
            .any_pid_namespace(true)
            .create_named(&name)
            .unwrap();
        *lock_of(&region).lock().unwrap() = 1;
        let ended = as_mapped_user(inside, || {
            let region = options().attach(&name).unwrap();
            let lock = lock_of(&region);
            *lock.lock().unwrap() += 1;
            core::mem::forget(lock.lock().unwrap());
            // It ends while it holds the lock.
            leave(0);
        });
        if ended == Exit::Code(NO_NAMESPACE) {
            println!("skipped: user namespaces with a user are not permitted");
            return;
        }
        assert_eq!(ended, Exit::Code(0));
        match lock_of(&region).lock() {
            Err(LockError::OwnerDied(died)) => assert_eq!(*died.make_consistent(), 2),
            other => panic!("{:?}", other.map(|held| *held)),
        }
    }
}
