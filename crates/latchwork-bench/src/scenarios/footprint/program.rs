//! Whole programs in C, with semaphores and with mutexes: the sizes of `text`, `data` and `bss`.
//!
//! The program is `test-mutex`, before the migration of `examples/migrate` and after its third step, compiled with
//! `-Os` and not linked: the sizes are those of the program's own code, with everything that the headers add. If
//! sources or a compiler are missing, there are no figures.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSection, SectionFlags, SectionKind, elf};

use crate::contestant::{Absent, Contestant};
use crate::result::Variant;

/// A program, its source, and the sizes in 2005 of the kernel that was built this way: text, data, bss.
pub(super) struct Program {
    pub(super) name: &'static str,
    source: &'static str,
    pub(super) published: [f64; 3],
}

pub(super) const PROGRAMS: [Program; 2] = [
    Program {
        name: "semaphores in C",
        source: "test-mutex-1-semaphores.c",
        published: [3_280_380.0, 868_188.0, 396_860.0],
    },
    Program {
        name: "mutexes in C",
        source: "test-mutex-3-mutex.c",
        published: [3_255_329.0, 865_296.0, 396_732.0],
    },
];

/// The cases of a program, in the order of its figures.
pub(super) const CASES: [Variant; 3] = [
    Variant::ProgramText,
    Variant::ProgramData,
    Variant::ProgramBss,
];

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

    /// Bytes of text, data and bss, as `size` counts them.
    pub(super) fn sizes(&self) -> io::Result<[f64; 3]> {
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
        let mut sizes = [0.0; 3];
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
