//! What the tests of the command share: running it under a watchdog, regions of other processes,
//! and files that pose as regions. All of it is cleaned up on drop.

#![allow(dead_code, reason = "each test file uses a part")]

use latchwork::mutex::{Mutex, RegionGuard};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::{Leftover, output_of};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

/// A name that no other test, and no other run, uses.
pub fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!(
        "test-{}-{}-{what}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_latchwork"));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the command.
pub fn run(args: &[&str]) -> Output {
    output_of(command().args(args).spawn().unwrap())
}

/// Runs the command as the user nobody, if that user can access it.
pub fn run_as_nobody(args: &[&str]) -> Option<Output> {
    match command().args(args).uid(65534).gid(65534).spawn() {
        Ok(child) => Some(output_of(child)),
        Err(error) => {
            eprintln!("skipped: the command cannot be run by others: {error}");
            None
        }
    }
}

pub fn stdout(output: &Output) -> String {
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Runs the command with `--json`; it must end by itself and print one object.
pub fn json(args: &[&str]) -> serde_json::Value {
    let output = run(&[args, &["--json"]].concat());
    assert!(
        output.status.code().is_some(),
        "{args:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// The one region of this name that `ps` shows.
pub fn region(name: &str) -> serde_json::Value {
    let report = json(&["ps", name]);
    let [region] = report["regions"].as_array().unwrap().as_slice() else {
        panic!("{report:#}")
    };
    region.clone()
}

/// The outcome that `gc` reports for a name.
pub fn gc(name: &str, more: &[&str]) -> String {
    let report = json(&[&["gc", name], more].concat());
    report["files"][0]["outcome"].as_str().unwrap().to_owned()
}

/// Removes what lies under a region's name.
pub struct Named(pub String, Leftover);

impl Named {
    pub fn new(what: &str) -> Self {
        let (name, file) = Leftover::region(what);
        Self(name, file)
    }

    /// A file that is named like a region.
    pub fn file(what: &str, bytes: &[u8]) -> Self {
        let named = Self::new(what);
        std::fs::write(named.path(), bytes).unwrap();
        named
    }

    pub fn path(&self) -> &Path {
        self.1.path()
    }

    pub fn exists(&self) -> bool {
        self.path().symlink_metadata().is_ok()
    }
}

/// The bytes of a small region with an object that no process uses any more.
pub fn region_bytes() -> Vec<u8> {
    let named = Named::new("model");
    let options = RegionOptions::new()
        .max_bytes(1 << 20)
        .max_tasks(8)
        .max_names(8);
    let region = options.create_named(&named.0).unwrap();
    region.object("answer", || 42u64).unwrap();
    region.detach().unwrap();
    std::fs::read(named.path()).unwrap()
}

const ROLE: &str = "LATCHWORK_TEST_REGION";
const LOCK: &str = "LATCHWORK_TEST_LOCK";
/// The name of the lock for which a task waits.
pub const WAITED_FOR: &str = "waited-for";
pub const ANONYMOUS: &str = "anonymous:";

/// Another process that has a region, with two tasks, until it is killed or dropped.
pub struct Holder {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Kept open: the harness in the child goes on writing.
    _stdout: BufReader<ChildStdout>,
}

impl Holder {
    /// Makes a region of this name, or an anonymous one if the name starts so, and an object in it.
    pub fn of(name: &str) -> Self {
        Self::start(name, "")
    }

    /// The same, with the lock [`WAITED_FOR`] in the region, for which one of the tasks waits.
    pub fn with_waiter(name: &str) -> Self {
        Self::start(name, WAITED_FOR)
    }

    fn start(name: &str, lock: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "common::holder_process", "--nocapture"])
            .env(ROLE, name)
            .env(LOCK, lock)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let ready = stdout
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("ready"));
        let stdin = child.stdin.take();
        let holder = Self {
            child,
            stdin,
            _stdout: stdout,
        };
        assert!(ready, "the holder failed");
        holder
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

/// No test: what a [`Holder`] runs.
#[test]
fn holder_process() {
    let Ok(name) = std::env::var(ROLE) else {
        return;
    };
    let options = RegionOptions::new().max_bytes(4 << 20);
    let region = match name.strip_prefix(ANONYMOUS) {
        Some(label) => options.label(label).create_anonymous().unwrap(),
        None => options.create_named(&name).unwrap(),
    };
    region.join("first").unwrap();
    region.object("answer", || 42u64).unwrap();
    let other = region.clone();
    let (joined, wait) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let name = std::env::var(LOCK).unwrap();
    let wanted = name.clone();
    let held = (!name.is_empty()).then(|| locked(&region, &name));
    let thread = std::thread::spawn(move || {
        other.join("second").unwrap();
        joined.send(()).unwrap();
        if !wanted.is_empty() {
            drop(locked(&other, &wanted));
        }
        let _ = ended.recv();
    });
    wait.recv().unwrap();
    println!("ready");
    // Until our parent drops its end, or dies.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(held);
    drop(end);
    thread.join().unwrap();
}

/// The lock of this name.
fn locked<'a>(region: &'a Region, name: &str) -> RegionGuard<'a, u32> {
    let lock = region.object(name, || Mutex::in_region(0_u32)).unwrap();
    lock.get_ref().lock().unwrap()
}
