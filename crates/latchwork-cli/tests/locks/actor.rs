//! Programs that `latchwork locks` inspects, and its report on them.

use latchwork::mutex::{Mutex, Robust};
use latchwork::region::{Region, RegionOptions};
use latchwork_testkit::Leftover;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

pub const ROLE: &str = "LATCHWORK_TEST_ROLE";
pub const NAME: &str = "LATCHWORK_TEST_NAME";

/// The C program, and its directory, which is removed on drop; `None` without a compiler.
pub fn c_program() -> Option<(PathBuf, Leftover)> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/locks/hang.c");
    latchwork_testkit::compile(source.as_ref(), "hang", &[])
}

/// The report of the command, as JSON.
pub struct Look(pub Value);

impl Look {
    pub fn locks(&self) -> impl Iterator<Item = &Value> {
        self.0["locks"].as_array().unwrap().iter()
    }

    /// The lock of this name, or nothing.
    pub fn lock(&self, name: &str) -> Value {
        self.locks()
            .find(|lock| lock["name"] == name)
            .cloned()
            .unwrap_or(Value::Null)
    }

    fn name_of(&self, task: &Value) -> String {
        let task = &self.0["tasks"][task.as_u64().unwrap() as usize];
        let own = task["name"].as_str().unwrap();
        let joined = task["regions"][0]["name"]
            .as_str()
            .filter(|name| !name.is_empty());
        joined.unwrap_or(own).to_owned()
    }

    pub fn owner(&self, lock: &Value) -> Option<String> {
        lock["owners"]
            .as_array()?
            .first()
            .map(|owner| self.name_of(owner))
    }

    pub fn waiters(&self, lock: &str) -> Vec<String> {
        let lock = self.lock(lock);
        let waiters = lock["waiters"].as_array().cloned().unwrap_or_default();
        waiters
            .iter()
            .map(|waiter| self.name_of(&waiter["task"]))
            .collect()
    }

    /// The task of this name, or nothing.
    pub fn task(&self, name: &str) -> Value {
        let tasks = self.0["tasks"].as_array().unwrap();
        let none = serde_json::json!({ "waits_for": [] });
        tasks
            .iter()
            .find(|task| task["name"] == name)
            .cloned()
            .unwrap_or(none)
    }

    /// The lock that a task waits for.
    pub fn wanted_by(&self, task: &str) -> &Value {
        let lock = self.task(task)["waits_for"][0].as_u64();
        &self.0["locks"][lock.unwrap_or_else(|| panic!("{task} in {:#}", self.0)) as usize]
    }

    /// The names of the tasks of each cycle, sorted.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let cycles = self.0["cycles"].as_array().unwrap();
        let names = |cycle: &Value| {
            let mut names: Vec<_> = cycle
                .as_array()
                .unwrap()
                .iter()
                .map(|step| self.name_of(&step["task"]))
                .collect();
            names.sort_unstable();
            names
        };
        cycles.iter().map(names).collect()
    }
}

/// A process that runs a role, until it is dropped. It leads a group, which is killed with it.
pub struct Actor {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<std::process::ChildStdout>,
    region: Option<Region>,
}

impl Actor {
    pub fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let ready = stdout
            .by_ref()
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with("ready"));
        let stdin = child.stdin.take();
        let actor = Self {
            child,
            stdin,
            stdout,
            region: None,
        };
        assert!(ready, "the actor failed");
        actor
    }

    /// One of the roles of `roles.rs`, in a copy of this program.
    pub fn role(role: &str, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "roles::role", "--nocapture"])
            .env(ROLE, role)
            .env(NAME, name);
        let mut actor = Self::start(command);
        if role == "busy" {
            actor.region = RegionOptions::new().attach(name).ok();
        }
        actor
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The progress of the role `busy`.
    pub fn progress(&self) -> u64 {
        let region = self.region.as_ref().expect("a busy one");
        *region
            .find::<Mutex<u64, Robust>>("table")
            .unwrap()
            .lock()
            .unwrap()
    }

    /// Ends it; returns whether it exited successfully.
    pub fn finish(mut self) -> bool {
        drop(self.stdin.take());
        let _ = self.stdout.read_to_end(&mut Vec::new());
        self.child.wait().unwrap().success()
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
