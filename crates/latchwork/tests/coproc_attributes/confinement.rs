//! Least privilege: what a coproc may not do, and that the library works in spite of it.

use super::coproc_support::{Copying as _, isolated, until};
use super::{counted, refused, returned};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use latchwork::condvar::Condvar;
use latchwork::coproc::{Attributes, FileAccess, Outcome, Signal, SpawnError, SystemCalls};
use latchwork::event::{EventSet, Events};
use latchwork::mutex::in_region::LockError;
use latchwork::mutex::{self, InRegion, Mutex, Robust};
use latchwork::queue::{Queue, QueueOptions};
use latchwork::region::{Region, Vec as RegionVec};
use latchwork::semaphore::{BinaryOptions, BinarySemaphore, CountingSemaphore, Discipline};
use latchwork::sharing::Shared;
use latchwork_testkit::step::Alarm;
use latchwork_testkit::{Child, Leftover, refuse};
use std::sync::Barrier;
use std::time::Duration;

/// The strictest that is ready-made.
fn strictest() -> Attributes {
    let attributes = Attributes::new()
        .no_new_privs()
        .files(FileAccess::none())
        .system_calls(SystemCalls::library());
    match has_landlock() {
        true => attributes,
        false => attributes.best_effort(),
    }
}

/// Whether the kernel has what [`FileAccess`] needs; says so if not.
pub fn has_landlock() -> bool {
    // SAFETY: it asks for the version, with no pointer.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
    if version < 3 {
        eprintln!(
            "skipped: files are not restricted: the kernel has Landlock {version}, and not 3"
        );
    }
    version >= 3
}

fn errno_of<T>(result: std::io::Result<T>) -> i32 {
    result.map_or_else(|error| error.raw_os_error().unwrap_or(-1), |_| 0)
}

/// The path that [`set_path`] has put into a region.
pub fn path_of(region: &Region) -> String {
    let path = region.find::<[u8; 256]>("path").unwrap();
    let path = std::str::from_utf8(path.get_ref()).unwrap();
    path.trim_end_matches('\0').to_owned()
}

pub fn set_path(region: &Region, path: &str) {
    let mut place = [0; 256];
    place[..path.len()].copy_from_slice(path.as_bytes());
    region.object("path", || place).unwrap();
}

/// Opens as `open` does, in a coproc: 0, or the error's number.
fn open_in_coproc(attributes: &Attributes, path: &str, write: bool) -> i32 {
    fn open(region: &Region, write: u32) -> i32 {
        let mut options = std::fs::OpenOptions::new();
        let options = options.read(write == 0).write(write != 0);
        errno_of(options.open(path_of(region)))
    }
    let (region, coprocs) = counted();
    set_path(&region, path);
    returned(&coprocs, open, u32::from(write), attributes)
}

#[test]
fn files_that_are_not_listed_are_denied() {
    if !has_landlock() {
        return;
    }
    let folder = Leftover::folder("confined");
    let [readable, writable] = ["readable", "writable"].map(|name| folder.path().join(name));
    for place in [&readable, &writable] {
        std::fs::create_dir(place).unwrap();
        std::fs::write(place.join("file"), "text").unwrap();
    }
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let files = FileAccess::none().read(&readable).write(&writable);
    let attributes = Attributes::new().files(files);
    for attributes in [attributes.clone(), attributes.copying()] {
        for (place, reads, writes) in [
            (&readable, 0, libc::EACCES),
            (&writable, 0, 0),
            (&folder.path().to_owned(), libc::EACCES, libc::EACCES),
        ] {
            let file = place.join("file");
            let file = file.to_str().unwrap();
            assert_eq!(open_in_coproc(&attributes, file, false), reads, "{file}");
            assert_eq!(open_in_coproc(&attributes, file, true), writes, "{file}");
        }
        assert_eq!(
            open_in_coproc(&attributes, "/etc/passwd", false),
            libc::EACCES
        );
    }
}

#[test]
fn a_path_that_is_not_there_is_refused_by_name() {
    if !has_landlock() {
        return;
    }
    let files = FileAccess::none().read("/nowhere/at/all");
    refused(
        &counted(),
        &Attributes::new().files(files),
        "files",
        libc::ENOENT,
    );
}

