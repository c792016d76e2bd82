//! The machine code of this executable, as its symbol table and a disassembler show it.
#![allow(unsafe_code)]

use std::fs;
use std::io;

use object::{Object, ObjectSection, ObjectSymbol};

/// More instructions than any lock's fast path has.
const ENDLESS: u32 = 10_000;

/// An anchor: its address is known, from which the addresses of all other symbols follow.
// SAFETY: nothing else in a program is called that.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn latchwork_bench_anchor() {}
const ANCHOR: &str = "latchwork_bench_anchor";

/// The file that this process runs, and the one with its symbols if they are elsewhere.
pub(crate) struct Executable {
    code: Vec<u8>,
    symbols: Option<Vec<u8>>,
}

/// The instructions that a function executes in the common case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FastPath {
    pub(crate) bytes: u32,
    pub(crate) instructions: u32,
}

impl Executable {
    pub(crate) fn this() -> io::Result<Self> {
        let code = fs::read("/proc/self/exe")?;
        let symbols = symbols_beside(&code);
        Ok(Self { code, symbols })
    }

    /// The fast path of the function at this address: from its first instruction to the first return, with every
    /// conditional branch not taken, and unconditional branches inside the function followed. Compilers put code that
    /// they believe to be rare behind taken branches; so the slow path and the call of it are not counted, but the
    /// branch to it is.
    /// # Errors
    /// An explanation. There is no fast path if it calls or jumps to another function, since that function's
    /// instructions cannot be counted here.
    pub(crate) fn fast_path(&self, function: usize) -> Result<FastPath, String> {
        let parsed = |bytes| object::File::parse(bytes).map_err(|error| error.to_string());
        let file = parsed(&*self.code)?;
        let named = parsed(self.symbols.as_ref().unwrap_or(&self.code))?;
        let anchor = named
            .symbols()
            .find(|symbol| symbol.name() == Ok(ANCHOR))
            .ok_or("the executable has no symbols; it may have been stripped")?;
        // The address at which the file was loaded.
        let base = (latchwork_bench_anchor as *const () as u64).wrapping_sub(anchor.address());
        let address = (function as u64).wrapping_sub(base);
        let symbol = named
            .symbols()
            .find(|symbol| symbol.address() == address && symbol.size() > 0)
            .ok_or("the function has no symbol")?;
        let code = file
            .sections()
            .find_map(|section| section.data_range(address, symbol.size()).ok().flatten())
            .ok_or("the function has no code")?;
        walk(code, address)
    }
}

/// The symbols that `install.sh` puts beside a stripped executable.
fn symbols_beside(executable: &[u8]) -> Option<Vec<u8>> {
    let (name, _) = object::File::parse(executable)
        .ok()?
        .gnu_debuglink()
        .ok()??;
    let path = std::env::current_exe().ok()?;
    let path = path
        .parent()?
        .join(".debug")
        .join(str::from_utf8(name).ok()?);
    fs::read(path).ok()
}

/// The effect of an instruction on the program counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    /// It continues, or branches only in a rare case.
    On,
    Jump(u64),
    Return,
    /// To another function, by a call or a jump.
    Away,
}

fn walk(code: &[u8], start: u64) -> Result<FastPath, String> {
    let mut at = start;
    let mut path = FastPath {
        bytes: 0,
        instructions: 0,
    };
    while path.instructions < ENDLESS {
        let rest = at
            .checked_sub(start)
            .and_then(|offset| code.get(usize::try_from(offset).ok()?..))
            .filter(|rest| !rest.is_empty())
            .ok_or("it leaves for another function")?;
        let (length, flow) = decode(rest, at);
        path.bytes += length;
        path.instructions += 1;
        match flow {
            Flow::On => at += u64::from(length),
            Flow::Jump(to) => at = to,
            Flow::Return => return Ok(path),
            Flow::Away => return Err("it calls another function".into()),
        }
    }
    Err("it does not end".into())
}

/// The length of the first instruction of `code`, and its effect on the program counter.
#[cfg(target_arch = "x86_64")]
fn decode(code: &[u8], at: u64) -> (u32, Flow) {
    use iced_x86::{Decoder, DecoderOptions, FlowControl};

    let instruction = Decoder::with_ip(64, code, at, DecoderOptions::NONE).decode();
    let flow = match instruction.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            Flow::On
        }
        FlowControl::UnconditionalBranch => Flow::Jump(instruction.near_branch_target()),
        FlowControl::Return => Flow::Return,
        // A system call returns, and counts as one instruction.
        FlowControl::Call if instruction.code() == iced_x86::Code::Syscall => Flow::On,
        FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::IndirectBranch
        | FlowControl::Interrupt
        | FlowControl::Exception => Flow::Away,
    };
    (instruction.len() as u32, flow)
}

/// The same for aarch64, where every instruction is one word.
#[cfg(target_arch = "aarch64")]
fn decode(code: &[u8], at: u64) -> (u32, Flow) {
    let word = code
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word));
    let register_branch = word & 0xffff_fc1f;
    let flow = match word >> 26 {
        0b00_0101 => {
            // The lower 26 bits, with their sign, count words.
            let words = i64::from((word << 6).cast_signed() >> 6);
            Flow::Jump(at.wrapping_add_signed(words * 4))
        }
        0b10_0101 => Flow::Away,
        _ if register_branch == 0xd65f_0000 => Flow::Return,
        _ if matches!(register_branch, 0xd61f_0000 | 0xd63f_0000) => Flow::Away,
        _ => Flow::On,
    };
    (4, flow)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_fast_path_is_three_instructions() {
        // lock decl (%rax); js +5; ret
        let code = [0xf0, 0xff, 0x08, 0x78, 0x05, 0xc3];
        let path = FastPath {
            bytes: 6,
            instructions: 3,
        };
        assert_eq!(walk(&code, 0x1000), Ok(path));
    }

    #[test]
    fn jumps_inside_are_followed_and_what_they_skip_is_not_counted() {
        // jmp +1; int3; nop; ret
        let code = [0xeb, 0x01, 0xcc, 0x90, 0xc3];
        let path = FastPath {
            bytes: 4,
            instructions: 3,
        };
        assert_eq!(walk(&code, 0x1000), Ok(path));
    }

    #[test]
    fn calls_jumps_away_and_loops_have_no_fast_path() {
        for code in [
            // call; ret
            &[0xe8, 0, 0, 0, 0, 0xc3][..],
            // jmp to far behind
            &[0xe9, 0, 0x10, 0, 0],
            // jmp *(%rax)
            &[0xff, 0x20],
            // jmp to itself
            &[0xeb, 0xfe],
            // falls out of the function
            &[0x90],
        ] {
            walk(code, 0x1000).unwrap_err();
        }
    }

    #[test]
    fn a_function_of_this_executable_is_found() {
        let executable = Executable::this().unwrap();
        let anchor = latchwork_bench_anchor as *const () as usize;
        let path = executable.fast_path(anchor).unwrap();
        assert!(path.instructions >= 1, "{path:?}");
    }
}
