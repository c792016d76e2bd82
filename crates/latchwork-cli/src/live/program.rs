//! A program or library: its statics by address, and the lines of its code.
//!
//! What is needed of it is read, never mapped (the file may shrink meanwhile), and no table is trusted.

use super::picture::Module;
use gimli::{EndianRcSlice, RunTimeEndian};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, ObjectSymbolTable, ReadCache, SymbolKind,
};
use rustix::fs::{Mode, OFlags};
use std::fmt::{self, Write};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

/// A program larger than this keeps its names to itself.
const MOST_BYTES: u64 = 256 << 20;
/// Bytes of a name that are shown.
const NAME: usize = 512;

type Lines = addr2line::Context<EndianRcSlice<RunTimeEndian>>;

/// What could be learnt of a program; nothing if it is not there any more.
#[derive(Default)]
pub(crate) struct Program {
    file: Option<ReadCache<File>>,
    statics: Vec<Symbol>,
    /// Offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// The address behind its last page.
    end: u64,
    /// Read when it is first asked for.
    code: Option<Code>,
}

struct Code {
    functions: Vec<Symbol>,
    lines: Option<Lines>,
}

/// Its name is read when it is asked for: large programs have hundreds of thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    address: u64,
    bytes: u64,
    index: usize,
    is_dynamic: bool,
}

type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

impl Program {
    /// The program that a process has mapped.
    pub(crate) fn read(pid: u32, module: &Module) -> Self {
        let mut program = Self {
            file: file_of(pid, module),
            ..Self::default()
        };
        if let Some(elf) = program.elf() {
            let statics = symbols(&elf, SymbolKind::Data);
            let segments = elf.segments().map(|segment| {
                let (offset, size) = segment.file_range();
                (offset, size, segment.address())
            });
            let segments = segments.collect();
            let ends = elf.segments();
            let ends = ends.map(|segment| segment.address().saturating_add(segment.size()));
            let page = rustix::param::page_size() as u64;
            let end = ends
                .max()
                .and_then(|end| end.checked_next_multiple_of(page));
            program.end = end.unwrap_or(u64::MAX);
            (program.statics, program.segments) = (statics, segments);
        }
        program
    }

    fn elf(&self) -> Option<Elf<'_>> {
        object::File::parse(self.file.as_ref()?).ok()
    }

    /// Whether an address of the process is behind all of it: what was mapped there next is none of its statics.
    pub(super) fn ends_before(&self, module: &Module, address: u64) -> bool {
        self.in_file(module, address)
            .is_some_and(|address| address >= self.end)
    }

    /// The static at an address of the process, and how far behind its beginning.
    pub(crate) fn find_static(&self, module: &Module, address: u64) -> Option<(String, u64)> {
        self.find(&self.statics, self.in_file(module, address)?)
    }

    /// The line of code at an address of the process, or at least the function.
    pub(super) fn find_line(&mut self, module: &Module, address: u64) -> Option<String> {
        let wanted = self.in_file(module, address)?;
        let code = self.code()?;
        if let Some(lines) = &code.lines
            && let Ok(Some(location)) = lines.find_location(wanted)
            && let (Some(file), Some(line)) = (location.file, location.line)
        {
            return Some(format!("{file}:{line}"));
        }
        let functions = &self.code.as_ref()?.functions;
        let (name, offset) = self.find(functions, wanted)?;
        Some(format!("{}:{name}+{offset:#x}", module.file_name()))
    }

    /// The line of code at an address of the process, and the function, if there is debug information. Of functions that were inlined there, it is the
    /// innermost one that is none of the system's headers'.
    pub(crate) fn find_place(&mut self, module: &Module, address: u64) -> Option<String> {
        let wanted = self.in_file(module, address)?;
        let code = self.code()?;
        let mut place = None;
        if let Some(lines) = &code.lines
            && let Ok(mut frames) = lines.find_frames(wanted).skip_all_loads()
        {
            while let Ok(Some(frame)) = frames.next() {
                let Some(location) = &frame.location else {
                    continue;
                };
                let (Some(file), Some(line)) = (location.file, location.line) else {
                    continue;
                };
                let function = frame.function.as_ref();
                let name = function.and_then(|name| name.raw_name().ok());
                let name = name.map(|name| format!(" ({})", demangled(&name)));
                let is_the_systems = file.starts_with("/usr/") || file.starts_with("/rustc/");
                let text = || format!("{file}:{line}{}", name.unwrap_or_default());
                if !is_the_systems {
                    return Some(text());
                }
                place.get_or_insert_with(text);
            }
        }
        place
    }

    fn code(&mut self) -> Option<&Code> {
        if self.code.is_none() {
            self.code = self.elf().map(|elf| Code::read(&elf));
        }
        self.code.as_ref()
    }

    /// The name of the symbol that an address is part of, and how far behind its beginning.
    fn find(&self, symbols: &[Symbol], address: u64) -> Option<(String, u64)> {
        let behind = symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = symbols.get(behind.checked_sub(1)?)?;
        let within = address - symbol.address;
        (within < symbol.bytes).then_some(())?;
        let elf = self.elf()?;
        let table = match symbol.is_dynamic {
            true => elf.dynamic_symbol_table(),
            false => elf.symbol_table(),
        };
        let found = table?
            .symbol_by_index(object::SymbolIndex(symbol.index))
            .ok()?;
        Some((demangled(found.name().ok()?), within))
    }

    /// The address that the program's tables know it by.
    fn in_file(&self, module: &Module, address: u64) -> Option<u64> {
        // The pages that lie lowest begin in this segment, or before it on its first page.
        let page = rustix::param::page_size() as u64;
        let (offset, _, begin) = self.segments.iter().copied().find(|(offset, size, _)| {
            let first = offset - offset % page;
            (first..offset.saturating_add((*size).max(1))).contains(&module.offset)
        })?;
        let first = begin.wrapping_sub(offset).wrapping_add(module.offset);
        Some(address.wrapping_sub(module.start).wrapping_add(first))
    }
}