#[test]
fn system_calls_that_are_not_listed_are_denied() {
    fn denied(_: &Region, (): ()) -> i32 {
        let open = errno_of(std::fs::File::open("/dev/null"));
        let socket = errno_of(std::net::UdpSocket::bind("127.0.0.1:0"));
        let start = errno_of(std::process::Command::new("/bin/true").spawn());
        // SAFETY: a fork, which is refused.
        let fork = unsafe { libc::fork() };
        if fork == 0 {
            std::process::abort();
        }
        let refused = [open, socket, start]
            .iter()
            .all(|error| *error == libc::ENOSYS);
        i32::from(refused && fork == -1)
    }
    let (_region, coprocs) = counted();
    let attributes = Attributes::new().system_calls(SystemCalls::library());
    assert_eq!(returned(&coprocs, denied, (), &attributes), 1);
    // Some more.
    fn opens(_: &Region, (): ()) -> i32 {
        errno_of(std::fs::File::open("/dev/null"))
    }
    let calls = SystemCalls::library().allow([libc::SYS_openat]);
    let attributes = Attributes::new().system_calls(calls);
    assert_eq!(returned(&coprocs, opens, (), &attributes), 0);
    assert_eq!(returned(&coprocs, opens, (), &attributes.copying()), 0);
}

#[test]
fn a_denied_system_call_kills_on_request() {
    fn opens(_: &Region, (): ()) -> i32 {
        errno_of(std::fs::File::open("/dev/null"))
    }
    let (_region, coprocs) = counted();
    let calls = SystemCalls::library().denied_kills();
    let attributes = Attributes::new().system_calls(calls).core_size(0);
    let coproc = coprocs.spawn_value(opens, (), &attributes).unwrap();
    let outcome = coproc.join().unwrap().outcome;
    assert!(
        matches!(
            outcome,
            Outcome::Signalled {
                signal: libc::SIGSYS,
                ..
            }
        ),
        "{outcome:?}"
    );
}

/// After a death, the next owners ask which tasks are being killed. `/proc` would say.
#[test]
fn a_death_ends_no_coproc_that_must_not_open_files() {
    fn locks(region: &Region, (): ()) -> i32 {
        let lock = region.find::<Mutex<u32, InRegion>>("lock").unwrap();
        match lock.get_ref().lock() {
            Err(LockError::OwnerDied(died)) => died.make_consistent().to_owned().cast_signed(),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
    let (region, coprocs) = counted();
    let lock = region.object("lock", || Mutex::in_region(0_u32)).unwrap();
    let strict = SystemCalls::library().denied_kills();
    let attributes = Attributes::new().system_calls(strict).core_size(0);
    for died_before_the_sweep in 0..2 {
        let mut dying = Child::fork(|| {
            // A task that lives as long as its process, and may be dying at any time.
            let _other = std::thread::spawn({
                let region = region.clone();
                move || {
                    region.join("other").unwrap();
                    std::thread::park();
                }
            });
            let mut guard = lock.get_ref().lock().unwrap();
            *guard = 7;
            core::mem::forget(guard);
            // SAFETY: it ends this process, which is the test's own.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        });
        dying.wait();
        if died_before_the_sweep == 0 {
            region.sweep().unwrap();
        }
        assert_eq!(returned(&coprocs, locks, (), &attributes), 7);
    }
}

/// A waiter that has slept for long asks whether the owner's thread exists, and a new task whether some others do.
#[test]
fn a_long_wait_ends_no_coproc_that_may_do_little() {
    fn waits(region: &Region, (): ()) -> i32 {
        let long = Duration::from_millis(1100);
        let lock = region.find::<Mutex<u32, InRegion>>("lock").unwrap();
        let first = matches!(lock.lock_for(long), Err(LockError::TimedOut));
        let robust = region.find::<Mutex<u32, Robust>>("robust").unwrap();
        let second = matches!(robust.lock_for(long), Err(mutex::LockError::TimedOut));
        i32::from(first) + i32::from(second)
    }
    let (region, coprocs) = counted();
    let lock = region.object("lock", || Mutex::in_region(0_u32)).unwrap();
    let robust = region.object("robust", || Mutex::robust(0_u32)).unwrap();
    let strict = SystemCalls::library().denied_kills();
    let attributes = Attributes::new().system_calls(strict).core_size(0);
    let (held, end) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _guards = (lock.lock().unwrap(), robust.lock().unwrap());
            held.wait();
            end.wait();
        });
        held.wait();
        let coproc = coprocs.spawn_value(waits, (), &attributes);
        let outcome = coproc.unwrap().join().unwrap().outcome;
        end.wait();
        assert!(matches!(outcome, Outcome::Returned(2)), "{outcome:?}");
    });
}

