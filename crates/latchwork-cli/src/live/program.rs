//! A program or library: its statics by address, and the lines of its code.
//!
//! The file is read, never mapped, since it may shrink meanwhile, and no table in it is trusted.
//!
//! A stripped file names another one that has its symbols and lines: by its build ID, or by a link (.gnu_debuglink).
//! That file is searched in the places that debuggers use, and used if it has the same build ID.

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

/// The largest program whose symbols are read.
const MOST_BYTES: u64 = 256 << 20;
/// The most bytes of a name that are shown.
const NAME: usize = 512;

type Lines = addr2line::Context<EndianRcSlice<RunTimeEndian>>;

/// The tables of a program; empty if its file is gone.
#[derive(Default)]
pub(crate) struct Program {
    file: Option<ReadCache<File>>,
    /// The file with its symbols and lines, if it has none itself.
    debug: Option<ReadCache<File>>,
    statics: Vec<Symbol>,
    /// Offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    /// The address behind its last page.
    end: u64,
    /// Read when it is first needed.
    code: Option<Code>,
}

struct Code {
    functions: Vec<Symbol>,
    lines: Option<Lines>,
}

/// Its name is read when it is needed, since large programs have hundreds of thousands of symbols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    address: u64,
    bytes: u64,
    index: usize,
    table: Table,
}

/// The table of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Table {
    Own,
    Dynamic,
    /// In the separate debug file.
    Debug,
}

type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

impl Program {
    /// The program that a process has mapped.
    pub(crate) fn read(pid: u32, module: &Module) -> Self {
        let mut program = Self {
            file: file_of(pid, module),
            ..Self::default()
        };
        if let Some(elf) = program.elf()
            && elf
                .symbol_table()
                .is_none_or(|table| table.symbols().next().is_none())
        {
            program.debug = debug_file(pid, module, &elf);
        }
        if let Some(elf) = program.elf() {
            let statics = symbols(&elf, program.debug().as_ref(), SymbolKind::Data);
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

    fn debug(&self) -> Option<Elf<'_>> {
        object::File::parse(self.debug.as_ref()?).ok()
    }

    /// Whether an address of the process is beyond the program: then what is mapped there is none of its statics.
    pub(super) fn ends_before(&self, module: &Module, address: u64) -> bool {
        self.in_file(module, address)
            .is_some_and(|address| address >= self.end)
    }

    /// The static at an address of the process, and the offset in it.
    pub(crate) fn find_static(&self, module: &Module, address: u64) -> Option<(String, u64)> {
        self.find(&self.statics, self.in_file(module, address)?)
    }

    /// The source line at an address of the process, or at least the function.
    pub(crate) fn find_line(&mut self, module: &Module, address: u64) -> Option<String> {
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

    /// The source line at an address of the process, and the function, if there is debug information. If functions were
    /// inlined there, this is the innermost one that is not from a system header.
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
            let debug = self.debug();
            self.code = self.elf().map(|elf| Code::read(&elf, debug.as_ref()));
        }
        self.code.as_ref()
    }

    /// The symbol that contains an address, and the offset in it.
    fn find(&self, symbols: &[Symbol], address: u64) -> Option<(String, u64)> {
        let behind = symbols.partition_point(|symbol| symbol.address <= address);
        let symbol = symbols.get(behind.checked_sub(1)?)?;
        let within = address - symbol.address;
        (within < symbol.bytes).then_some(())?;
        let elf = match symbol.table {
            Table::Debug => self.debug()?,
            _ => self.elf()?,
        };
        let table = match symbol.table {
            Table::Dynamic => elf.dynamic_symbol_table(),
            _ => elf.symbol_table(),
        };
        let found = table?
            .symbol_by_index(object::SymbolIndex(symbol.index))
            .ok()?;
        Some((demangled(found.name().ok()?), within))
    }

