//! `run --heal`: wake-ups that glibc loses, waits that no task can end, and all that must stay as it is.

use latchwork_testkit::{Leftover, Trial, Watchdog, output_of, receive_patiently};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The exit status of `healing.c`, and of the example, if a task sleeps although it need not.
const HANGS: i32 = 3;

/// The interposer that Cargo has built for this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.with_file_name("liblatchwork_preload.so")
}

/// Compiles a program of this directory.
fn compile(source: &str, name: &str) -> Option<(PathBuf, Leftover)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    latchwork_testkit::compile(&directory.join(source), name, &[])
}

/// The command for a program with a setting, or without the interposer.
fn command(program: &Path, arguments: &str, heal: Option<&str>) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments.split_ascii_whitespace())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(heal) = heal {
        command
            .env("LD_PRELOAD", library())
            .env("LATCHWORK_HEAL", heal);
    }
    command
}

/// How a program ended: its exit status, standard output, standard error.
type Ended = (Option<i32>, String, String);

fn ended(program: Child) -> Ended {
    let output = output_of(program);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Lets all cases run at the same time, since each takes seconds; returns how each ended.
fn all<'a>(program: &Path, cases: &[&'a str], heal: Option<&str>) -> Vec<(&'a str, Ended)> {
    let started = cases.iter().map(|case| {
        let mut command = command(program, case, heal);
        if heal.is_none() {
            // It hangs, and need not be watched for long.
            command.env("PATIENCE", "3");
        }
        (*case, command.spawn().unwrap())
    });
    let started: Vec<_> = started.collect();
    let ends = started.into_iter();
    ends.map(|(case, child)| (case, ended(child))).collect()
}

/// Whether this process may see in which system call a child sleeps.
fn sees_sleeps(test: &str) -> bool {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let seen = std::fs::read(format!("/proc/{}/syscall", child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    if let Err(error) = &seen {
        eprintln!("skipped: {test}: /proc/PID/syscall of a child: {error}");
    }
    seen.is_ok()
}

/// Whether this process is where anything can be proved of other processes.
fn is_in_initial_namespace(test: &str) -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let sees_init = std::fs::read("/proc/1/status").is_ok();
    let fits = namespace == Path::new("pid:[4026531836]") && sees_init;
    if !fits {
        eprintln!("skipped: {test}: the PID namespace is {namespace:?}, not the system's");
    }
    fits
}

/// Whether this process may see what others map: as another user, it may prove nothing of a semaphore.
fn sees_maps(test: &str) -> bool {
    let seen = std::fs::read("/proc/1/maps");
    if let Err(error) = &seen {
        eprintln!("skipped: the semaphores of {test}: /proc/1/maps: {error}");
    }
    seen.is_ok()
}

#[test]
fn robust_mutexes_lose_no_wake_up() {
    let source = "../../examples/robust-lost-wakeup/robust-lost-wakeup.c";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let Some((program, _leftover)) = latchwork_testkit::compile(&source, "lost-wakeup", &[]) else {
        return;
    };
    // `lost_wakeup.rs` of `latchwork-c` has the negative twin: without `--heal` it hangs.
    for arguments in ["20 4 one", "20 4 one", "20 4", "20 2 one"] {
        let (status, output, errors) = ended(
            command(&program, arguments, Some("report"))
                .spawn()
                .unwrap(),
        );
        assert_eq!(status, Some(0), "{arguments}: {output}{errors}");
        assert!(errors.is_empty(), "{arguments}: {errors}");
        // Each newcomer was marked.
        assert!(output.contains("taken unmarked 0,"), "{output}");
    }
}

#[test]
fn a_waiter_survives_a_lost_wake_up() {
    if !sees_sleeps("a_waiter_survives_a_lost_wake_up") {
        return;
    }
    let Some((program, _leftover)) = compile("healing.c", "lost") else {
        return;
    };
    let cases = [
        "lost lock",
        "lost timedlock",
        "lost clocklock",
        "lost-plain lock",
        "lost-plain timedlock",
        "lost-plain clocklock",
        "lost-post",
        "lost-condition",
    ];
    for (case, (status, _, errors)) in all(&program, &cases, Some("report")) {
        assert_eq!(status, Some(0), "{case}: {errors}");
        assert!(errors.is_empty(), "{case}: {errors}");
    }
    // The negative twin.
    for (case, (status, _, errors)) in all(&program, &cases, None) {
        assert_eq!(status, Some(HANGS), "{case}: {errors}");
    }
}

#[test]
fn an_owner_holds_a_robust_mutex_with_the_waiters_bit() {
    let Some((program, _leftover)) = compile("healing.c", "marked") else {
        return;
    };
    for (heal, expected) in [(Some("end"), "with"), (None, "without")] {
        let (status, output, errors) = ended(command(&program, "marked", heal).spawn().unwrap());
        assert_eq!(status, Some(0), "{errors}");
        // After `trylock`, after `lock`; after a wait for a condition, where glibc sets it.
        let expected = [expected, expected, "with"].map(|word| format!("{word} the waiters bit\n"));
        assert_eq!(output, expected.concat());
    }
}

#[test]
fn an_ended_owner_is_reported_and_nothing_else_happens() {
    if !is_in_initial_namespace("an_ended_owner_is_reported_and_nothing_else_happens") {
        return;
    }
    let Some((program, _leftover)) = compile("healing.c", "reported") else {
        return;
    };
    let cases = [
        "gone killed 0 lock",
        "gone zombie 1 timedlock",
        "gone thread 2 clocklock",
        "alone gone wait",
    ];
    let semaphores = sees_maps("an_ended_owner_is_reported_and_nothing_else_happens");
    let start = |case| command(&program, case, Some("report")).spawn().unwrap();
    let cases = cases
        .into_iter()
        .filter(|case| semaphores || !case.starts_with("alone"));
    let children: Vec<_> = cases.map(|case| (case, start(case))).collect();
    for (case, mut child) in children {
        let errors = child.stderr.take().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut line = String::new();
            BufReader::new(errors).read_line(&mut line).unwrap();
            let _ = send.send(line);
        });
        let line = receive_patiently(&receive);
        let is_waiting = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        reader.join().unwrap();
        let line = line.expect("a report");
        let expected = if case.starts_with("gone") {
            "has ended without releasing it\n"
        } else {
            "which no task can post: no other process maps its memory, and this one has one thread and no signal handler\n"
        };
        assert!(
            line.starts_with("latchwork: task ") && line.ends_with(expected),
            "{case}: {line}"
        );
        assert!(is_waiting, "{case}: {line}");
        let mut output = String::new();
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_to_string(&mut output).unwrap();
        assert!(output.is_empty(), "{case}: {output}");
    }
}

