//! The name of an address in a program's file, by the file's own symbol table.
//!
//! The file is read with `pread` piece by piece. Nothing is allocated, and the loader is not called, since its
//! lock may be held by a task that waits for the caller. *Cost:* each look-up reads the whole table, some 0.1
//! ms for a thousand symbols: for reports.

use super::path::Path;
use crate::sys::cancellation::Undisturbed;
use core::fmt::Write;
use rustix::fd::OwnedFd;

/// A place in a file of machine code.
#[derive(Clone, Copy)]
pub(super) enum SymbolAddress {
    /// An instruction, by its offset in the file.
    Code(u64),
    /// A variable, by its distance from the beginning of the module in memory.
    Variable(u64),
}

/// The first bytes of a 64-bit ELF file.
const MAGIC: &[u8] = b"\x7fELF\x02";
/// Sizes of the file format's structures.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
/// Kinds of sections, and of symbols.
const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const OBJECT: u8 = 1;
const FUNCTION: u8 = 2;

/// Writes the name of the symbol at a place, and for a variable its distance from the symbol. `None`: the file
/// has no such symbol, or is not the one with this inode.
pub(super) fn write_symbol(
    path: &Path,
    inode: u64,
    place: SymbolAddress,
    to: &mut impl Write,
) -> Option<()> {
    let file = File::open(path)?;
    if rustix::fs::fstat(&file.file).ok()?.st_ino != inode {
        return None;
    }
    let header = file.header(0)?;
    let address = file.address(&header, place)?;
    let symbol = [SYMBOLS, DYNAMIC_SYMBOLS]
        .into_iter()
        .find_map(|kind| file.symbol(&header, kind, place, address))?;
    let mut name = [0; 96];
    let name = file.text(symbol.name_at, &mut name)?;
    to.write_str(name).ok()?;
    match address - symbol.address {
        0 => Some(()),
        _ if matches!(place, SymbolAddress::Code(_)) => Some(()),
        behind => write!(to, "+{behind:#x}").ok(),
    }
}

/// A program's file, or the memory of a process; Undisturbed until it is closed.
pub(super) struct File {
    file: OwnedFd,
    _undisturbed: Undisturbed,
}

struct Symbol {
    address: u64,
    /// The offset of its name in the file.
    name_at: u64,
}

impl File {
    pub(super) fn open(path: &Path) -> Option<Self> {
        let _undisturbed = Undisturbed::begin();
        path.open().ok().map(|file| Self { file, _undisturbed })
    }

    /// The header of the module that begins at `base`.
    pub(super) fn header(&self, base: u64) -> Option<[u8; HEADER]> {
        self.read(base)
            .filter(|header: &[u8; HEADER]| header.starts_with(MAGIC))
    }

    /// One of that module's segments.
    pub(super) fn segment(&self, base: u64, header: &[u8], index: u16) -> Option<[u8; SEGMENT]> {
        let table = base.checked_add(word(header, 32)?)?;
        self.read(table.checked_add(u64::from(index) * SEGMENT as u64)?)
    }

    fn read<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read_some(at, &mut bytes)? == N).then_some(bytes)
    }

    fn read_some(&self, at: u64, to: &mut [u8]) -> Option<usize> {
        rustix::io::pread(&self.file, to, at).ok()
    }

    fn text<'t>(&self, at: u64, room: &'t mut [u8]) -> Option<&'t str> {
        let count = self.read_some(at, room)?;
        let text = room[..count].split(|byte| *byte == 0).next()?;
        let text = text.utf8_chunks().next()?.valid();
        (!text.is_empty()).then_some(text)
    }

    /// The virtual address of a place, according to the file.
    fn address(&self, header: &[u8], place: SymbolAddress) -> Option<u64> {
        for index in 0..segments(header)? {
            let segment = self.segment(0, header, index)?;
            if narrow(&segment, 0)? != libc::PT_LOAD {
                continue;
            }
            let (offset, address) = (word(&segment, 8)?, word(&segment, 16)?);
            let within = match place {
                // The first loaded segment is the beginning of the module.
                SymbolAddress::Variable(behind) => {
                    let page = rustix::param::page_size() as u64;
                    return (address - address % page).checked_add(behind);
                }
                SymbolAddress::Code(at) => at.checked_sub(offset),
            };
            if let Some(within) = within.filter(|within| word(&segment, 32) > Some(*within)) {
                return address.checked_add(within);
            }
        }
        None
    }

    /// The symbol that contains an address, in the table of this kind.
    fn symbol(
        &self,
        header: &[u8],
        kind: u32,
        place: SymbolAddress,
        address: u64,
    ) -> Option<Symbol> {
        let (table, count) = (word(header, 40)?, half(header, 60)?);
        let section = |index: u32| -> Option<[u8; SECTION]> {
            self.read(table.checked_add(u64::from(index) * SECTION as u64)?)
        };
        let symbols = (0..u32::from(count))
            .map_while(section)
            .find(|section| narrow(section, 4) == Some(kind))?;
        let names = word(&section(narrow(&symbols, 40)?)?, 24)?;
        let (mut at, size) = (word(&symbols, 24)?, word(&symbols, 32)?);
        let end = at.checked_add(size)?;
        let wanted = match place {
            SymbolAddress::Code(_) => FUNCTION,
            SymbolAddress::Variable(_) => OBJECT,
        };
        let mut room = [0; SYMBOL * 64];
        while at < end {
            let count = self.read_some(at, &mut room)? / SYMBOL * SYMBOL;
            let count = count.min((end - at) as usize);
            if count == 0 {
                return None;
            }
            for symbol in room[..count].chunks_exact(SYMBOL) {
                let (begins, bytes) = (word(symbol, 8)?, word(symbol, 16)?);
                let is_in = address.checked_sub(begins).is_some_and(|at| at < bytes);
                if is_in && symbol[4] & 0xf == wanted {
                    return Some(Symbol {
                        address: begins,
                        name_at: names.checked_add(narrow(symbol, 0)?.into())?,
                    });
                }
            }
            at += count as u64;
        }
        None
    }
}

/// The number of segments, by a module's header.
pub(super) fn segments(header: &[u8]) -> Option<u16> {
    half(header, 56)
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn narrow(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
