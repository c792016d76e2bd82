//! Attaching what is no sound region: a typed error, and never a panic, a signal or a hang.
//!
//! Each attach runs in a process of its own, so that one that ended badly would be seen.

use latchwork::mutex::{LockError, Mutex, Robust};
use latchwork::region::{AttachError, Region, RegionOptions};
use latchwork_testkit::{Child, Exit, Leftover, Seed, output_of};
use rustix::fs::{CWD, FileType, Mode};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};

mod tables;

/// Where the identity's fields lie in the file: frozen, since builds tell each other apart by them.
mod at {
    pub const VERSION: usize = 8;
    pub const MAX_TASKS: usize = 12;
    pub const FINGERPRINT: usize = 16;
    pub const BASE: usize = 24;
    pub const MAX_BYTES: usize = 32;
    pub const PID_NAMESPACE: usize = 40;
    pub const MAX_NAMES: usize = 48;
    pub const END: usize = 128;
}

/// What lies under a region's name; removed on drop.
struct Named(String, Leftover);

impl Named {
    fn new(what: &str) -> Self {
        let (name, file) = Leftover::region(what);
        Self(name, file)
    }

    fn file(what: &str, bytes: &[u8]) -> Self {
        let named = Self::new(what);
        std::fs::write(named.path(), bytes).unwrap();
        named
    }

    fn path(&self) -> &Path {
        self.1.path()
    }
}

/// A sound region with one object.
fn make_region(named: &Named) -> Region {
    let region = RegionOptions::new()
        .max_bytes(8 << 20)
        .max_tasks(8)
        .max_names(8)
        .create_named(&named.0)
        .unwrap();
    region.object("answer", || [42u64; 64]).unwrap();
    region
}

/// The bytes of a sound region that no process has.
fn region_bytes() -> Vec<u8> {
    let named = Named::new("model");
    make_region(&named).detach().unwrap();
    std::fs::read(named.path()).unwrap()
}

fn put(bytes: &mut [u8], at: usize, words: &[u64]) {
    for (index, word) in words.iter().enumerate() {
        let place = at + 8 * index;
        bytes[place..place + 8].copy_from_slice(&word.to_ne_bytes());
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn with(at: usize, value: &[u8]) -> Vec<u8> {
    let mut bytes = region_bytes();
    bytes[at..at + value.len()].copy_from_slice(value);
    bytes
}

const ROLE: &str = "LATCHWORK_TEST_ATTACH";

/// Attaches in a process of its own, prepared as `role` says; what it reported. One that hangs is
/// killed, and one that ends in any way but its own fails the test.
fn attach_as(role: &str, named: &Named) -> String {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "attach_process", "--nocapture"])
        .env(ROLE, format!("{role}:{}", named.0))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = output_of(child);
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {}: {text}{said}",
        named.0,
        output.status
    );
    // The harness writes the name of the test on the same line.
    let (_, result) = text
        .split_once("result=")
        .unwrap_or_else(|| panic!("{text}{said}"));
    result.lines().next().unwrap().to_owned()
}

fn attach(named: &Named) -> String {
    attach_as("plain", named)
}

