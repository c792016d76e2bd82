//! Each command in a console block of README and the guides is run as it is written, and prints what the guide shows.
//!
//! A page's commands run in one shell, in a folder that looks like the root of the repository. `latchwork` and `cargo run`
//! start what was built for the tests; the C library is installed in `~/.local`, as the guide for C does it. Blocks with
//! a mark (`latchwork_testkit::guides`) are left out.

use latchwork_c as _;
use latchwork_testkit::guides::{self, Command as Typed};
use latchwork_testkit::{Leftover, Watchdog, output_of};
use std::fs;
use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

const MOMENT: Duration = Duration::from_millis(5);
/// A watchdog's: how long what a guide shows may take to be seen.
const PATIENCE: Duration = Duration::from_secs(100);

/// `cargo run`, of what is built already.
const CARGO: &str = r#"#!/bin/sh
program=latchwork
case $1 in
    build) exit 0 ;;
    # All tests: this one is among them.
    test) [ "$*" = "test --workspace" ]; exit ;;
    run) shift ;;
    *) echo "cargo $1: the tests of the guides know cargo build, cargo run and cargo test --workspace" >&2; exit 1 ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
        -q | --release) ;;
        -p) shift ;;
        --bin) program=$2; shift ;;
        --) shift; break ;;
        *) echo "cargo run: unknown option $1" >&2; exit 1 ;;
    esac
    shift
done
exec "$BUILT/$program" "$@"
"#;

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok()
}

/// Where Cargo puts programs.
fn built() -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_latchwork"));
    command.parent().unwrap().to_owned()
}

/// The static library that was built with this test.
fn static_library() -> PathBuf {
    let entries = fs::read_dir(built().join("deps")).unwrap().flatten();
    let libraries = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("liblatchwork_c") && name.ends_with(".a")
    });
    let newest = libraries.max_by_key(|entry| entry.metadata().and_then(|m| m.modified()).ok());
    newest.expect("this test depends on the library").path()
}

/// The programs of `examples/rust`. They are of another package: with `cargo test --workspace` they are there, otherwise
/// they are built now, and also if one of their sources has changed since.
fn build_examples() {
    let is_current = |program: &str| {
        let modified = |path: &Path| fs::metadata(path)?.modified();
        let Ok(program) = modified(&built().join(program)) else {
            return false;
        };
        let sources = fs::read_to_string(built().join("counter.d")).unwrap_or_default();
        let is_older = |source: &str| modified(Path::new(source)).is_ok_and(|time| time <= program);
        let sources: Vec<_> = sources.split_whitespace().skip(1).collect();
        !sources.is_empty() && sources.into_iter().all(is_older)
    };
    let folder = guides::root().join("examples/rust/src/bin");
    let names = fs::read_dir(folder).unwrap().flatten();
    let names = names.map(|entry| entry.path().file_stem().unwrap().to_owned());
    if names
        .into_iter()
        .all(|name| is_current(name.to_str().unwrap()))
    {
        return;
    }
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--bins", "-p", "latchwork-examples"]);
    if !cfg!(debug_assertions) {
        cargo.arg("--release");
    }
    let target = built();
    cargo.arg("--target-dir").arg(target.parent().unwrap());
    let status = cargo.current_dir(guides::root()).status().unwrap();
    assert!(status.success(), "the examples cannot be built: {status}");
}

/// Guides use fixed names of regions and sockets: one test of a guide runs at a time on this machine.
fn turn() -> UnixListener {
    let name = SocketAddr::from_abstract_name("latchwork-test-guides").unwrap();
    loop {
        match UnixListener::bind_addr(&name) {
            Ok(turn) => return turn,
            Err(_) => std::thread::sleep(MOMENT),
        }
    }
}

/// Installs the C library that was built with this test.
fn install_c(prefix: &Path) {
    let mut install = Command::new(guides::root().join("crates/latchwork-c/install.sh"));
    install.arg("--prefix").arg(prefix);
    install.arg("--static-library").arg(static_library());
    let install = install.stdout(Stdio::null()).stderr(Stdio::piped());
    let output = output_of(install.spawn().unwrap());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "install.sh: {errors}");
}

/// A shell, and the folder that it is in.
struct Shell {
    shell: Child,
    input: ChildStdin,
    folder: Leftover,
    count: usize,
    _turn: UnixListener,
}

