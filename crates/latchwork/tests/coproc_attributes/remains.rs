//! What a confined coproc still may do, as `docs/least-privilege.md` says.

use super::confinement::{has_landlock, path_of, set_path};
use super::{counted, returned};
use latchwork::coproc::{Attributes, FileAccess, SystemCalls};
use latchwork::region::Region;
use latchwork_testkit::{Child, Leftover};
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// How many of these succeed: to read a file's metadata, to change its mode and its owner, to make a socket.
fn use_file_and_socket(region: &Region, (): ()) -> i32 {
    let path = path_of(region);
    let metadata = fs::metadata(&path);
    let owner = metadata.as_ref().ok().map(|file| (file.uid(), file.gid()));
    // An owner that is not known is not changed.
    let (user, group) = owner.unzip();
    let changes = [
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).is_ok(),
        std::os::unix::fs::chown(&path, user, group).is_ok(),
        UdpSocket::bind("0.0.0.0:0").is_ok(),
    ];
    i32::from(metadata.is_ok()) + changes.map(i32::from).iter().sum::<i32>()
}

#[test]
fn without_files_metadata_and_sockets_remain_and_without_calls_they_do_not() {
    let folder = Leftover::folder("remains");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (region, coprocs) = counted();
    set_path(&region, file.to_str().unwrap());
    let count = |attributes: &Attributes| returned(&coprocs, use_file_and_socket, (), attributes);
    assert_eq!(count(&Attributes::new()), 4);
    if has_landlock() {
        assert_eq!(count(&Attributes::new().files(FileAccess::none())), 4);
    }
    let calls = Attributes::new().system_calls(SystemCalls::library());
    assert_eq!(count(&calls), 0);
}

/// Whether another process of the user can be signalled, and put on other processors.
fn meddle(_: &Region, process: u32) -> i32 {
    let all = [u64::MAX; 16];
    // SAFETY: no signal; and a set of all processors.
    let (signal, schedule) = unsafe {
        (
            libc::syscall(libc::SYS_tgkill, process, process, 0),
            libc::syscall(
                libc::SYS_sched_setaffinity,
                process,
                size_of_val(&all),
                all.as_ptr(),
            ),
        )
    };
    i32::from(signal == 0) | i32::from(schedule == 0) << 1
}

#[test]
fn other_processes_can_be_signalled_unless_that_is_forbidden() {
    let (_region, coprocs) = counted();
    let calls = SystemCalls::library;
    let forbidden = calls().forbid([
        libc::SYS_tgkill,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
    ]);
    for (calls, expected) in [(calls(), 3), (forbidden, 0)] {
        let attributes = Attributes::new().system_calls(calls);
        let mut other = Child::fork(|| {
            loop {
                std::thread::park();
            }
        });
        let found = returned(&coprocs, meddle, other.pid() as u32, &attributes);
        other.kill();
        assert_eq!(found, expected);
    }
}

/// glibc tries `clone3` first.
#[cfg(target_env = "gnu")]
#[test]
fn a_thread_needs_clone3_where_denied_calls_kill() {
    use latchwork::coproc::Outcome;
    fn start_a_thread(_: &Region, (): ()) -> i32 {
        std::thread::spawn(|| 7).join().unwrap()
    }
    let (_region, coprocs) = counted();
    let calls = || SystemCalls::library().denied_kills();
    let outcome = |calls: SystemCalls| {
        let attributes = Attributes::new().system_calls(calls).core_size(0);
        let coproc = coprocs.spawn_value(start_a_thread, (), &attributes);
        coproc.unwrap().join().unwrap().outcome
    };
    let killed = outcome(calls());
    let by_signal = matches!(
        killed,
        Outcome::Signalled {
            signal: libc::SIGSYS,
            ..
        }
    );
    assert!(by_signal, "{killed:?}");
    let ended = outcome(calls().allow([libc::SYS_clone3]));
    assert!(matches!(ended, Outcome::Returned(7)), "{ended:?}");
}
