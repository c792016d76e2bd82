//! Blocks of the heap, and what was written into each.

use arbitrary::Arbitrary;
use latchwork::region::Region;
use std::alloc::Layout;
use std::ptr::NonNull;

#[derive(Arbitrary, Debug)]
pub enum Step {
    Allocate { bytes: u32, align: u8 },
    Free(u8),
    Keep(u8),
    Trim,
    Sweep,
}

struct Block {
    start: NonNull<u8>,
    bytes: usize,
    mark: u8,
    is_kept: bool,
}

pub fn run(region: &Region, steps: Vec<Step>) {
    let mut blocks: Vec<Block> = Vec::new();
    let mut mark = 0u8;
    for step in steps.into_iter().take(128) {
        match step {
            Step::Allocate { bytes, align } => {
                // Mostly small ones; some of several spans, some that are too large.
                let bytes = bytes as usize % if bytes % 5 == 0 { 1 << 21 } else { 4096 };
                let layout = Layout::from_size_align(bytes, 1 << (align % 14)).unwrap();
                let Ok(start) = region.allocate(layout) else {
                    continue;
                };
                assert!(start.as_ptr().addr().is_multiple_of(layout.align()));
                mark = mark.wrapping_add(1);
                // SAFETY: a block of this size.
                unsafe { start.write_bytes(mark, bytes) };
                blocks.push(Block {
                    start,
                    bytes,
                    mark,
                    is_kept: false,
                });
            }
            Step::Free(which) => {
                if let Some(index) = usize::from(which).checked_rem(blocks.len()) {
                    free(region, blocks.swap_remove(index));
                }
            }
            Step::Keep(which) => {
                if let Some(index) = usize::from(which).checked_rem(blocks.len()) {
                    // SAFETY: nobody frees it meanwhile.
                    unsafe { region.keep(blocks[index].start) };
                    blocks[index].is_kept = true;
                }
            }
            Step::Trim => drop(region.trim()),
            Step::Sweep => assert!(region.sweep().unwrap().dead.is_empty()),
        }
        region.check_heap().unwrap();
        let stats = region.heap_stats();
        let kept = blocks.iter().filter(|block| block.is_kept).count();
        assert_eq!(stats.shared_blocks, kept);
        assert_eq!(stats.private_blocks, blocks.len() - kept);
    }
    blocks.drain(..).for_each(|block| free(region, block));
    assert_eq!(region.heap_stats().allocated_bytes, 0);
}

fn free(region: &Region, block: Block) {
    // SAFETY: the block is this task's, and has these bytes.
    unsafe {
        let bytes = std::slice::from_raw_parts(block.start.as_ptr(), block.bytes);
        // Without a comparison of each byte, which the fuzzer would note.
        let others = bytes
            .iter()
            .fold(0, |bits, byte| bits | (byte ^ block.mark));
        assert_eq!(others, 0, "no other block lies there");
        region.deallocate(block.start).unwrap();
    }
}
