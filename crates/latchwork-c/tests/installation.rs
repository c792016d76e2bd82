//! What `install.sh` installs, says and removes; and the manual.

mod support;

use latchwork_c as _;
use std::path::Path;
use std::process::{Command, Output};
use support::{by, has, installed, repository, run, scratch, walk};

const GCC: support::How = by("gcc", &[]);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A shell's answer, which must be a good one.
fn sh(script: &str, variables: &[(&str, &Path)]) -> String {
    let mut command = Command::new("sh");
    command.args(["-e", "-c", script]);
    command.envs(variables.iter().copied());
    run(command)
}

#[test]
fn an_installation_is_known_to_pkg_config_and_can_be_removed() {
    let destination = scratch().join("removed");
    let library = support::static_library();
    // As careful as it must be, a shell finds its way through a space.
    let prefix = [
        "--prefix",
        "/opt/latch work",
        "--destdir",
        destination.to_str().unwrap(),
    ];
    let with_library = [
        &prefix[..],
        &["--static-library", library.to_str().unwrap()],
    ]
    .concat();
    support::install(&with_library);
    let root = destination.join("opt/latch work");
    assert!(root.join("lib/liblatchwork.so.0.1").exists());
    assert!(root.join("include/latchwork/mutex.h").exists());
    if has("pkg-config") && GCC.is_there() {
        let build = "eval \"gcc -o '$PROGRAM' '$SOURCE' $(pkg-config --cflags --libs latchwork)\" && \"$PROGRAM\"";
        let mut command = Command::new("sh");
        command.args(["-c", build]);
        command.env("PROGRAM", scratch().join("by-pkg-config"));
        command.env("SOURCE", repository().join("examples/locks/queue.c"));
        command.env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"));
        command.env("PKG_CONFIG_SYSROOT_DIR", &destination);
        command.env("LD_LIBRARY_PATH", root.join("lib"));
        assert!(!run(command).is_empty());
    } else {
        eprintln!("skipped: pkg-config or gcc is not installed");
    }
    support::install(&[&["--uninstall"], &prefix[..]].concat());
    let left: Vec<_> = walk(&destination);
    assert!(left.is_empty(), "{left:?}");
}

/// The Debian packages and `install.sh` have one list.
#[test]
fn each_installed_file_of_the_library_is_in_one_debian_package() {
    let folder = scratch().join("packages");
    let library = support::static_library();
    support::install(&[
        "--prefix",
        "/usr",
        "--libdir",
        "/usr/lib/x86_64-linux-gnu",
        "--keep-debug",
        "--destdir",
        folder.join("debian/tmp").to_str().unwrap(),
        "--static-library",
        library.to_str().unwrap(),
    ]);
    let script = repository().join("install/debian/owners.sh");
    let owners = sh(
        "\"$SCRIPT\" \"$FOLDER\"",
        &[("SCRIPT", &script), ("FOLDER", &folder)],
    );
    for line in owners.lines() {
        let packages: Vec<_> = line.split(' ').skip(1).collect();
        let is_one = packages.len() == 1 && packages != ["latchwork"];
        assert!(is_one, "{line}");
    }
    for line in [
        "/usr/include/latchwork/mutex.h liblatchwork-dev",
        "/usr/lib/x86_64-linux-gnu/liblatchwork.so.0.1 liblatchwork0.1",
        "/usr/lib/x86_64-linux-gnu/liblatchwork.so liblatchwork-dev",
        "/usr/lib/x86_64-linux-gnu/pkgconfig/latchwork.pc liblatchwork-dev",
        "/usr/share/man/man3/lw_mutex_lock.3 liblatchwork-dev",
    ] {
        assert!(
            owners.lines().any(|owner| owner == line),
            "{line}: {owners}"
        );
    }
    let pkg_config = folder.join("debian/tmp/usr/lib/x86_64-linux-gnu/pkgconfig/latchwork.pc");
    let pkg_config = std::fs::read_to_string(pkg_config).unwrap();
    assert!(
        pkg_config.contains("\nlibdir=/usr/lib/x86_64-linux-gnu\n"),
        "{pkg_config}"
    );
}