impl Shell {
    fn start(turn: UnixListener, with_c: bool) -> Self {
        let folder = Leftover::folder("guide");
        let path = |below: &str| folder.path().join(below);
        for below in ["root/target", "bin", "home/.local"] {
            fs::create_dir_all(path(below)).unwrap();
        }
        let entries = fs::read_dir(guides::root()).unwrap().flatten();
        for entry in entries.filter(|entry| entry.file_name() != "target") {
            let to = path("root").join(entry.file_name());
            // The tour reads the files of a folder, and follows no link.
            match entry.path().is_dir() {
                true => symlink(entry.path(), to).unwrap(),
                false => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
        symlink(built(), path("root/target/release")).unwrap();
        fs::write(path("bin/cargo"), CARGO).unwrap();
        fs::set_permissions(path("bin/cargo"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink(env!("CARGO_BIN_EXE_latchwork"), path("bin/latchwork")).unwrap();

        if with_c {
            install_c(&path("home/.local"));
        }
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::env::split_paths(&paths);
        let paths = std::env::join_paths([path("bin")].into_iter().chain(paths)).unwrap();
        let mut shell = Command::new("bash")
            .arg("-s")
            .env("PATH", paths)
            .env("HOME", path("home"))
            .env("BUILT", built())
            .env("PKG_CONFIG_PATH", path("home/.local/lib/pkgconfig"))
            .env("LD_LIBRARY_PATH", path("home/.local/lib"))
            .current_dir(path("root"))
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        // If this test is killed, what its shell has started ends, too.
        let test = std::process::id();
        writeln!(
            input,
            "(while [ -d /proc/{test} ]; do sleep 1; done; kill -KILL 0) &"
        )
        .unwrap();
        Self {
            shell,
            input,
            folder,
            count: 0,
            _turn: turn,
        }
    }

    fn output(&self) -> String {
        let path = self.folder.path().join(format!("out-{}", self.count));
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }

    /// Types a command, and returns its exit status.
    fn type_in(&mut self, text: &str) -> String {
        self.count += 1;
        let number = self.count;
        let folder = self.folder.path().display();
        let status = self.folder.path().join(format!("status-{number}"));
        // The status is written in one step.
        write!(
            self.input,
            "{{ {text}\n}} > '{folder}/out-{number}' 2>&1 < /dev/null\n\
             echo $? > '{folder}/status' && mv '{folder}/status' '{folder}/status-{number}'\n"
        )
        .unwrap();
        loop {
            if let Ok(status) = fs::read_to_string(&status) {
                return status.trim().to_owned();
            }
            assert!(self.shell.try_wait().unwrap().is_none(), "the shell ended");
            std::thread::sleep(MOMENT);
        }
    }

    /// Runs a command of a guide. What a command in the background prints may come later; and what is to be seen of
    /// other processes may take a moment to arise, so such a command is repeated until it shows it.
    fn run(&mut self, guide: &str, typed: &Typed) {
        let text = &typed.text;
        let looks = ["latchwork locks", "latchwork ps", "latchwork gc"];
        let looks = looks.iter().any(|verb| text.starts_with(verb));
        let in_background = text.trim_end().ends_with('&');
        let begin = Instant::now();
        let mut status = self.type_in(text);
        loop {
            let output = self.output();
            let Some(line) = guides::missing(&typed.shows, &output) else {
                let is_good = status == "0" || !typed.shows.is_empty();
                assert!(is_good, "{guide}: $ {text}\nstatus {status}: {output}");
                return;
            };
            assert!(
                (looks || in_background) && begin.elapsed() < PATIENCE,
                "{guide}: $ {text}\ndoes not print: {line}\nstatus {status}, and it prints:\n{output}"
            );
            std::thread::sleep(MOMENT);
            if looks {
                status = self.type_in(text);
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.shell);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.shell.wait();
    }
}

fn follow(guide: &str) {
    for program in ["bash", "cc", "pkg-config", "objcopy"] {
        if !has(program) {
            println!("skipped: {program} is not installed");
            return;
        }
    }
    // Neither has a limit: the other tests' turns, and Cargo on a busy machine.
    let turn = turn();
    build_examples();
    let watchdog = Watchdog::start(format!("the guide {guide}"));
    let text = fs::read_to_string(guides::root().join(guide)).unwrap();
    let mut shell = Shell::start(turn, text.contains("pkg-config"));
    let mut count = 0;
    for block in guides::blocks(&text) {
        if block.language() == "console" && block.not_run.is_none() {
            for command in block.commands() {
                shell.run(guide, &command);
                watchdog.progress();
                count += 1;
            }
        }
    }
    assert!(count > 0, "{guide} has no commands");
}

macro_rules! guides {
    ($($name:ident $file:literal)*) => {
        const FOLLOWED: &[&str] = &[$($file),*];
        $(
            #[test]
            fn $name() {
                follow($file);
            }
        )*
    };
}

guides! {
    the_readme "README.md"
    programs_in_c_and_cpp "docs/c-and-cpp.md"
    kills_at_each_instruction "docs/crashtest.md"
    deadlock "docs/examples/deadlock.md"
    event_loops "docs/examples/event-loops.md"
    key_value_server "docs/examples/key-value-server.md"
    rust_and_c "docs/examples/rust-and-c.md"
    sensor_pipeline "docs/examples/sensor-pipeline.md"
    worker_pool "docs/examples/worker-pool.md"
    from_semaphores_to_mutexes "examples/migrate/README.md"
}

#[test]
fn each_document_with_commands_is_followed() {
    for document in guides::documents() {
        let blocks = guides::blocks(&document.text);
        let is_run =
            |block: &guides::Block| block.language() == "console" && block.not_run.is_none();
        assert_eq!(
            blocks.iter().any(is_run),
            FOLLOWED.contains(&document.name.as_str()),
            "{}: a document is in the list if it has commands that are not marked",
            document.name
        );
    }
}
