//! The memory mappings of a process, from `/proc/PID/maps`.

use core::ops::Range;
use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The most bytes that are read; further lines are ignored.
const MOST_BYTES: u64 = 64 << 20;

/// The maps of a process at one moment, by address.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    maps: Vec<Mapping>,
    /// Device and inode of each file that is mapped.
    files: HashSet<(u64, u64)>,
}

/// Pages that were mapped together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether changes are visible to others that map the same file.
    pub(crate) shared: bool,
    /// The offset of `start` in the file.
    pub(crate) offset: u64,
    /// As `stat` gives it.
    pub(crate) device: u64,
    /// 0 if there is no file.
    pub(crate) inode: u64,
    /// The file's path, a name in brackets, or nothing.
    pub(crate) path: String,
}

impl Maps {
    /// Empty if the process has ended, or cannot be inspected.
    pub(crate) fn of(pid: u32) -> Self {
        let read = |path: &Path| {
            let mut text = Vec::new();
            let file = File::open(path).ok()?;
            file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
            (!text.is_empty()).then(|| Self::parse(&String::from_utf8_lossy(&text)))
        };
        let process = PathBuf::from(format!("/proc/{pid}"));
        // If the first thread has ended, its own file is empty, and those of the others have the process's maps.
        let of_others = || {
            let threads = std::fs::read_dir(process.join("task")).ok()?;
            threads
                .flatten()
                .find_map(|thread| read(&thread.path().join("maps")))
        };
        read(&process.join("maps"))
            .or_else(of_others)
            .unwrap_or_default()
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut maps: Vec<_> = text.lines().filter_map(Mapping::parse).collect();
        maps.sort_by_key(|mapping| mapping.start);
        let files = maps.iter().map(|mapping| (mapping.device, mapping.inode));
        let files = files.collect();
        Self { maps, files }
    }

    /// Whether the process has mapped this file; `None` if its maps are not known.
    pub(crate) fn contain(&self, file: (u64, u64)) -> Option<bool> {
        (!self.maps.is_empty()).then(|| self.files.contains(&file))
    }

    /// All of them, by address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Mapping> + Clone {
        self.maps.iter()
    }

    /// The mapping at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Mapping> {
        let behind = self
            .maps
            .partition_point(|mapping| mapping.start <= address);
        let mapping = self.maps.get(behind.checked_sub(1)?)?;
        (address < mapping.end).then_some(mapping)
    }

    /// The mappings around an address in which a lock lies as a whole: of one file, or of a module.
    pub(crate) fn piece(&self, address: u64) -> Option<Range<u64>> {
        let behind = self
            .maps
            .partition_point(|mapping| mapping.start <= address);
        let here = self.at(address)?;
        let (mut first, mut last) = (here, here);
        for mapping in self.maps[..behind].iter().rev().skip(1) {
            if !first.continues(mapping) {
                break;
            }
            first = mapping;
        }
        for mapping in &self.maps[behind..] {
            if !mapping.continues(last) {
                break;
            }
            last = mapping;
        }
        Some(first.start..last.end)
    }

    /// The file whose static data an address belongs to: that of the mapping there, or of the mapping that ends where
    /// the anonymous pages there begin (statics that are initially zero have no file behind them).
    pub(crate) fn module(&self, address: u64) -> Option<&Mapping> {
        let here = self.at(address)?;
        if here.inode != 0 {
            return Some(here);
        }
        let before = self.at(here.start.checked_sub(1)?)?;
        (here.path.is_empty() && before.inode != 0).then_some(before)
    }

    /// The lowest mapping of the same file.
    pub(crate) fn first_of(&self, module: &Mapping) -> Option<&Mapping> {
        self.maps
            .iter()
            .find(|mapping| (mapping.device, mapping.inode) == (module.device, module.inode))
    }
}

impl Mapping {
    /// Whether it begins where another one ends, and may have been one with it, or has a module's statics that are initially
    /// zero.
    fn continues(&self, before: &Self) -> bool {
        let has_same_file = (self.device, self.inode) == (before.device, before.inode);
        self.start == before.end && (has_same_file || self.inode == 0 && self.path.is_empty())
    }

    /// `start-end perms offset major:minor inode path`.
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let trimmed = rest.trim_start_matches(' ');
            let (field, behind) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
            rest = behind;
            (!field.is_empty()).then_some(field)
        };
        let (start, end) = field()?.split_once('-')?;
        let rights = field()?.as_bytes();
        let offset = field()?;
        let (major, minor) = field()?.split_once(':')?;
        let inode = field()?.parse().ok()?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let major = u32::from_str_radix(major, 16).ok()?;
        let minor = u32::from_str_radix(minor, 16).ok()?;
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            shared: rights.get(3) == Some(&b's'),
            offset: hex(offset)?,
            device: rustix::fs::makedev(major, minor),
            inode,
            path: rest.trim_start_matches(' ').to_owned(),
        })
    }

    /// The offset in the file of an address.
    pub(crate) fn offset_of(&self, address: u64) -> u64 {
        self.offset.wrapping_add(address.wrapping_sub(self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c0000000-55d0c0001000 r-xp 00000000 fe:01 77                         /bin/a program
55d0c0001000-55d0c0002000 rw-p 00001000 fe:01 77                         /bin/a program
55d0c0002000-55d0c0003000 rw-p 00000000 00:00 0 
7f0000000000-7f0000001000 rw-s 00002000 00:01 9                          /memfd:x (deleted)
garbage
7f00 rw";

    #[test]
    fn an_address_leads_to_its_file_and_statics_that_are_zero_to_their_module() {
        let maps = Maps::parse(TEXT);
        let shared = maps.at(0x7f00_0000_0010).unwrap();
        assert!(shared.shared);
        assert_eq!(shared.offset_of(0x7f00_0000_0010), 0x2010);
        assert_eq!(shared.path, "/memfd:x (deleted)");
        assert!(maps.at(0x7f00_0000_1000).is_none());
        let module = maps.module(0x55d0_c000_2010).unwrap();
        assert_eq!(module.path, "/bin/a program");
        assert_eq!(maps.first_of(module).unwrap().start, 0x55d0_c000_0000);
    }

    #[test]
    fn a_lock_lies_in_one_file_or_module() {
        let maps = Maps::parse(
            "\
10000-11000 rw-p 00000000 00:00 0
11000-12000 rw-p 00000000 fe:01 7 /a
12000-13000 r--p 00001000 fe:01 7 /a
13000-14000 rw-p 00000000 00:00 0
14000-15000 rw-p 00000000 00:00 0
16000-17000 rw-p 00000000 00:00 0
17000-18000 rw-p 00000000 fe:01 8 /b",
        );
        let piece = |address| maps.piece(address);
        assert_eq!(piece(0x10ff0), Some(0x10000..0x11000));
        for address in [0x11000, 0x12fff, 0x13000, 0x14800] {
            assert_eq!(piece(address), Some(0x11000..0x15000));
        }
        assert_eq!(piece(0x15000), None);
        assert_eq!(piece(0x16000), Some(0x16000..0x17000));
        assert_eq!(piece(0x17000), Some(0x17000..0x18000));
    }

    #[test]
    fn lines_that_are_not_maps_lines_are_ignored() {
        assert_eq!(Maps::parse(TEXT).maps.len(), 4);
        assert!(Maps::parse("-  \n0-0 \u{1f600} x y z").maps.is_empty());
    }
}