/// No test: what [`attach_as`] runs.
#[test]
#[allow(unsafe_code)]
fn attach_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (role, name) = role.split_once(':').unwrap();
    let options = RegionOptions::new().max_bytes(1 << 20);
    let mut occupant = None;
    match role.trim_start_matches("observe,").split_once('=') {
        Some(("occupy", address)) => {
            occupant = Some(
                options
                    .address(address.parse().unwrap())
                    .create_anonymous()
                    .unwrap(),
            )
        }
        Some(("user", id)) => {
            let id = rustix::process::Uid::from_raw(id.parse().unwrap());
            rustix::thread::set_thread_res_uid(id, id, id).unwrap();
        }
        // As another user, of this group alone.
        Some(("group", id)) => {
            let group = rustix::process::Gid::from_raw(id.parse().unwrap());
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            let user = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        _ => {}
    }
    let mut options = RegionOptions::new();
    if role == "trust" || role.contains("group=") {
        // SAFETY: the test has made it, and gave it away.
        options = unsafe { options.trust_any_owner(true) };
    }
    if role.starts_with("observe,") {
        println!(
            "result={}",
            options
                .observe(name)
                .map_or_else(|error| format!("{error:?}"), |_| "observed".into())
        );
        return;
    }
    match options.attach(name) {
        Ok(_) if role == "look" => println!("result=attached"),
        Ok(region) if role == "find" => {
            println!(
                "result={:?}",
                region.find::<[u64; 64]>("answer").map(|_| ())
            );
        }
        Ok(region) if role == "obtain" => {
            let count = latchwork::semaphore::CountingSemaphore::open(&region, "count").unwrap();
            let obtained = (0..9).take_while(|_| count.try_obtain().is_ok()).count();
            println!("result={obtained}");
        }
        Ok(region) if role == "nest" => {
            let binary = latchwork::semaphore::BinarySemaphore::open(&region, "binary").unwrap();
            let _ = (binary.try_obtain().unwrap(), binary.try_obtain().unwrap());
            println!("result={:?}", binary.owner());
        }
        // Another task comes, and dies.
        Ok(region) if role == "outlive" => {
            let blocks = || region.heap_stats().shared_blocks;
            let before = blocks();
            let mut next = Child::fork(|| {
                let _ = region.allocate(std::alloc::Layout::new::<u64>());
                latchwork_testkit::die()
            });
            assert_eq!(next.wait(), Exit::Signal(libc::SIGKILL));
            assert_eq!(region.sweep().unwrap().dead.len(), 1);
            println!("result={:?}", (before, before - blocks()));
        }
        Ok(region) if role == "abroad" => println!("result={}", use_container_from_abroad(&region)),
        Ok(region) => {
            // What was let in must be usable.
            region.object("probe", || 7u64).unwrap();
            region.check_heap().unwrap();
            println!("result=attached");
        }
        Err(error) => println!("result={error:?}"),
    }
    drop(occupant);
}

#[test]
fn a_sound_file_is_attached() {
    assert_eq!(attach(&Named::file("sound", &region_bytes())), "attached");
}

#[test]
fn a_file_without_the_magic_number_is_not_a_region() {
    let mut noise = [0; 20_000];
    Seed::announced().rng(0).fill(&mut noise);
    for bytes in [
        &b""[..],
        b"latchwrk",
        b"somebody else's data",
        &[0; 8192],
        &noise,
    ] {
        assert_eq!(attach(&Named::file("foreign", bytes)), "NotARegion");
    }
}

