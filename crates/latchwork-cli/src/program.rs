//! The properties of a program file that decide whether the dynamic linker can load a library into it, and in what place.

use object::{Object, ReadCache};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why nothing can be loaded into a program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unsuitable {
    #[error("there is no program {name:?}{}", if *.searched { " in PATH" } else { "" })]
    NotFound { name: OsString, searched: bool },
    #[error("cannot read {path:?}: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{0:?} may not be executed")]
    NotExecutable(PathBuf),
    #[error("{0:?} is not a program for this machine")]
    Foreign(PathBuf),
    #[error("{0:?} is linked statically: no library can be loaded into it")]
    Static(PathBuf),
    #[error(
        "{path:?} is built for musl (its dynamic linker is {linker:?}), and what would be loaded into it works with \
         glibc's locks alone"
    )]
    Musl { path: PathBuf, linker: OsString },
    #[error(
        "{0:?} runs with the rights of another user or group (setuid, setgid or capabilities): the \
         dynamic linker ignores LD_PRELOAD there"
    )]
    Privileged(PathBuf),
}

/// The most nested script interpreters, which is Linux's limit.
const SCRIPTS: usize = 5;
/// More than the headers of a program or a script have.
const HEAD: usize = 64 << 10;

/// Finds a program as a shell does.
pub(crate) fn find(name: &OsStr) -> Result<PathBuf, Unsuitable> {
    let searched = !name.as_bytes().contains(&b'/');
    let found = if searched {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|path| {
                fs::metadata(path).is_ok_and(|found| found.is_file() && is_executable(&found))
            })
    } else {
        Some(PathBuf::from(name)).filter(|path| path.exists())
    };
    found.ok_or_else(|| Unsuitable::NotFound {
        name: name.to_owned(),
        searched,
    })
}

fn is_executable(found: &fs::Metadata) -> bool {
    found.mode() & 0o111 != 0
}

/// Whether a library can be loaded into the program, or into the interpreter of the script. Returns a library that must
/// come before it, if there is one.
pub(crate) fn check(path: &Path) -> Result<Option<OsString>, Unsuitable> {
    let mut path = path.to_owned();
    for _ in 0..SCRIPTS {
        let head = head(&path)?;
        let Some(line) = head.strip_prefix(b"#!") else {
            check_binary(&path, &head)?;
            return Ok(first_library(&path));
        };
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let mut words = line
            .split(|byte| b" \t".contains(byte))
            .filter(|word| !word.is_empty());
        let interpreter = PathBuf::from(OsStr::from_bytes(words.next().unwrap_or_default()));
        // `env NAME` runs a program that it finds in the path.
        path = match words.next() {
            Some(name) if interpreter.ends_with("env") && !name.starts_with(b"-") => {
                find(OsStr::from_bytes(name))?
            }
            _ => interpreter,
        };
    }
    Err(Unsuitable::Foreign(path))
}

fn head(path: &Path) -> Result<Vec<u8>, Unsuitable> {
    let unreadable = |error| Unsuitable::Unreadable {
        path: path.to_owned(),
        error,
    };
    let found = fs::metadata(path).map_err(unreadable)?;
    if !found.is_file() || !is_executable(&found) {
        return Err(Unsuitable::NotExecutable(path.to_owned()));
    }
    if is_privileged(path, &found) {
        return Err(Unsuitable::Privileged(path.to_owned()));
    }
    beginning(path).map_err(unreadable)
}

/// Reads only the beginning: programs with debug information are large, and each start would wait for that.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn is_privileged(path: &Path, found: &fs::Metadata) -> bool {
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2000;
    let user = rustix::process::geteuid();
    let changes_user = found.mode() & SET_USER != 0 && found.uid() != user.as_raw();
    let changes_group =
        found.mode() & SET_GROUP != 0 && found.gid() != rustix::process::getegid().as_raw();
    let mut value = [0; 64];
    let has_capabilities = !user.is_root()
        && rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok();
    changes_user || changes_group || has_capabilities
}

fn check_binary(path: &Path, head: &[u8]) -> Result<(), Unsuitable> {
    let own = beginning(Path::new("/proc/self/exe"))
        .ok()
        .and_then(|own| Some((*own.get(4)?, machine(&own)?)));
    let is_elf = head.starts_with(b"\x7fELF");
    let theirs = head.get(4).copied().zip(machine(head));
    if !is_elf || theirs.is_none() || own.is_some() && theirs != own {
        return Err(Unsuitable::Foreign(path.to_owned()));
    }
    match linker(head) {
        None => Err(Unsuitable::Static(path.to_owned())),
        Some(linker) if is_musl(linker) => Err(Unsuitable::Musl {
            path: path.to_owned(),
            linker: OsStr::from_bytes(linker).to_owned(),
        }),
        Some(_) => Ok(()),
    }
}

/// The run-time library of AddressSanitizer, if the program loads it: that refuses to start unless it is the first of all
/// libraries. (The dynamic linker finds it by this name as it does for the program. A program into which the run-time
/// library is linked, as Clang does, has no such condition.)
fn first_library(path: &Path) -> Option<OsString> {
    let file = ReadCache::new(File::open(path).ok()?);
    let elf = object::File::parse(&file).ok()?;
    let mut names = elf.import_libraries().ok()?.flatten();
    let name = names.find(|library| is_first(library.name()))?;
    Some(OsStr::from_bytes(name.name()).to_owned())
}

/// The names that GCC and Clang give that library.
fn is_first(name: &[u8]) -> bool {
    name.starts_with(b"libasan.so") || name.starts_with(b"libclang_rt.asan")
}

/// Whether a dynamic linker is musl's: by its name, or, where it has glibc's name for compatibility, by that of the file
/// to which a link of this name leads.
fn is_musl(linker: &[u8]) -> bool {
    let names_it = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.windows(4).any(|part| part == b"musl")
    };
    let path = Path::new(OsStr::from_bytes(linker));
    names_it(path) || fs::canonicalize(path).is_ok_and(|path| names_it(&path))
}

fn machine(head: &[u8]) -> Option<u64> {
    number(head, 18, 2)
}

fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?.get(..length)?;
    // In this machine's byte order, which is checked before the result is used.
    let digits = bytes.iter().rev();
    Some(digits.fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The dynamic linker that a 64-bit program requests.
fn linker(head: &[u8]) -> Option<&[u8]> {
    const INTERPRETER: u64 = 3;
    let table = number(head, 32, 8)? as usize;
    let size = number(head, 54, 2)? as usize;
    let count = number(head, 56, 2)? as usize;
    let entries = (0..count).map(|index| table.saturating_add(index * size));
    let entry = entries
        .into_iter()
        .find(|entry| number(head, *entry, 4) == Some(INTERPRETER))?;
    let at = number(head, entry + 8, 8)? as usize;
    let length = number(head, entry + 32, 8)? as usize;
    let name = head.get(at..)?.get(..length)?;
    name.split(|byte| *byte == 0).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_testkit::Leftover;

    #[test]
    fn musl_is_recognised_by_its_linker_behind_a_link_too() {
        assert!(is_musl(b"/lib/ld-musl-aarch64.so.1"));
        assert!(!is_musl(b"/lib64/ld-linux-x86-64.so.2"));
        assert!(!is_musl(b"/musl/none/ld-linux-x86-64.so.2"));
        let folder = Leftover::folder("linker");
        let file = folder.path().join("ld-musl-x86_64.so.1");
        fs::write(&file, "").unwrap();
        let link = folder.path().join("ld-linux-x86-64.so.2");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_musl(link.as_os_str().as_bytes()));
    }
}
