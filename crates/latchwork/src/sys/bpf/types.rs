//! What the kernel tells of its own types (BTF): where a structure has a member.
//!
//! Read without trust in its form: what does not fit is an error.

use rustix::io::{Errno, Result};

const PATH: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
const KIND_STRUCTURE: u32 = 4;

/// The offset of the ID of a task in the kernel's description of it, in bytes. `ENOENT`: this kernel tells
/// nothing of its types.
pub(crate) fn offset_of_task_id() -> Result<u32> {
    let file =
        std::fs::read(PATH).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    // `pid` is what user space calls a thread's ID; `tgid` is its process's.
    offset_of(&file, b"task_struct", b"pid").ok_or(Errno::PROTO)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

fn part(bytes: &[u8], start: u32, length: u32) -> Option<&[u8]> {
    let start = start as usize;
    bytes.get(start..start.checked_add(length as usize)?)
}

fn offset_of(file: &[u8], structure: &[u8], member: &[u8]) -> Option<u32> {
    if file.get(..2)? != MAGIC.to_le_bytes() {
        return None;
    }
    let header = u32_at(file, 4)?;
    let within = |at| {
        Some((
            header.checked_add(u32_at(file, at)?)?,
            u32_at(file, at + 4)?,
        ))
    };
    let (types_start, types_length) = within(8)?;
    let (names_start, names_length) = within(16)?;
    let types = part(file, types_start, types_length)?;
    let names = part(file, names_start, names_length)?;
    let is = |name: u32, wanted: &[u8]| {
        let rest = names.get(name as usize..).unwrap_or_default();
        rest.starts_with(wanted) && rest.get(wanted.len()) == Some(&0)
    };
    let mut at = 0;
    while at < types.len() {
        let (name, info) = (u32_at(types, at)?, u32_at(types, at + 4)?);
        let (kind, count) = (info >> 24 & 31, (info & 0xffff) as usize);
        let details = at + 12;
        if kind == KIND_STRUCTURE && is(name, structure) {
            // With this flag, the upper byte of an offset is the width of a bit field.
            let of_bits = info >> 31 != 0;
            return (0..count).map(|index| details + 12 * index).find_map(|at| {
                let offset = u32_at(types, at + 8)?;
                let bits = if of_bits { offset & 0xff_ffff } else { offset };
                (is(u32_at(types, at)?, member) && bits % 8 == 0).then_some(bits / 8)
            });
        }
        at = details + details_bytes(kind, count)?;
    }
    None
}

/// Bytes that follow the first twelve of a type.
fn details_bytes(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointers, names, qualifiers, functions, floating-point numbers, tags of types.
        2 | 7..=12 | 16 | 18 => 0,
        // Integers, variables, tags of declarations.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Enumerations, prototypes of functions.
        6 | 13 => 8 * count,
        // Structures, unions, sections, enumerations of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An integer, then a structure with two members, of which the second begins at bit 96.
    fn sample() -> Vec<u8> {
        let names = b"\0int\0task_struct\0tgid\0pid\0";
        let types: [u32; 16] = [
            1,
            1 << 24,
            4,
            32, // int
            5,
            4 << 24 | 2,
            16, // task_struct
            17,
            1,
            64, // tgid
            22,
            1,
            96, // pid
            1,
            2 << 24,
            0, // a pointer
        ];
        let mut file = Vec::new();
        file.extend(MAGIC.to_le_bytes());
        file.extend([1, 0]);
        for word in [
            24,
            0,
            size_of_val(&types) as u32,
            size_of_val(&types) as u32,
            names.len() as u32,
        ] {
            file.extend(u32::to_le_bytes(word));
        }
        types
            .iter()
            .for_each(|word| file.extend(word.to_le_bytes()));
        file.extend(names);
        file
    }

    #[test]
    fn a_member_is_found_by_its_name() {
        let file = sample();
        assert_eq!(offset_of(&file, b"task_struct", b"pid"), Some(12));
        assert_eq!(offset_of(&file, b"task_struct", b"tgid"), Some(8));
        assert_eq!(offset_of(&file, b"task_struct", b"pi"), None);
        assert_eq!(offset_of(&file, b"task", b"pid"), None);
    }

    #[test]
    fn what_is_cut_short_or_garbled_is_no_answer_and_no_panic() {
        let file = sample();
        for length in 0..file.len() {
            let _ = offset_of(&file[..length], b"task_struct", b"pid");
        }
        for at in 0..file.len() {
            let mut garbled = file.clone();
            garbled[at] = !garbled[at];
            let _ = offset_of(&garbled, b"task_struct", b"pid");
        }
    }

    #[test]
    fn this_kernel_tells_where_the_id_is_if_it_tells_anything() {
        match offset_of_task_id() {
            Ok(offset) => assert!(offset > 0),
            Err(error) => assert_eq!(error, Errno::NOENT),
        }
    }
}