/// The coproc dies before it can report that it has started, and signals end each wait of its creator.
#[test]
fn a_coproc_that_dies_as_it_starts_is_noticed_in_spite_of_signals() {
    let (_region, coprocs) = counted();
    let calls = SystemCalls::only([libc::SYS_exit_group]).denied_kills();
    let attributes = Attributes::new().system_calls(calls).core_size(0);
    let alarm = Alarm::new();
    alarm.set(true);
    let spawned = coprocs.spawn_value(|_, ()| 0, (), &attributes);
    drop(alarm);
    assert!(matches!(spawned, Err(SpawnError::Died)), "{spawned:?}");
}

#[test]
fn no_privileges_are_gained_by_any_of_the_three() {
    fn has_given_up(_: &Region, (): ()) -> i32 {
        // SAFETY: it asks.
        unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) }
    }
    let (_region, coprocs) = counted();
    let plain = Attributes::new;
    assert_eq!(returned(&coprocs, has_given_up, (), &plain()), 0);
    for attributes in [
        plain().no_new_privs(),
        plain().files(FileAccess::none()).best_effort(),
        plain().system_calls(SystemCalls::library()),
    ] {
        assert_eq!(returned(&coprocs, has_given_up, (), &attributes), 1);
        assert_eq!(
            returned(&coprocs, has_given_up, (), &attributes.copying()),
            1
        );
    }
}

type Turns = (Mutex<u32, InRegion>, Condvar<Shared>);

/// Takes every second turn, with waits on both sides.
fn take_turns(region: &Region, mine: u32) {
    let turns = region.find::<Turns>("turns").unwrap();
    let (turn, changed) = turns.get_ref();
    for _ in 0..50 {
        let guard = turn.lock().unwrap();
        let mut guard = changed
            .wait_in_region_while(guard, |turn| *turn % 2 != mine)
            .unwrap();
        *guard += 1;
        drop(guard);
        changed.notify_all();
    }
}

