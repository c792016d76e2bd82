//! The command as `install.sh` installs it: with its libraries and its manual, without debug information.

mod common;

use latchwork_testkit::{Leftover, output_of};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn has(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null());
    let found = command.stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// A folder that goes with its files.
struct Prefix(Leftover);

impl Prefix {
    fn new() -> Self {
        Self(Leftover::folder("prefix"))
    }

    /// With what these tests were built with.
    fn installed() -> (Self, String) {
        let prefix = Self::new();
        let built = Path::new(env!("CARGO_BIN_EXE_latchwork")).parent().unwrap();
        let said = prefix.install(&["--built", built.to_str().unwrap()]);
        (prefix, said)
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn run(&self) -> Output {
        let mut command = Command::new(self.path("bin/latchwork"));
        command.args(["run", "--mutex=tp", "--", "getconf", "PAGESIZE"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        output_of(command.stderr(Stdio::piped()).spawn().unwrap())
    }

    fn install(&self, arguments: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
        let mut command = Command::new(script);
        command.arg("--prefix").arg(self.0.path()).args(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_of(command.env_remove("MANPATH").spawn().unwrap());
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// A shell's answer.
    fn sh(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command
            .args(["-e", "-c", script])
            .env("PREFIX", self.0.path());
        command.env("MANWIDTH", "80").env_remove("MANPATH");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{script}: {text}{}",
            errors(&output)
        );
        text
    }
}

/// The files and links below a folder.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => walk(&entry.path(), found),
            false => found.push(entry.path()),
        }
    }
}

#[test]
fn an_installed_command_loads_its_libraries_and_one_without_them_reports_how_to_install_them() {
    let (prefix, _) = Prefix::installed();
    let output = prefix.run();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(
        errors(&output).contains("replaced by throughput locks"),
        "{}",
        errors(&output)
    );
    // As `cargo install` leaves it.
    std::fs::remove_dir_all(prefix.path("lib")).unwrap();
    let output = prefix.run();
    assert_eq!(output.status.code(), Some(125));
    assert!(
        errors(&output).contains("crates/latchwork-cli/install.sh does"),
        "{}",
        errors(&output)
    );
    prefix.install(&["--uninstall"]);
    let mut left = Vec::new();
    walk(prefix.0.path(), &mut left);
    assert!(left.is_empty(), "{left:?}");
    for folder in ["lib/latchwork", "bin/.debug", "share/latchwork"] {
        assert!(!prefix.path(folder).exists(), "{folder}");
    }
}

#[test]
fn installed_files_are_stripped_and_have_separate_debug_information() {
    if !has("objcopy") || !has("readelf") {
        return;
    }
    let (prefix, _) = Prefix::installed();
    for (folder, name) in [
        ("bin", "latchwork"),
        ("lib/latchwork", "liblatchwork_preload.so"),
        ("lib/latchwork", "liblatchwork_preload_check.so"),
    ] {
        let sections = prefix.sh(&format!("readelf -SW \"$PREFIX/{folder}/{name}\""));
        for (section, is_there) in [
            (".debug_info", false),
            (".debug_line", false),
            (".symtab", false),
            (".gnu_debuglink", true),
        ] {
            assert_eq!(sections.contains(section), is_there, "{name}: {section}");
        }
        let debug = prefix.path(folder).join(format!(".debug/{name}.debug"));
        assert!(debug.exists(), "{}", debug.display());
    }
    if has("gdb") {
        let asked = "gdb -nx -batch -ex 'info line main.rs:100' \"$PREFIX/bin/latchwork\" 2>&1";
        let said = prefix.sh(asked);
        assert!(said.contains("main.rs\""), "{said}");
        let library = "$PREFIX/lib/latchwork/liblatchwork_preload.so";
        let asked = format!("gdb -nx -batch -ex 'info line pthread_mutex_lock' \"{library}\" 2>&1");
        let said = prefix.sh(&asked);
        assert!(said.contains("mutex.rs\""), "{said}");
    }
}

#[test]
fn the_scripts_instructions_suffice_to_find_the_command_and_its_manual() {
    let (prefix, said) = Prefix::installed();
    assert!(said.contains("Installed in"), "{said}");
    let settings: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("  export "))
        .collect();
    let settings = settings.join("\n");
    let found = prefix.sh(&format!("{settings}\ncommand -v latchwork"));
    assert_eq!(
        found.trim_end(),
        prefix.path("bin/latchwork").to_str().unwrap()
    );
    if !has("man") {
        return;
    }
    let page = prefix.sh(&format!("{settings}\nman 1 latchwork"));
    for part in [
        "EXIT STATUS",
        "LATCHWORK RUN",
        "--suppress <FILE>",
        "latchwork order diff",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let verb = prefix.sh(&format!("{settings}\nman 1 latchwork-run"));
    assert_eq!(verb, page);
    // For a staged package the system prints the settings, not the script.
    let staged = Leftover::folder("staged");
    let built = Path::new(env!("CARGO_BIN_EXE_latchwork")).parent().unwrap();
    let arguments = ["--built", built.to_str().unwrap(), "--destdir"];
    let staged = [&arguments[..], &[staged.path().to_str().unwrap()]].concat();
    assert_eq!(prefix.install(&staged), "");
}

#[test]
fn shells_complete_the_subcommands_by_the_installed_scripts() {
    let (prefix, _) = Prefix::installed();
    let subcommands = |shell: &str, script: &str, said: &str| {
        let found = prefix.sh(&format!("{shell} -c '{script}'"));
        assert!(found.contains(said), "{shell}: {found}");
        assert!(!found.contains("symbolise"), "{shell}: {found}");
    };
    if has("bash") {
        let script = "COMP_WORDS=(latchwork \"\"); COMP_CWORD=1
            . \"$PREFIX/share/bash-completion/completions/latchwork\"
            _latchwork latchwork \"\" latchwork; echo \"${COMPREPLY[@]}\"";
        subcommands(
            "bash",
            script,
            " ps locks top gc run crashtest order bench completions",
        );
    }
    if has("fish") {
        let script = "source \"$PREFIX/share/fish/vendor_completions.d/latchwork.fish\"
            complete -C \"latchwork cr\"";
        subcommands("fish", script, "crashtest\tKill an operation");
    }
    if has("zsh") {
        let script = "fpath+=(\"$PREFIX/share/zsh/site-functions\"); autoload -U compinit
            compinit -u -D; echo $_comps[latchwork]
            . \"$PREFIX/share/zsh/site-functions/_latchwork\"; functions _latchwork_commands";
        subcommands("zsh", script, "crashtest:Kill an operation");
    }
}

/// The program's symbols and lines are in a file beside it.
#[test]
fn locks_of_a_stripped_program_have_their_names_and_lines() {
    if !has("objcopy") {
        return;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/locks/stripped.c");
    let options = ["-Wl,--build-id"];
    let Some((program, folder)) = latchwork_testkit::compile(source.as_ref(), "stripped", &options)
    else {
        return;
    };
    let split = "mkdir \"$FOLDER/.debug\"; cd \"$FOLDER\"
        objcopy --only-keep-debug stripped .debug/stripped.debug
        objcopy --strip-all --add-gnu-debuglink=.debug/stripped.debug stripped";
    let mut command = Command::new("sh");
    command
        .args(["-e", "-c", split])
        .env("FOLDER", folder.path());
    assert!(command.status().unwrap().success());
    let mut command = Command::new(program);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id().to_string();
    let watchdog = latchwork_testkit::Watchdog::start("its threads never wait".into());
    let text = loop {
        let text = common::stdout(&common::run(&["locks", "--pid", &pid]));
        if text.contains("mutex") {
            break text;
        }
    };
    drop((watchdog, child.stdin.take()));
    assert!(child.wait().unwrap().success());
    assert!(text.contains("stripped:hidden_lock"), "{text}");
}

/// The Debian packages and `install.sh` have one list.
#[test]
fn each_installed_file_of_the_command_is_in_one_debian_package() {
    let folder = Leftover::folder("debian");
    let staged = folder.path().join("debian/tmp");
    let staged = staged.to_str().unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_latchwork")).parent().unwrap();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh"));
    command.args(["--prefix", "/usr", "--keep-debug", "--destdir", staged]);
    command.arg("--built").arg(built);
    let output = output_of(command.stderr(Stdio::piped()).spawn().unwrap());
    assert!(output.status.success(), "{}", errors(&output));
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../install/debian/owners.sh"
    );
    let output = Command::new(script).arg(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let owners = String::from_utf8(output.stdout).unwrap();
    for line in owners.lines() {
        let packages: Vec<_> = line.split(' ').skip(1).collect();
        let expected = match line.contains("/share/latchwork/") {
            true => "not-installed",
            false => "latchwork",
        };
        assert_eq!(packages, [expected], "{line}");
    }
    assert!(
        owners.contains("/usr/bin/latchwork latchwork\n"),
        "{owners}"
    );
    // --keep-debug leaves the debug information to the packages' own tools.
    assert!(!owners.contains(".debug"), "{owners}");
    // A file that no list names is shown without a package.
    let list = Path::new(staged).join("usr/share/latchwork/installed-command");
    let mut text = std::fs::read_to_string(&list).unwrap();
    text.push_str("/usr/lib/planted\n");
    std::fs::write(&list, text).unwrap();
    let output = Command::new(script).arg(folder.path()).output().unwrap();
    let owners = String::from_utf8(output.stdout).unwrap();
    assert!(
        owners.lines().any(|line| line == "/usr/lib/planted"),
        "{owners}"
    );
}
