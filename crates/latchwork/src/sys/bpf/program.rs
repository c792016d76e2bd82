//! The two programs that keep a map of who runs where, instruction by instruction.
//!
//! The map has a value for each processor: in its lower half the ID of the task there (0: none), in its
//! upper half how often it was set. Only programs on that processor set it, by one store, with interrupts
//! off.

use rustix::fd::{AsRawFd, BorrowedFd};

/// One instruction, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    operation: u8,
    /// Destination in the lower half, source in the upper.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// The result of a call.
const R0: u8 = 0;
/// Arguments of calls, which spoil them.
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
/// The end of the stack.
const FRAME: u8 = 10;

/// Where on the stack the task's ID is kept, and the processor's number.
const TASK: i16 = -8;
const CPU: i16 = -16;

/// `BPF_FUNC_map_lookup_elem`, and so on.
const LOOK_UP: i32 = 1;
const CPU_NUMBER: i32 = 8;
const CURRENT_TASK: i32 = 14;
const READ_KERNEL: i32 = 113;

const fn instruction(
    operation: u8,
    destination: u8,
    source: u8,
    offset: i16,
    immediate: i32,
) -> Instruction {
    Instruction {
        operation,
        registers: destination | source << 4,
        offset,
        immediate,
    }
}

const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}
const fn set(to: u8, value: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, value)
}
const fn add(to: u8, value: i32) -> Instruction {
    instruction(0x07, to, 0, 0, value)
}
const fn shift_right(to: u8, bits: i32) -> Instruction {
    instruction(0x77, to, 0, 0, bits)
}
const fn shift_left(to: u8, bits: i32) -> Instruction {
    instruction(0x67, to, 0, 0, bits)
}
const fn or(to: u8, with: u8) -> Instruction {
    instruction(0x4f, to, with, 0, 0)
}
const fn load_32(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x61, to, from, offset, 0)
}
const fn load_64(to: u8, from: u8, offset: i16) -> Instruction {
    instruction(0x79, to, from, offset, 0)
}
const fn store_32(to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0x63, to, from, offset, 0)
}
const fn store_64(to: u8, offset: i16, from: u8) -> Instruction {
    instruction(0x7b, to, from, offset, 0)
}
const fn call(function: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, function)
}
const fn skip_if_zero(register: u8, skipped: i16) -> Instruction {
    instruction(0x15, register, 0, skipped, 0)
}
const EXIT: Instruction = instruction(0x95, 0, 0, 0, 0);

/// The address of a map, in two instructions' space.
fn map_address(to: u8, map: BorrowedFd<'_>) -> [Instruction; 2] {
    const OF_DESCRIPTOR: u8 = 1;
    [
        instruction(0x18, to, OF_DESCRIPTOR, 0, map.as_raw_fd()),
        instruction(0, 0, 0, 0, 0),
    ]
}

/// Stores the ID on the stack as that of the task on this processor.
fn note(map: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut all = vec![
        call(CPU_NUMBER),
        store_32(FRAME, CPU, R0),
        copy(R2, FRAME),
        add(R2, CPU as i32),
    ];
    all.extend(map_address(R1, map));
    all.extend([
        call(LOOK_UP),
        // There is a value for each processor; the kernel wants to see it checked.
        skip_if_zero(R0, 7),
        load_64(R1, R0, 0),
        shift_right(R1, 32),
        add(R1, 1),
        shift_left(R1, 32),
        load_32(R2, FRAME, TASK),
        or(R1, R2),
        store_64(R0, 0, R1),
        set(R0, 0),
        EXIT,
    ]);
    all
}

/// For the tracepoint of a switch: notes the task that comes. Its ID stands at `id_offset` of the kernel's
/// description of it.
pub(crate) fn at_switch(map: BorrowedFd<'_>, id_offset: u32) -> Vec<Instruction> {
    /// Its arguments: whether it is a preemption, who goes, who comes.
    const COMES: i16 = 2 * 8;
    let mut all = vec![
        load_64(R3, R1, COMES),
        add(R3, id_offset.cast_signed()),
        set(R2, 4),
        copy(R1, FRAME),
        add(R1, TASK as i32),
        call(READ_KERNEL),
    ];
    all.extend(note(map));
    all
}

/// For an interrupt: notes the task that it interrupts.
pub(crate) fn in_interrupt(map: BorrowedFd<'_>) -> Vec<Instruction> {
    let mut all = vec![call(CURRENT_TASK), store_32(FRAME, TASK, R0)];
    all.extend(note(map));
    all
}