#[test]
fn a_prefix_that_pkg_config_cannot_express_is_refused() {
    for (prefix, reason) in [
        ("latchwork", "not an absolute path"),
        ("/tmp/latch\"work", "special characters"),
        ("/tmp/$latchwork", "special characters"),
        ("/tmp/latch\nwork", "special characters"),
        ("/tmp/latch&work", "special characters"),
        ("/tmp/latch\\work", "special characters"),
    ] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh");
        let output = Command::new(script)
            .args(["--prefix", prefix, "--static-library", "/none"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{prefix}: {said}");
        assert!(said.contains(reason), "{prefix}: {said}");
    }
}

/// The pages of the repository.
fn pages() -> Vec<std::path::PathBuf> {
    let mut pages = walk(&repository().join("man"));
    pages.retain(|page| page.extension().is_some_and(|section| section != "sh"));
    assert!(!pages.is_empty());
    pages
}

/// What `man` shows of a page.
fn formatted(page: &Path) -> String {
    let mut command = Command::new("man");
    command.args(["--warnings", "-l"]).arg(page);
    let output = command.env("MANWIDTH", "80").output().unwrap();
    let said = text(&output.stderr);
    let is_sound = said.is_empty() && output.status.success();
    assert!(is_sound, "{}: {said}", page.display());
    text(&output.stdout)
}

#[test]
fn the_manual_is_sound() {
    if !has("man") {
        eprintln!("skipped: man is not installed");
        return;
    }
    for page in pages() {
        formatted(&page);
    }
}

/// Tables move the stops of tabs, which examples were indented by.
#[test]
fn examples_in_the_manual_are_indented_as_they_are_written() {
    for page in pages() {
        let source = std::fs::read_to_string(&page).unwrap();
        assert!(!source.contains('\t'), "{}: a tab", page.display());
        let examples = source.split(".EX\n").skip(1);
        let lines = examples.flat_map(|example| example.split(".EE").next().unwrap().lines());
        let lines: Vec<_> = lines.filter(|line| !line.contains('\\')).collect();
        if lines.is_empty() || !has("man") {
            continue;
        }
        let shown = formatted(&page);
        for line in lines.iter().filter(|line| !line.is_empty()) {
            // The indentation of all text.
            let expected = format!("       {line}");
            let is_shown = shown.lines().any(|shown| shown == expected);
            assert!(is_shown, "{}: {line:?} in {shown}", page.display());
        }
    }
}

/// What the shared library exports, but for what only the headers use.
fn functions() -> Vec<String> {
    let library = installed().join("lib/liblatchwork.so");
    let listed = sh(
        "nm -D --defined-only \"$LIBRARY\"",
        &[("LIBRARY", &library)],
    );
    let words = listed.lines().map(|line| line.split(' ').skip(1));
    let named = words.filter_map(|mut words| Some((words.next()?, words.next()?)));
    let functions = named.filter(|(kind, _)| ["T", "W", "i"].contains(kind));
    let names = functions.map(|(_, name)| name.split('@').next().unwrap_or(name));
    let names = names.filter(|name| !name.starts_with("lw__"));
    names.map(str::to_owned).collect()
}

#[test]
fn each_function_has_a_page() {
    if !has("nm") {
        eprintln!("skipped: nm is not installed");
        return;
    }
    let manual = installed().join("share/man");
    let functions = functions();
    assert!(functions.len() > 200, "{functions:?}");
    // Those of the headers that are inline alone, and some that are macros.
    let headers = [
        installed().join("include"),
        installed().join("include/latchwork"),
    ];
    let files = headers
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let mut inline = vec![
        "mutex_lock".to_owned(),
        "down".into(),
        "LW_DEFINE_MUTEX".into(),
    ];
    for file in files
        .map(|file| file.unwrap().path())
        .filter(|path| path.is_file())
    {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text
            .lines()
            .filter(|line| line.starts_with("static inline"));
        let before = lines.filter_map(|line| Some(line.split_once('(')?.0));
        let names = before.filter_map(|before| before.rsplit([' ', '*']).next());
        inline.extend(
            names
                .filter(|name| !name.starts_with("lw__"))
                .map(str::to_owned),
        );
    }
    assert!(
        inline.iter().any(|name| name == "lw_crashtest_begin"),
        "{inline:?}"
    );
    let inline = inline.iter().map(String::as_str);
    let functions = functions.iter().map(String::as_str);
    // No header declares these any more; programs that were compiled with an older one call them.
    let declared = functions.filter(|name| !name.ends_with("_cond_has_waiters"));
    for function in declared.chain(inline) {
        let link = manual.join(format!("man3/{function}.3"));
        let link = std::fs::read_to_string(&link)
            .unwrap_or_else(|error| panic!("no page {}: {error}", link.display()));
        if let Some(page) = link.strip_prefix(".so ") {
            let page = std::fs::read_to_string(manual.join(page.trim_end())).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{function}: {link}");
        }
    }
    if !has("man") {
        eprintln!("skipped: man is not installed");
        return;
    }
    for (function, page) in [
        ("lw_mutex_lock", "lw_mutex"),
        ("lw_robust_pi_mutex_timedlock", "lw_mutex"),
        ("rtems_semaphore_create", "lw_classic"),
        ("rtems_message_queue_urgent", "lw_classic"),
        ("coproc_create", "coproc"),
        ("down_trylock", "lw_migrate"),
        ("mutex_debug_show_held", "lw_migrate"),
    ] {
        let show = |name: &str| {
            sh(
                &format!("man -M \"$MANUAL\" 3 {name}"),
                &[("MANUAL", &manual)],
            )
        };
        assert_eq!(show(function), show(page), "{function}");
    }
}

#[test]
fn another_packages_page_stays() {
    let prefix = scratch().join("neighbour");
    let theirs = prefix.join("share/man/man3/down.3");
    std::fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    std::fs::write(&theirs, ".TH down 3\n").unwrap();
    let library = support::static_library();
    let prefix = ["--prefix", prefix.to_str().unwrap()];
    let library = ["--static-library", library.to_str().unwrap()];
    support::install(&[prefix, library].concat());
    support::install(&[&["--uninstall"][..], &prefix].concat());
    assert_eq!(std::fs::read_to_string(&theirs).unwrap(), ".TH down 3\n");
    assert_eq!(walk(Path::new(prefix[1])), [theirs]);
}

#[test]
fn the_shared_library_is_stripped_and_has_separate_debug_information() {
    let library = installed().join("lib/liblatchwork.so.0.1.0");
    let debug = installed().join("lib/.debug/liblatchwork.so.0.1.0.debug");
    if !has("objcopy") || !has("readelf") {
        eprintln!("skipped: binutils are not installed");
        return;
    }
    let sections = sh("readelf -SW \"$LIBRARY\"", &[("LIBRARY", &library)]);
    for (section, is_there) in [
        (".debug_info", false),
        (".symtab", false),
        (".gnu_debuglink", true),
        (".note.gnu.build-id", true),
    ] {
        assert_eq!(
            sections.contains(section),
            is_there,
            "{section}: {sections}"
        );
    }
    assert!(debug.exists());
    if !has("gdb") {
        eprintln!("skipped: gdb is not installed");
        return;
    }
    let asked = "gdb -nx -batch -ex 'info line lw__once' \"$LIBRARY\" 2>&1";
    let said = sh(asked, &[("LIBRARY", &library)]);
    assert!(said.contains("once.c\""), "{said}");
}

/// Installs where the system does not look, with variables as at a login.
fn install_at_home(home: &Path) -> String {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh"));
    command.arg("--prefix").arg(home);
    command
        .arg("--static-library")
        .arg(support::static_library());
    for variable in ["PKG_CONFIG_PATH", "LD_LIBRARY_PATH", "MANPATH"] {
        command.env_remove(variable);
    }
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    assert!(status.success(), "{}", text(&stderr));
    text(&stdout)
}

#[test]
fn the_scripts_instructions_suffice_to_compile_run_and_read() {
    let home = scratch().join("home");
    let said = install_at_home(&home);
    for part in ["LD_LIBRARY_PATH", "-rpath", "Installed in"] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let settings: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("  export "))
        .collect();
    let settings = settings.join("\n");
    let rpath = said.lines().find_map(|line| line.split_once("-Wl,-rpath,"));
    let rpath = rpath.unwrap().1;
    let program = scratch().join("at-home");
    let example = repository().join("examples/locks/queue.c");
    let variables = [("PROGRAM", &*program), ("EXAMPLE", &*example)];
    if has("pkg-config") && GCC.is_there() {
        assert!(settings.contains("PKG_CONFIG_PATH"), "{said}");
        let compile =
            "eval \"gcc -o '$PROGRAM' '$EXAMPLE' $(pkg-config --cflags --libs latchwork)\"";
        let found = sh(&format!("{settings}\n{compile}\n\"$PROGRAM\""), &variables);
        assert!(!found.is_empty());
        // The other way, without a variable as it runs.
        let with_rpath = format!("{settings}\nunset LD_LIBRARY_PATH\n{compile}");
        let with_rpath = with_rpath.trim_end_matches('"').to_owned();
        let script = format!("{with_rpath} -Wl,-rpath,{rpath}\"\n\"$PROGRAM\"");
        assert_eq!(sh(&script, &variables), found);
    } else {
        eprintln!("skipped: pkg-config or gcc is not installed");
    }
    if has("man") {
        let found = sh(&format!("{settings}\nman -w 3 lw_mutex_lock"), &[]);
        let page = home.join("share/man/man3/lw_mutex.3");
        assert_eq!(found.trim_end(), page.to_str().unwrap());
    } else {
        eprintln!("skipped: man is not installed");
    }
}
