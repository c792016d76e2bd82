//! Sequences of instructions that cannot be stepped: on aarch64, from a load-exclusive to its store-exclusive.
//!
//! Each stop clears the processor's exclusive monitor, so the store never succeeds while a tracer steps through the
//! sequence, and its loop never ends. The tracer runs the sequence as one instruction, to a breakpoint at each place
//! where the task can leave it. Nothing is lost by that: only the last instruction of a sequence writes memory, so a
//! kill in it has the effect of a kill before it.

/// More instructions than a sequence has: the architecture recommends less, and each sequence must fit in 128 bytes.
const LONGEST: u64 = 32;

/// Where a task continues that executes the sequence at this address; empty if that is a single instruction.
/// `read` returns the instruction at an address.
pub(crate) fn exits(start: u64, read: impl Fn(u64) -> u32) -> Vec<u64> {
    if !is_exclusive(read(start), true) {
        return Vec::new();
    }
    let mut targets = Vec::new();
    for at in (start..).step_by(4).skip(1).take(LONGEST as usize) {
        let word = read(at);
        if is_exclusive(word, false) {
            let end = at + 4;
            targets.retain(|target| !(start..end).contains(target));
            targets.push(end);
            targets.sort_unstable();
            targets.dedup();
            return targets;
        }
        targets.extend(branch(word).map(|distance| at.wrapping_add_signed(distance)));
    }
    // A load without a store, to wait for an event: it can be stepped.
    Vec::new()
}

/// Whether this is a load-exclusive or, if not `load`, a store-exclusive, of one register or of two.
fn is_exclusive(word: u32, load: bool) -> bool {
    // The group of exclusive instructions, bit 23: none of its acquiring, releasing or comparing ones, bit 22: a load.
    let is_it = word & 0x3fc0_0000 == 0x0800_0000 | u32::from(load) << 22;
    // With bit 21 it is of two registers; without bit 31 it then compares and swaps two.
    is_it && word >> 21 & 1 <= word >> 31
}

/// How far a branch goes, in bytes, if this is a direct branch.
fn branch(word: u32) -> Option<i64> {
    let field = |low: u32, bits: u32| {
        let shifted = (word << (32 - low - bits)).cast_signed();
        i64::from(shifted >> (32 - bits)) * 4
    };
    match word {
        // b.cond
        _ if word & 0xff00_0000 == 0x5400_0000 => Some(field(5, 19)),
        // cbz, cbnz
        _ if word & 0x7e00_0000 == 0x3400_0000 => Some(field(5, 19)),
        // tbz, tbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => Some(field(5, 14)),
        // b
        _ if word & 0xfc00_0000 == 0x1400_0000 => Some(field(0, 26)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::exits;

    const START: u64 = 0x1000;

    fn exits_of(code: &[u32]) -> Vec<u64> {
        // What follows returns.
        let read = |at: u64| {
            let index = usize::try_from((at - START) / 4).unwrap();
            code.get(index).copied().unwrap_or(0xd65f_03c0)
        };
        let exits = exits(START, read);
        exits.into_iter().map(|exit| exit - START).collect()
    }

    #[test]
    fn a_compare_and_swap_of_one_word_is_left_behind_its_store_and_by_its_branch() {
        // ldaxr w0, [x2]; cmp w0, w8; b.ne +12; stlxr w17, w1, [x2]; cbnz w17, -16
        let code = [
            0x885f_fc40,
            0x6b08_001f,
            0x5400_0061,
            0x8811_fc41,
            0x35ff_ff91,
        ];
        assert_eq!(exits_of(&code), [16, 20]);
    }

    #[test]
    fn a_compare_and_swap_of_two_words_is_left_behind_its_store_and_by_its_branch() {
        // ldaxp; cmp; ccmp; b.ne +16; stlxp w11, x3, x4, [x0]; cbnz w11, -20; b +8; clrex
        let code = [
            0xc87f_a809,
            0xeb01_013f,
            0xfa42_0140,
            0x5400_0081,
            0xc82b_9003,
            0x35ff_ff6b,
            0x1400_0002,
            0xd503_3f5f,
        ];
        assert_eq!(exits_of(&code), [20, 28]);
    }

    #[test]
    fn an_update_without_a_comparison_is_left_behind_its_store_alone() {
        // ldxr x0, [x1]; orr x2, x0, x3; stxr w4, x2, [x1]; cbnz w4, -12
        assert_eq!(
            exits_of(&[0xc85f_7c20, 0xaa03_0002, 0xc804_7c22, 0x35ff_ffa4]),
            [12]
        );
        // The same of a byte: ldaxrb w0, [x1]; stlxrb w2, w0, [x1]
        assert_eq!(exits_of(&[0x085f_fc20, 0x0802_fc20]), [8]);
    }

    #[test]
    fn branches_of_each_kind_lead_out_and_those_inside_do_not() {
        // ldxp w0, w1, [x2]; tbnz w0, #3, +8; tbz x0, #40, -12 (to before it); b -4; stxp w3, w0, w1, [x2]
        let code = [
            0x887f_0440,
            0x3718_0040,
            0xb647_ffa0,
            0x17ff_ffff,
            0x8823_0440,
        ];
        let read = |at: u64| code[usize::try_from((at - START) / 4).unwrap()];
        assert_eq!(exits(START, read), [START - 4, START + 20]);
    }

    #[test]
    fn what_is_no_sequence_is_stepped() {
        let others = [
            ("ldar x0, [x1]", 0xc8df_fc20),
            ("stlr x0, [x1]", 0xc89f_fc20),
            ("casal x0, x1, [x2]", 0xc8e0_fc41),
            ("caspal x0, x1, x2, x3, [x4]", 0x4860_fc82),
            ("casp w0, w1, w2, w3, [x4]", 0x0820_7c82),
            ("ldaddal x0, x1, [x2]", 0xf8e0_0041),
            ("stlxr w17, w1, [x2]", 0x8811_fc41),
            ("ldaxr w0, [x2] without a store", 0x885f_fc40),
        ];
        for (name, word) in others {
            assert!(exits_of(&[word]).is_empty(), "{name}");
        }
    }
}