#[test]
fn a_file_that_is_not_regular_is_not_a_region() {
    let fifo = Named::new("fifo");
    rustix::fs::mknodat(CWD, fifo.path(), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let directory = Named::new("directory");
    std::fs::create_dir(directory.path()).unwrap();
    let socket = Named::new("socket");
    let listener = std::os::unix::net::UnixListener::bind(socket.path()).unwrap();
    let target = Named::file("target", &region_bytes());
    let link = Named::new("link");
    symlink(target.path(), link.path()).unwrap();
    for named in [&fifo, &directory, &socket, &link] {
        assert_eq!(attach(named), "NotARegion", "{}", named.0);
    }
    drop(listener);
}

#[test]
fn an_unknown_name_is_not_found() {
    assert_eq!(attach(&Named::new("nobody")), "NotFound");
    assert!(matches!(
        RegionOptions::new().attach("../escape"),
        Err(AttachError::Name(_))
    ));
}

#[test]
fn another_layout_is_refused_by_its_fingerprint() {
    let found = 0x0123_4567_89ab_cdef_u64;
    let said = attach(&Named::file(
        "layout",
        &with(at::FINGERPRINT, &found.to_ne_bytes()),
    ));
    assert!(
        said.starts_with(&format!("OtherBuild {{ found: {found}")),
        "{said}"
    );
    let said = attach(&Named::file(
        "version",
        &with(at::VERSION, &u32::MAX.to_ne_bytes()),
    ));
    assert!(said.starts_with("OtherBuild"), "{said}");
}

#[test]
fn another_pid_namespace_is_refused_and_named() {
    let said = attach(&Named::file(
        "namespace",
        &with(at::PID_NAMESPACE, &17u64.to_ne_bytes()),
    ));
    assert!(
        said.starts_with("OtherPidNamespace { region: 17, here: "),
        "{said}"
    );
}

#[test]
fn capacities_and_addresses_beyond_all_bounds_are_damage() {
    let unaligned = 0x2000_0000_1000_u64.to_ne_bytes();
    let kernel = 0xffff_8000_0000_0000_u64.to_ne_bytes();
    let cases: [(&str, usize, &[u8]); 9] = [
        ("no-bytes", at::MAX_BYTES, &[0; 8]),
        ("bytes", at::MAX_BYTES, &[0xff; 8]),
        ("no-tasks", at::MAX_TASKS, &[0; 2]),
        ("tasks", at::MAX_TASKS, &[0xff; 2]),
        ("no-names", at::MAX_NAMES, &[0; 4]),
        ("names", at::MAX_NAMES, &[0xff; 4]),
        ("unaligned", at::BASE, &unaligned),
        ("kernel", at::BASE, &kernel),
        ("end", at::BASE, &[0xff; 8]),
    ];
    for (what, at, value) in cases {
        let said = attach(&Named::file(what, &with(at, value)));
        assert!(said.starts_with("Damaged"), "{what}: {said}");
    }
}

#[test]
fn a_file_shorter_than_its_tables_is_truncated() {
    let bytes = region_bytes();
    let large = with(at::MAX_BYTES, &(1u64 << 40).to_ne_bytes());
    for cut in [
        &bytes[..at::END],
        &bytes[..4096],
        &bytes[..bytes.len() / 2],
        &large,
    ] {
        let said = attach(&Named::file("cut", cut));
        assert!(said.starts_with("Truncated"), "{} bytes: {said}", cut.len());
    }
}

#[test]
fn a_file_shorter_than_its_heap_is_truncated() {
    let bytes = region_bytes();
    let said = attach(&Named::file("heap", &bytes[..bytes.len() - (64 << 10)]));
    assert!(said.starts_with("Truncated"), "{said}");
}

#[test]
fn a_sparse_file_gets_its_memory_before_it_is_touched() {
    let bytes = region_bytes();
    let named = Named::new("sparse");
    let file = std::fs::File::create(named.path()).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    file.write_all_at(&bytes[..4096], 0).unwrap();
    // Its tables read as zero: an empty heap and no tasks, or damage, but no SIGBUS.
    let said = attach(&named);
    assert!(said == "attached" || said.starts_with("Damaged"), "{said}");
}

#[test]
fn a_taken_address_is_named() {
    let bytes = region_bytes();
    let base = u64::from_ne_bytes(bytes[at::BASE..at::BASE + 8].try_into().unwrap());
    let said = attach_as(&format!("occupy={base}"), &Named::file("taken", &bytes));
    assert_eq!(said, format!("AddressTaken {{ base: {base} }}"));
}

#[test]
fn a_file_of_another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to become somebody else");
        return;
    }
    let named = Named::file("private", &region_bytes());
    rustix::fs::chmod(named.path(), Mode::RUSR | Mode::WUSR).unwrap();
    assert_eq!(attach_as("user=65534", &named), "Permission");
}

/// The owner of a file could have put anything there. That holds for root, too.
#[test]
fn a_file_that_another_user_owns_must_be_trusted_explicitly() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to give a file away");
        return;
    }
    let named = Named::file("given", &region_bytes());
    std::os::unix::fs::chown(named.path(), Some(65534), None).unwrap();
    assert_eq!(attach(&named), "Permission");
    assert_eq!(attach_as("trust", &named), "attached");
}