/// All that the library does, in the strictest confinement, with a creator that does the other half.
fn use_the_library(region: &Region, (): ()) -> i32 {
    take_turns(region, 1);
    let there = Queue::open(region, "there").unwrap();
    let back = Queue::open(region, "back").unwrap();
    let mut message = [0; 8];
    for _ in 0..50 {
        let length = there.receive(&mut message).unwrap();
        back.send(&message[..length]).unwrap();
    }
    let units = CountingSemaphore::open(region, "units").unwrap();
    assert!(units.obtain_for(Duration::from_millis(5)).is_err());
    units.release().unwrap();
    units.obtain().unwrap();
    let bus = BinarySemaphore::open(region, "bus").unwrap();
    drop(bus.obtain().unwrap());
    let events = Events::new(region);
    let own = region.task_id().unwrap();
    events.send(own, EventSet::event(3)).unwrap();
    assert_eq!(
        events.try_receive_all(EventSet::event(3)).unwrap(),
        EventSet::event(3)
    );
    // The heap grows, and shrinks; threads come and go, with locks that they leave to the process.
    let mut numbers = RegionVec::new_in(region);
    for number in 0..100_000_u64 {
        numbers.push(number).unwrap();
    }
    drop(numbers);
    let _ = region.trim();
    let lock = region.find::<Mutex<u32, InRegion>>("left").unwrap();
    let sum: u32 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|number| {
                scope.spawn(move || {
                    *lock.lock().unwrap() += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    number
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(sum, 6);
    std::thread::scope(|scope| {
        scope.spawn(|| core::mem::forget(lock.lock().unwrap()));
    });
    assert!(matches!(lock.try_lock(), Err(LockError::WouldBlock)));
    // The death of another task, which has a lock and a message.
    let ready = region.find::<AtomicU32>("ready").unwrap();
    ready.store(1, SeqCst);
    until(|| ready.load(SeqCst) == 2);
    let held = region.find::<Mutex<u32, InRegion>>("held").unwrap();
    let died = matches!(held.lock(), Err(LockError::OwnerDied(_)));
    let again = there.receive(&mut message).unwrap();
    assert_eq!(&message[..again], b"again");
    i32::from(died)
}

/// Has a lock and a message, until it is killed.
fn hold(region: &Region, (): ()) -> i32 {
    let held = region.find::<Mutex<u32, InRegion>>("held").unwrap();
    let _guard = held.lock().unwrap();
    let there = Queue::open(region, "there").unwrap();
    let _message = there.receive_held().unwrap();
    region.find::<AtomicU32>("ready").unwrap().store(2, SeqCst);
    loop {
        std::thread::sleep(Duration::from_secs(1000));
    }
}

fn the_library_works_with(attributes: &Attributes) {
    let (region, coprocs) = counted();
    region
        .object::<Turns>("turns", || (Mutex::in_region(0), Condvar::shared()))
        .unwrap();
    for name in ["left", "held"] {
        region.object(name, || Mutex::in_region(0_u32)).unwrap();
    }
    let ready = region.object("ready", || AtomicU32::new(0)).unwrap();
    let options = QueueOptions::new(2, 8);
    let there = Queue::create(&region, "there", &options).unwrap();
    let back = Queue::create(&region, "back", &options).unwrap();
    CountingSemaphore::create(&region, "units", 0, Discipline::Fifo).unwrap();
    BinarySemaphore::create(
        &region,
        "bus",
        &BinaryOptions::new().by_priority().inherit(),
    )
    .unwrap();
    let coproc = coprocs
        .spawn_value(use_the_library, (), attributes)
        .unwrap();
    take_turns(&region, 0);
    for number in 0..50_u8 {
        there.send(&[number; 3]).unwrap();
        let mut message = [0; 8];
        assert_eq!(back.receive(&mut message).unwrap(), 3);
        assert_eq!(message[0], number);
    }
    until(|| ready.load(SeqCst) == 1);
    // The other one is confined, too, and dies with its creator if need be.
    there.send(b"again").unwrap();
    let holder = strictest().die_with_parent();
    let holder = coprocs.spawn_value(hold, (), &holder).unwrap();
    until(|| ready.load(SeqCst) == 2);
    holder.kill(Signal::KILL).unwrap();
    let ended = coproc.join().unwrap().outcome;
    assert!(matches!(ended, Outcome::Returned(1)), "{ended:?}");
    holder.join().unwrap();
}

#[test]
fn the_library_works_in_the_strictest_confinement() {
    isolated(|| the_library_works_with(&strictest()));
}

#[test]
fn the_library_works_in_a_confined_snapshot_that_dies_with_its_parent() {
    isolated(|| the_library_works_with(&strictest().copying().die_with_parent()));
}

#[test]
fn what_the_kernel_lacks_is_an_error_or_is_left_out_on_request() {
    fn nothing(_: &Region, (): ()) -> i32 {
        7
    }
    isolated(|| {
        refuse(libc::SYS_landlock_create_ruleset, libc::ENOSYS);
        refuse(libc::SYS_landlock_restrict_self, libc::ENOSYS);
        let attributes = Attributes::new().files(FileAccess::none());
        let counted = counted();
        match counted.1.spawn_value(nothing, (), &attributes) {
            Err(SpawnError::Attribute {
                attribute: "files",
                error,
            }) => {
                assert!(
                    [libc::ENOSYS, libc::EOPNOTSUPP].contains(&error.raw_os_error()),
                    "{error}"
                );
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            returned(&counted.1, nothing, (), &attributes.best_effort()),
            7
        );
    });
    isolated(|| {
        let counted = counted();
        refuse(libc::SYS_seccomp, libc::ENOSYS);
        // Of this process, not of the server process, which was made before.
        let attributes = Attributes::new()
            .system_calls(SystemCalls::library())
            .copying();
        match counted.1.spawn_value(nothing, (), &attributes) {
            Err(SpawnError::Attribute {
                attribute: "system_calls",
                error,
            }) => {
                assert_eq!(error.raw_os_error(), libc::ENOSYS);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(
            returned(&counted.1, nothing, (), &attributes.best_effort()),
            7
        );
    });
}