    /// The address in the program's own tables.
    fn in_file(&self, module: &Module, address: u64) -> Option<u64> {
        // The lowest mapping begins in this segment, or on its first page before it.
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
    fn read(elf: &Elf<'_>, debug: Option<&Elf<'_>>) -> Self {
        let with_lines = debug.unwrap_or(elf);
        let endian = if elf.is_little_endian() {
            RunTimeEndian::Little
        } else {
            RunTimeEndian::Big
        };
        let section = |id: gimli::SectionId| -> Result<_, gimli::Error> {
            let data = with_lines.section_by_name(id.name());
            // Compressed sections count as missing.
            let data = data.and_then(|section| section.uncompressed_data().ok());
            let data: Rc<[u8]> = data.as_deref().unwrap_or_default().into();
            Ok(EndianRcSlice::new(data, endian))
        };
        Self {
            functions: symbols(elf, debug, SymbolKind::Text),
            lines: gimli::Dwarf::load(section)
                .and_then(addr2line::Context::from_dwarf)
                .ok(),
        }
    }
}

/// The file that a process has mapped, if it is still there.
fn file_of(pid: u32, module: &Module) -> Option<ReadCache<File>> {
    // Another file may have got its name, or a FIFO, whose opening would block, or a device. (With a layered file
    // system, maps shows another device number.)
    open_plain(pid, path_of(module), Some(module.inode))
}

fn path_of(module: &Module) -> &str {
    let path = module.path.strip_suffix(" (deleted)");
    path.unwrap_or(&module.path)
}

/// A file as a process sees it, if it is a regular file of limited size with this inode.
fn open_plain(pid: u32, path: &str, inode: Option<u64>) -> Option<ReadCache<File>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let path = format!("/proc/{pid}/root{path}");
    let place = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let found = place.metadata().ok()?;
    let is_it = inode.is_none_or(|inode| inode == found.ino());
    if !is_it || !found.is_file() || found.len() > MOST_BYTES {
        return None;
    }
    let file = File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    Some(ReadCache::new(file))
}

/// The file with the symbols and lines of a stripped one.
fn debug_file(pid: u32, module: &Module, elf: &Elf<'_>) -> Option<ReadCache<File>> {
    let id = elf.build_id().ok()??;
    let (directory, _) = path_of(module).rsplit_once('/')?;
    let linked = elf.gnu_debuglink().ok().flatten();
    let linked = linked.and_then(|(name, _)| str::from_utf8(name).ok());
    // It must be a plain file name, without directories.
    let linked = linked.filter(|name| !name.contains('/'));
    let by_link = linked.into_iter().flat_map(|name| {
        [
            format!("{directory}/.debug/{name}"),
            format!("{directory}/{name}"),
            format!("/usr/lib/debug{directory}/{name}"),
        ]
    });
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let by_id = id.split_first().map(|(first, rest)| {
        let (first, rest) = (hex(&[*first]), hex(rest));
        format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")
    });
    by_link.chain(by_id).find_map(|path| {
        let file = open_plain(pid, &path, None)?;
        let found = object::File::parse(&file).ok()?.build_id().ok()??.to_vec();
        (found == id).then_some(file)
    })
}

fn symbols(elf: &Elf<'_>, debug: Option<&Elf<'_>>, kind: SymbolKind) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    learn(elf.symbols(), Table::Own, kind, &mut symbols);
    learn(elf.dynamic_symbols(), Table::Dynamic, kind, &mut symbols);
    if let Some(debug) = debug {
        learn(debug.symbols(), Table::Debug, kind, &mut symbols);
    }
    symbols.sort_unstable();
    symbols
}

/// Adds the symbols of one kind from a table.
fn learn<'a>(
    from: impl Iterator<Item: ObjectSymbol<'a>>,
    table: Table,
    kind: SymbolKind,
    to: &mut Vec<Symbol>,
) {
    let wanted = from.filter(|symbol| symbol.kind() == kind && symbol.size() > 0);
    to.extend(wanted.map(|symbol| Symbol {
        address: symbol.address(),
        bytes: symbol.size(),
        index: symbol.index().0,
        table,
    }));
}

/// The name as it is in the program's source.
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

/// Names with more bytes are not demangled.
const MOST_MANGLED: usize = 1 << 14;

/// The beginning of a name, since a few mangled bytes can expand to billions.
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

    /// Each argument is a pair of two that equal the one before.
    #[test]
    fn a_name_that_expands_to_billions_of_bytes_is_cut() {
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
