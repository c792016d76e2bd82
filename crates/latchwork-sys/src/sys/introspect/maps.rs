//! Memory mappings: the module, the symbol or the region around an address, from `/proc/PID/maps`.

use super::own_ids::shows_own_ids;
use super::path::{Path, each_line};
use super::symbol::{self, SymbolAddress};
use crate::sys::thread;
use core::fmt::{self, Write};

/// Writes `module+offset` of a return address or instruction, where the offset is one in the file, or the bare
/// address if it is in no file, or if that is a file of another process and `/proc` shows other IDs. Adds the name of the
/// function in parentheses, if the file has it.
pub fn write_place(process: u32, address: u64, to: &mut impl Write) -> fmt::Result {
    let write = |mapping: Mapping<'_>| {
        let file = mapping.file?;
        let name = file.rsplit('/').next().unwrap_or(file);
        let offset = address - mapping.start + mapping.offset;
        write!(to, "{name}+{offset:#x}").ok()?;
        // A return address may lie behind the end of its function.
        let place = SymbolAddress::Code(offset.saturating_sub(1));
        let mut function = Name::EMPTY;
        if let Ok(path) = Path::new(format_args!("{file}"))
            && symbol::write_symbol(&path, mapping.inode, place, &mut function).is_some()
        {
            let _ = write!(to, " ({})", function.text());
        }
        Some(())
    };
    let found = if process == thread::process_id() {
        mapping_at(format_args!("/proc/self/maps"), address, write)
    } else if shows_own_ids() {
        mapping_at(format_args!("/proc/{process}/maps"), address, write)
    } else {
        None
    };
    found.map_or_else(|| write!(to, "{address:#x}"), Ok)
}

/// Writes the module of a static variable and the variable's offset in it; `None` if it is in no module.
pub fn write_static(address: usize, to: &mut impl Write) -> Option<()> {
    let module = Module::around(address as u64)?;
    write!(to, "{}+{:#x}", module.name(), module.behind).ok()
}

/// Writes the module and the symbol of a static variable that has the name given by [`write_static`]; `None` if
/// it has another name, or no symbol.
pub fn write_variable(address: usize, called: &str, to: &mut impl Write) -> Option<()> {
    let (_, behind) = called.rsplit_once("+0x")?;
    let module = Module::around(address as u64)?;
    let is_its_place =
        u64::from_str_radix(behind, 16).ok()? == module.behind && called.starts_with(module.name());
    if !is_its_place {
        return None;
    }
    let mut variable = Name::EMPTY;
    let place = SymbolAddress::Variable(module.behind);
    symbol::write_symbol(&module.path, module.inode, place, &mut variable)?;
    write!(to, "{}:{}", module.name(), variable.text()).ok()
}

/// The name of a function or variable.
type Name = Path;

/// The module around an address, from `/proc/self/maps` and not from the loader, whose lock may be held by a task that
/// waits for the caller. Zero-initialised variables are in anonymous memory behind the module's file mappings.
struct Module {
    path: Path,
    inode: u64,
    /// The distance of the address from the module's beginning.
    behind: u64,
}

impl Module {
    fn around(address: u64) -> Option<Self> {
        let maps = Path::new(format_args!("/proc/self/maps")).ok()?;
        let mut path = Path::EMPTY;
        let (mut inode, mut base, mut last_end) = (0, 0, 0);
        let (mut found, mut is_behind) = (false, false);
        each_line(&maps, |line| {
            let Some(mapping) = Mapping::parse(line) else {
                return false;
            };
            is_behind = mapping.file.is_none();
            match mapping.file {
                Some(file) if file.starts_with('/') => {
                    if path.text() != file {
                        (base, inode) = (mapping.start, mapping.inode);
                        path = Path::new(format_args!("{file}")).unwrap_or(Path::EMPTY);
                    }
                }
                None if mapping.start == last_end && path.length > 0 => {}
                _ => path = Path::EMPTY,
            }
            last_end = mapping.end;
            found = (mapping.start..mapping.end).contains(&address);
            found
        });
        if !found || path.length == 0 || is_memory(path.text()) {
            return None;
        }
        // Unrelated memory may be mapped right behind the module.
        if is_behind && module_end(base).is_some_and(|end| address >= end) {
            return None;
        }
        Some(Self {
            path,
            inode,
            behind: address - base,
        })
    }

    fn name(&self) -> &str {
        self.path.text().rsplit('/').next().unwrap_or_default()
    }
}

/// The end of the segments of a module that begins at `base`. (Read through a file, since the module may be
/// unloaded meanwhile.)
fn module_end(base: u64) -> Option<u64> {
    let memory = symbol::File::open(&Path::new(format_args!("/proc/self/mem")).ok()?)?;
    let header = memory.header(base)?;
    let page = rustix::param::page_size() as u64;
    let (mut first, mut end) = (None, 0);
    for index in 0..symbol::segments(&header)? {
        let segment = memory.segment(base, &header, index)?;
        if symbol::narrow(&segment, 0)? == libc::PT_LOAD {
            let (begin, length) = (symbol::word(&segment, 16)?, symbol::word(&segment, 40)?);
            first.get_or_insert(begin - begin % page);
            end = begin.checked_add(length)?.max(end);
        }
    }
    // The mapping ends with a whole page.
    base.checked_add(end.checked_sub(first?)?)?
        .checked_next_multiple_of(page)
}

/// Whether a path is that of shared memory and not of a module.
fn is_memory(path: &str) -> bool {
    ["/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"]
        .iter()
        .any(|start| path.starts_with(start))
}

/// Whether an address of this process is in memory that other processes may have mapped, too.
pub fn is_shared_memory(address: u64) -> bool {
    let is_shared = |mapping: Mapping<'_>| mapping.is_shared.then_some(());
    mapping_at(format_args!("/proc/self/maps"), address, is_shared).is_some()
}

/// Whether memory at an address of this process keeps its purpose unless a call reports a change: a module's
/// variables, or, with `heap`, the C library's heap.
pub fn keeps_what_it_is(address: u64, heap: bool) -> bool {
    let is_heap = |mapping: Mapping<'_>| (mapping.file == Some("[heap]")).then_some(());
    Module::around(address).is_some()
        || heap && mapping_at(format_args!("/proc/self/maps"), address, is_heap).is_some()
}

/// What `read` makes of the mapping that contains an address, by this list of mappings.
fn mapping_at<R>(
    maps: fmt::Arguments<'_>,
    address: u64,
    mut read: impl FnMut(Mapping<'_>) -> Option<R>,
) -> Option<R> {
    let mut result = None;
    each_line(&Path::new(maps).ok()?, |line| {
        let mapping =
            Mapping::parse(line).filter(|mapping| (mapping.start..mapping.end).contains(&address));
        let is_it = mapping.is_some();
        result = mapping.and_then(&mut read);
        is_it
    });
    result
}

/// A line of `/proc/PID/maps`.
pub(in crate::sys) struct Mapping<'a> {
    pub(in crate::sys) start: u64,
    pub(in crate::sys) end: u64,
    pub(in crate::sys) is_shared: bool,
    pub(in crate::sys) offset: u64,
    pub(in crate::sys) device: u64,
    pub(in crate::sys) inode: u64,
    file: Option<&'a str>,
}

impl<'a> Mapping<'a> {
    pub(in crate::sys) fn parse(line: &'a str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let offset = fields.next().and_then(hex)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            is_shared: rights.ends_with('s'),
            offset,
            device: hex(major)? << 32 | hex(minor)?,
            inode: fields.next()?.parse().ok()?,
            file: fields.next(),
        })
    }
}
