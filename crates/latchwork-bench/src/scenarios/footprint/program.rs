//! Whole programs in C, with semaphores and with mutexes: the sizes of `text`, `data` and `bss`.
//!
//! The program is `test-mutex`, before the migration of `examples/migrate` and after its second and third steps, compiled
//! with `-Os` and not linked: the sizes are those of the program's own code, with everything that the headers add. If
//! sources or a compiler are missing, there are no figures.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, elf};

use crate::contestant::{Absent, Contestant};
use crate::result::Variant;

/// A program, and its source.
pub(super) struct Program {
    pub(super) name: &'static str,
    source: &'static str,
}

pub(super) const PROGRAMS: [Program; 3] = [
    Program {
        name: "semaphores in C",
        source: "test-mutex-1-semaphores.c",
    },
    Program {
        name: "mutexes in C",
        source: "test-mutex-3-mutex.c",
    },
    Program {
        name: "checked mutexes in C",
        source: "test-mutex-2-debug.c",
    },
];

/// The cases of a program, in the order of its figures.
pub(super) const CASES: [Variant; 4] = [
    Variant::ProgramText,
    Variant::ProgramData,
    Variant::ProgramBss,
    Variant::Size,
];

/// The object in the source that all its tasks lock.
const OBJECT: &str = "directory";

impl Program {
    pub(super) fn contestant(&self) -> Contestant {
        let absent = self.sizes().err().map(|error| Absent {
            reason: error.to_string(),
            package: Some("gcc"),
        });
        Contestant {
            name: self.name,
            absent,
        }
    }

    /// Bytes of text, data and bss, as `size` counts them, and of the object that it locks.
    pub(super) fn sizes(&self) -> io::Result<[f64; 4]> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let object = Scratch::new(self.source);
        let output = Command::new("cc")
            .args(["-std=c11", "-Os", "-c", "-o"])
            .arg(&object.0)
            .arg("-I")
            .arg(repository.join("crates/latchwork-c/include"))
            .arg(repository.join("examples/migrate").join(self.source))
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("cc: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or("no reason given");
            return Err(io::Error::other(format!("cc: {first}")));
        }
        let bytes = std::fs::read(&object.0)?;
        let file = object::File::parse(&*bytes).map_err(io::Error::other)?;
        let mut sizes = [0.0; 4];
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
                continue;
            };
            let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
            let place = match section.kind() {
                _ if !has(elf::SHF_ALLOC) => continue,
                SectionKind::UninitializedData | SectionKind::UninitializedTls => 2,
                _ if has(elf::SHF_WRITE) => 1,
                _ => 0,
            };
            sizes[place] += section.size() as f64;
        }
        let object = file.symbols().find(|symbol| symbol.name() == Ok(OBJECT));
        let object = object.ok_or_else(|| io::Error::other(format!("no object {OBJECT}")))?;
        sizes[3] = object.size() as f64;
        Ok(sizes)
    }
}

/// A file that is removed after it was read.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("latchwork-{}-{number}-{name}.o", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // An error is ignored: it may never have been created.
        let _ = std::fs::remove_file(&self.0);
    }
}