impl Code {
    fn read(elf: &Elf<'_>) -> Self {
        let endian = if elf.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let section = |id: gimli::SectionId| -> Result<_, gimli::Error> {
            let data = elf.section_by_name(id.name());
            // Compressed ones count as missing.
            let data = data.and_then(|section| section.uncompressed_data().ok());
            let data: Rc<[u8]> = data.as_deref().unwrap_or_default().into();
            Ok(EndianRcSlice::new(data, endian))
        };
        Self {
            functions: symbols(elf, SymbolKind::Text),
            lines: gimli::Dwarf::load(section)
                .and_then(addr2line::Context::from_dwarf)
                .ok(),
        }
    }
}

/// The file that a process has mapped, if it is still there.
fn file_of(pid: u32, module: &Module) -> Option<ReadCache<File>> {
    let path = module
        .path
        .strip_suffix(" (deleted)")
        .unwrap_or(&module.path);
    // Another file may have got its name, or a FIFO, at which to open it would wait, or a device. (A layered file
    // system shows another device in maps.)
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let path = format!("/proc/{pid}/root{path}");
    let place = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let found = place.metadata().ok()?;
    if found.ino() != module.inode || !found.is_file() || found.len() > MOST_BYTES {
        return None;
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    Some(ReadCache::new(file))
}

fn symbols(elf: &Elf<'_>, kind: SymbolKind) -> Vec<Symbol> {
    let all = elf.symbols().map(|symbol| (symbol, false));
    let dynamic = elf.dynamic_symbols().map(|symbol| (symbol, true));
    let mut symbols: Vec<_> = all
        .chain(dynamic)
        .filter(|(symbol, _)| symbol.kind() == kind && symbol.size() > 0)
        .map(|(symbol, is_dynamic)| Symbol {
            address: symbol.address(),
            bytes: symbol.size(),
            index: symbol.index().0,
            is_dynamic,
        })
        .collect();
    symbols.sort_unstable();
    symbols
}

/// The name as it stands in the program's text.
pub(crate) fn demangled(name: &str) -> String {
    let mut shown = Shown::default();
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let _ = write!(shown, "{rust:#}");
    } else if name.starts_with("_Z")
        && name.len() <= MOST_MANGLED
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
    {
        let options = cpp_demangle::DemangleOptions::new();
        let is_whole = symbol.structured_demangle(&mut shown, &options).is_ok();
        if !is_whole && shown.0.len() < NAME {
            shown.0.clear();
        }
    }
    if shown.0.is_empty() {
        let _ = shown.write_str(name);
    }
    shown.0
}

/// A name of more bytes is shown as it is.
const MOST_MANGLED: usize = 1 << 14;

/// The beginning of a name: a few bytes can stand for billions.
#[derive(Default)]
struct Shown(String);

impl Write for Shown {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() >= NAME {
                return Err(fmt::Error);
            }
            self.0.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shown_as_in_the_program() {
        assert_eq!(
            demangled("_ZN5space3fooEibc"),
            "space::foo(int, bool, char)"
        );
        assert_eq!(demangled("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(demangled("plain"), "plain");
    }

    /// Each argument is a pair of two like the one before.
    #[test]
    fn a_name_that_stands_for_billions_of_bytes_is_cut() {
        let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let pairs = digits
            .chars()
            .map(|before| format!("S_IS{before}_S{before}_E"));
        let mangled: String = pairs.collect();
        let shown = demangled(&format!("_Z1f1PIccE{mangled}"));
        assert!(
            shown.starts_with("f(P<char, char>, P<P<char, char>, P<char, char> >"),
            "{shown}"
        );
        assert!(shown.len() <= NAME, "{}", shown.len());
    }
}