/// Where no user has a name, all owners seem to be the caller.
#[test]
#[allow(unsafe_code)]
fn a_file_of_another_user_is_refused_in_a_user_namespace_that_maps_no_users() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to give a file away");
        return;
    }
    let named = Named::file("unmapped", &region_bytes());
    std::os::unix::fs::chown(named.path(), Some(1234), None).unwrap();
    rustix::fs::chmod(named.path(), Mode::from_raw_mode(0o666)).unwrap();
    const ATTACHED: i32 = 1;
    const NO_NAMESPACE: i32 = 2;
    let attach = |trusts| {
        let attach = || {
            // SAFETY: the child has one thread.
            if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
                std::process::exit(NO_NAMESPACE);
            }
            let owner = std::fs::metadata(named.path()).unwrap().uid();
            assert_eq!(owner, rustix::process::geteuid().as_raw());
            // SAFETY: the test has made it, and gave it away.
            let options = unsafe { RegionOptions::new().trust_any_owner(trusts) };
            let (attached, observed) = (options.attach(&named.0), options.observe(&named.0));
            match (attached, observed) {
                (Err(AttachError::Permission), Err(AttachError::Permission)) => {}
                (Ok(_), Err(_)) => std::process::exit(ATTACHED),
                other => panic!("{other:?}"),
            }
        };
        Child::fork(attach).wait()
    };
    match attach(false) {
        Exit::Code(NO_NAMESPACE) => eprintln!("skipped: user namespaces are not permitted"),
        refused => {
            assert_eq!(refused, Exit::Code(0));
            assert_eq!(attach(true), Exit::Code(ATTACHED));
        }
    }
}

/// It is refused before its locks are asked for: whoever owns it could keep them for ever.
#[test]
fn a_locked_file_of_another_user_is_refused_at_once() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to give a file away");
        return;
    }
    let named = Named::file("locked", &region_bytes());
    let file = std::fs::File::open(named.path()).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::os::unix::fs::chown(named.path(), Some(65534), None).unwrap();
    assert_eq!(attach(&named), "Permission");
}

/// The mode admits a group, whose members must trust the owner; or who only read.
#[test]
fn the_mode_of_a_region_admits_its_group_and_no_other() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, to become another user");
        return;
    }
    const GROUP: u32 = 65533;
    for (mode, attached, observed) in [
        (0o660, "attached", "observed"),
        (0o640, "Permission", "observed"),
        (0o600, "Permission", "Permission"),
    ] {
        let named = Named::new("group");
        let options = RegionOptions::new().max_bytes(1 << 20).mode(mode);
        options.create_named(&named.0).unwrap().detach().unwrap();
        std::os::unix::fs::chown(named.path(), None, Some(GROUP)).unwrap();
        assert_eq!(attach_as("group=65533", &named), attached, "{mode:o}");
        assert_eq!(
            attach_as("observe,group=65533", &named),
            observed,
            "{mode:o}"
        );
        for other in ["group=65532", "observe,group=65532"] {
            assert_eq!(attach_as(other, &named), "Permission", "{mode:o}");
        }
    }
}

type Abroad = Mutex<latchwork::region::Vec<u64>, Robust>;

/// As a process that has not attached the container's own region.
fn use_container_from_abroad(region: &Region) -> &'static str {
    let abroad = region.find::<Abroad>("abroad").unwrap();
    let looked = catch_unwind(AssertUnwindSafe(|| abroad.lock().unwrap()[0]));
    let Err(LockError::OwnerDied(died)) = abroad.lock() else {
        return "no panic";
    };
    // What it cannot reach it cannot free.
    let mut repaired = died.make_consistent();
    repaired
        .as_mut()
        .set(latchwork::region::Vec::new_in(region));
    drop(repaired);
    match looked {
        Ok(_) => "followed",
        Err(_) => "panicked",
    }
}

#[test]
fn a_container_of_a_region_that_is_not_attached_is_not_followed() {
    let (named, home) = (Named::new("abroad"), Named::new("home"));
    let region = make_region(&named);
    let home = make_region(&home);
    let abroad = region
        .object("abroad", || {
            Abroad::robust(latchwork::region::Vec::new_in(&home))
        })
        .unwrap();
    abroad.lock().unwrap().edit().push(5).unwrap();
    assert_eq!(abroad.lock().unwrap()[0], 5);
    assert_eq!(attach_as("abroad", &named), "panicked");
    assert!(abroad.lock().unwrap().is_empty());
}