#[test]
fn a_wait_that_no_task_can_end_is_ended() {
    if !is_in_initial_namespace("a_wait_that_no_task_can_end_is_ended") {
        return;
    }
    let Some((program, _leftover)) = compile("healing.c", "ended") else {
        return;
    };
    let cases = [
        "gone killed 0 lock",
        "gone killed 1 lock",
        "gone killed 2 lock",
        "gone killed 3 timedlock",
        "gone zombie 0 clocklock",
        "gone thread 0 lock",
        "many",
        "alone gone wait",
        "alone gone timedwait",
        "alone gone clockwait",
    ];
    let semaphores = sees_maps("a_wait_that_no_task_can_end_is_ended");
    let cases = cases
        .into_iter()
        .filter(|case| semaphores || !case.starts_with("alone"));
    let cases: Vec<_> = cases.collect();
    for (case, (status, output, errors)) in all(&program, &cases, Some("end")) {
        assert_eq!(status, Some(0), "{case}: {errors}");
        let expected = match case {
            // So many waiters have taken over.
            "many" => "1\n",
            _ if case.starts_with("gone") => "EOWNERDEAD\n",
            _ => "-1 EOWNERDEAD\n",
        };
        assert_eq!(output, expected, "{case}: {errors}");
        let reports = errors
            .lines()
            .filter(|line| line.ends_with("; the wait ends with EOWNERDEAD"));
        assert_eq!(reports.count(), 1, "{case}: {errors}");
        assert_eq!(errors.lines().count(), 1, "{case}: {errors}");
    }
}

#[test]
fn a_wait_that_some_task_may_end_goes_on() {
    let Some((program, _leftover)) = compile("healing.c", "going-on") else {
        return;
    };
    let cases = [
        "gone living 0 moments",
        "gone living 2 moments",
        "gone stopped 0 moments",
        "gone stranger 0 moments",
        "alone living moments",
        "alone handler moments",
        "alone thread moments",
        "alone file moments",
    ];
    for (case, (status, output, errors)) in all(&program, &cases, Some("end")) {
        if output.contains("skipped") {
            eprint!("{case}: {output}");
            continue;
        }
        assert_eq!(status, Some(0), "{case}: {errors}");
        let expected = if case.starts_with("gone") {
            "ETIMEDOUT\n"
        } else {
            "-1 ETIMEDOUT\n"
        };
        assert_eq!(output, expected, "{case}: {errors}");
        assert!(errors.is_empty(), "{case}: {errors}");
    }
}

