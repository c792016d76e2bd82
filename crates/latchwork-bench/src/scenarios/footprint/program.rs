//! Whole programs in C, with semaphores and with mutexes: the sizes of `text`, `data` and `bss`.
//!
//! The program is `test-mutex`, before the migration of `examples/migrate` and after its second and third steps, compiled
//! with `-Os` and not linked: the sizes are those of the program's own code, with everything that the headers add. The
//! sources are parts of this crate, so that an installed command has them. Without a compiler there are no figures.

use std::io;
use std::process::Command;

use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, elf};

use crate::contestant::{Absent, Contestant};
use crate::result::Variant;

/// A program, and its source.
pub(super) struct Program {
    pub(super) name: &'static str,
    source: &'static str,
    text: &'static str,
}

/// A program in `sources`, which has links to `examples/migrate`.
macro_rules! program {
    ($name:literal, $source:literal) => {
        Program {
            name: $name,
            source: $source,
            text: include_str!(concat!("sources/", $source)),
        }
    };
}

pub(super) const PROGRAMS: [Program; 3] = [
    program!("semaphores in C", "test-mutex-1-semaphores.c"),
    program!("mutexes in C", "test-mutex-3-mutex.c"),
    program!("checked mutexes in C", "test-mutex-2-debug.c"),
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
        let folder = tempfile::Builder::new()
            .prefix("latchwork-bench-")
            .tempdir()?;
        let place = |name: &str| folder.path().join(name);
        for (name, text) in latchwork_c::headers::MIGRATION {
            std::fs::create_dir_all(place(name).parent().unwrap_or(folder.path()))?;
            std::fs::write(place(name), text)?;
        }
        std::fs::write(place(self.source), self.text)?;
        let object = place("object.o");
        let output = Command::new("cc")
            .args(["-std=c11", "-Os", "-c", "-o"])
            .arg(&object)
            .arg("-I")
            .arg(folder.path())
            .arg(place(self.source))
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("cc: {error}")))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or("no reason given");
            return Err(io::Error::other(format!("cc: {first}")));
        }
        let bytes = std::fs::read(&object)?;
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
