//! Programs in C and C++, compiled against an installation of the library that was just built.
#![allow(dead_code, reason = "each test program uses a part of it")]

use latchwork_testkit::Patience;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// With musl, the installation has no shared library, and each program is static.
pub const MUSL: bool = cfg!(target_env = "musl");

/// How a program is compiled.
#[derive(Clone, Copy)]
pub struct How {
    pub compiler: &'static str,
    pub flags: &'static [&'static str],
    pub is_static: bool,
}

pub const fn by(compiler: &'static str, flags: &'static [&'static str]) -> How {
    How {
        compiler,
        flags,
        is_static: false,
    }
}

impl How {
    pub const fn statically(self) -> Self {
        Self {
            is_static: true,
            ..self
        }
    }

    /// The language is the compiler's, whatever the file is called.
    pub fn is_cpp(&self) -> bool {
        self.compiler.ends_with("++")
    }

    /// The compiler's command. musl has one of its own for C, and no library for C++.
    pub fn command(&self) -> &'static str {
        match self.compiler {
            "gcc" if MUSL => "musl-gcc",
            compiler => compiler,
        }
    }

    /// Whether the compiler is there; says so if it is not.
    pub fn is_there(&self) -> bool {
        if MUSL && self.compiler != "gcc" {
            eprintln!("skipped: {} has no C library of musl's", self.compiler);
            return false;
        }
        let is_there = has(self.command());
        if !is_there {
            eprintln!("skipped: {} is not installed", self.compiler);
        }
        is_there
    }
}

pub fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null());
    command
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the tests.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c")
        .join(name)
}

/// A place for this run's files.
pub fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        // One for each test program: several may run at a time.
        let program = std::env::current_exe().unwrap();
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program.file_stem().unwrap());
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path
    })
}

/// The static library that this test was built with: it is a part of the same build.
pub fn static_library() -> PathBuf {
    let folder = std::env::current_exe().unwrap();
    let built = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_it = name.starts_with("liblatchwork_c") && name.ends_with(".a");
        Some((entry.metadata().ok()?.modified().ok()?, entry.path())).filter(|_| is_it)
    };
    let entries = std::fs::read_dir(folder.parent().unwrap()).unwrap();
    let newest = entries.flatten().filter_map(built).max();
    newest.expect("this test depends on the library").1
}

pub fn install(arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
    let output = Command::new(script).args(arguments).output().unwrap();
    succeed(&output, "install.sh");
}

/// Where the library is installed, once for all tests.
pub fn installed() -> &'static Path {
    static INSTALLED: OnceLock<PathBuf> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let prefix = scratch().join("installed");
        let library = static_library();
        let (prefix_text, library) = (prefix.to_str().unwrap(), library.to_str().unwrap());
        let mut arguments = vec!["--prefix", prefix_text, "--static-library", library];
        arguments.extend(MUSL.then_some("--static-only"));
        install(&arguments);
        prefix
    })
}

fn succeed(output: &Output, what: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{what}: {}\n{errors}",
        output.status
    );
}

/// The compiler's call, up to the file: warnings are errors.
pub fn compiler(how: How) -> Command {
    let mut command = Command::new(how.command());
    let include = installed().join("include");
    command
        .args(how.flags)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(include);
    if how.is_cpp() {
        command.args(["-x", "c++"]);
    }
    command
}

/// What unwinds the stack of a program for musl, whose compiler has glibc's: the archive that Rust's standard library for
/// musl comes with. (A system that has only musl has its own.)
fn unwinder() -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let output = Command::new(rustc).args(["--print", "sysroot"]).output();
    let sysroot = String::from_utf8(output.ok()?.stdout).ok()?;
    let target = format!(
        "lib/rustlib/{}-unknown-linux-musl/lib",
        std::env::consts::ARCH
    );
    let archive = Path::new(sysroot.trim()).join(target);
    Some(archive.join("self-contained/libunwind.a")).filter(|archive| archive.is_file())
}

/// Compiles a program.
pub fn compile(file: &Path, how: How, defines: &[&str]) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let stem = file.file_stem().unwrap().to_str().unwrap();
    let program = scratch().join(format!("{stem}-{number}"));
    let library = installed().join("lib");
    let mut command = compiler(how);
    command
        .args(defines)
        .arg(file)
        .args(["-x", "none", "-o"])
        .arg(&program)
        .arg(format!("-L{}", library.display()));
    if how.is_static || MUSL {
        command.args(["-static", "-llatchwork"]);
        if MUSL {
            // The unwinder finds its tables by this header, which GCC leaves out of static programs.
            command.args(unwinder()).arg("-Wl,--eh-frame-hdr");
        }
        command.args(["-lpthread", "-ldl", "-lm"]);
    } else {
        command.arg(format!("-Wl,-rpath,{}", library.display()));
        command.args(["-llatchwork", "-lpthread"]);
    }
    succeed(&command.output().unwrap(), &format!("{command:?}"));
    program
}

/// Runs a program to its end; none takes more than a few seconds, and a hang is a failure.
pub fn finish(command: &mut Command) -> Output {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap();
    let mut patience = Patience::new();
    while child.try_wait().unwrap().is_none() {
        if patience.is_over() {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            panic!(
                "{command:?} hangs; {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

/// Runs a program to a good end, and returns what it wrote.
pub fn run(mut command: Command) -> String {
    let output = finish(&mut command);
    succeed(&output, &format!("{command:?}"));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Compiles and runs a test program with each of these compilers that is there.
pub fn check(name: &str, hows: &[How], defines: &[&str], says: &str) {
    for how in hows.iter().filter(|how| how.is_there()) {
        let program = compile(&source(name), *how, defines);
        assert_eq!(run(Command::new(program)).trim(), says, "{}", how.compiler);
    }
}

/// The files below a folder.
pub fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(walk(&path));
        } else {
            files.push(path);
        }
    }
    files
}