/// Where no death and no wake-up is lost.
#[test]
fn process_shared_objects_behave_the_same() {
    if !sees_sleeps("process_shared_objects_behave_the_same") {
        return;
    }
    for source in ["shared", "conformance"] {
        let Some((program, _leftover)) = compile(&format!("{source}.c"), source) else {
            return;
        };
        let plain = ended(command(&program, "", None).spawn().unwrap());
        assert_eq!(plain.0, Some(0), "{source}: {}", plain.2);
        for (heal, mutex) in [("report", "glibc"), ("end", "glibc"), ("end", "tp")] {
            let mut command = command(&program, "", Some(heal));
            let healed = ended(command.env("LATCHWORK_MUTEX", mutex).spawn().unwrap());
            assert_eq!(healed, plain, "{source}: {heal}, {mutex}");
        }
    }
}

#[test]
fn programs_behave_the_same() {
    for uses in ["mutexes", "conditions", "corners"] {
        let Some((program, _leftover)) = compile(&format!("{uses}.c"), uses) else {
            return;
        };
        let case = if uses == "corners" { "destroyed" } else { "" };
        let (status, _, errors) = ended(command(&program, case, Some("end")).spawn().unwrap());
        assert_eq!(status, Some(0), "{uses}: {errors}");
        assert!(errors.is_empty(), "{uses}: {errors}");
    }
}

#[test]
fn an_unknown_setting_is_reported_and_heals_nothing() {
    let Some((program, _leftover)) = compile("healing.c", "unknown") else {
        return;
    };
    let (status, output, errors) = ended(command(&program, "marked", Some("all")).spawn().unwrap());
    assert_eq!(status, Some(0), "{errors}");
    assert!(output.starts_with("without"), "{output}");
    assert!(errors.contains("LATCHWORK_HEAL is \"all\""), "{errors}");
}

/// Workers at one mutex, of which some are healed and some are not.
struct Storm {
    program: PathBuf,
    file: PathBuf,
    shared: File,
    /// With whether it is healed.
    workers: Vec<(bool, Child)>,
}

impl Storm {
    fn worker(&self, is_healed: bool) -> Child {
        let arguments = format!("{} work", self.file.display());
        let heal = is_healed.then_some("report");
        command(&self.program, &arguments, heal).spawn().unwrap()
    }

    /// How often a worker has been inside.
    fn rounds(&self) -> i64 {
        let mut bytes = [0; 8];
        self.shared.read_exact_at(&mut bytes, 0).unwrap();
        i64::from_ne_bytes(bytes)
    }

    fn wait_for_progress(&self) {
        let _watchdog = Watchdog::start("no worker gets the mutex".into());
        let before = self.rounds();
        while self.rounds() < before + 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Panics if a worker has found a fault.
fn is_well(worker: Child, may_end: bool) {
    let output = output_of(worker);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.is_empty(), "{errors}");
    let was_killed = output.status.signal() == Some(libc::SIGKILL);
    assert!(
        was_killed || may_end && output.status.success(),
        "{}",
        output.status
    );
}

fn storm(name: &'static str, healed: usize, plain: usize) {
    let trial = Trial::begin(name);
    let kills = trial.times(300);
    let Some((program, leftover)) = compile("storm.c", name) else {
        return;
    };
    let file = leftover.path().join("shared");
    let shared = File::create_new(&file).unwrap();
    shared.set_len(4096).unwrap();
    let shared = File::options().read(true).write(true).open(&file).unwrap();
    let made = command(&program, &format!("{} make", file.display()), None);
    assert_eq!(ended({ made }.spawn().unwrap()).0, Some(0));
    let mut storm = Storm {
        program,
        file,
        shared,
        workers: Vec::new(),
    };
    for seat in 0..healed + plain {
        let is_healed = seat < healed;
        storm.workers.push((is_healed, storm.worker(is_healed)));
    }
    let mut rng = trial.seed().rng(0);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_micros(rng.u64(0..3000)));
        let seat = rng.usize(0..storm.workers.len());
        let is_healed = storm.workers[seat].0;
        let new = storm.worker(is_healed);
        let (_, mut old) = core::mem::replace(&mut storm.workers[seat], (is_healed, new));
        old.kill().unwrap();
        is_well(old, false);
        storm.wait_for_progress();
        trial.progress();
    }
    println!("{name}: {kills} kills of programs");
    storm.shared.write_all_at(&1_u64.to_ne_bytes(), 8).unwrap();
    // Those that are not healed may sleep for ever, and must not keep the others from ending.
    let (healed, plain): (Vec<_>, Vec<_>) =
        storm.workers.into_iter().partition(|(healed, _)| *healed);
    for (_, worker) in healed {
        let output = output_of(worker);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{errors}");
    }
    for (_, mut worker) in plain {
        let _ = worker.kill();
        is_well(worker, true);
    }
}

#[test]
fn killed_workers_leave_a_mutex_to_the_others() {
    storm("storm-healed", 5, 0);
}

#[test]
fn tasks_with_and_without_heal_use_a_mutex_together() {
    storm("storm-mixed", 3, 3);
}
