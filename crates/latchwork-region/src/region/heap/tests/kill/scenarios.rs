//! The operations in which A is killed; the number is how many blocks A may have allocated unknown to the world.

use super::*;

pub(super) const SCENARIOS: &[(&str, usize, Scenario)] = &[
    ("allocate in a new span", 1, |_| {
        Box::new(|w| {
            w.region.alloc(owner(A), 64);
        })
    }),
    ("allocate in a new span of one word", 1, |_| {
        Box::new(|w| {
            w.region.alloc(owner(A), 2048);
        })
    }),
    ("allocate in a span that was used before", 1, |w| {
        for block in (0..4).map(|_| w.alloc(B, 64 << 10)).collect::<Vec<_>>() {
            w.region.free(owner(B), block);
        }
        Box::new(|w| {
            w.region.alloc(owner(A), 64);
        })
    }),
    ("trim", 0, |w| {
        w.free_spans(false);
        w.own(64);
        Box::new(|w| {
            w.region.heap.trim(&w.region.task(owner(A)));
        })
    }),
    ("allocate in a trimmed span", 1, |w| {
        w.free_spans(true);
        Box::new(|w| {
            w.region.alloc(owner(A), 64);
        })
    }),
    ("allocate a trimmed span", 1, |w| {
        w.free_spans(true);
        Box::new(|w| {
            w.region.alloc(owner(A), 64 << 10);
        })
    }),
    ("allocate a trimmed run", 1, |w| {
        w.free_spans(true);
        w.free_spans(false);
        w.region.heap.trim(&w.region.task(owner(C)));
        Box::new(|w| {
            w.region.alloc(owner(A), 150 << 10);
        })
    }),
    ("allocate in the current span", 1, |w| {
        w.own(64);
        Box::new(|w| {
            w.region.alloc(owner(A), 64);
        })
    }),
    ("allocate in a listed span", 1, |w| {
        let blocks: Vec<_> = (0..6).map(|_| w.own(30_000)).collect();
        w.region.free(owner(A), blocks[1]);
        w.region.free(owner(A), blocks[2]);
        w.own.borrow_mut().drain(1..3);
        Box::new(|w| {
            w.region.alloc(owner(A), 30_000);
        })
    }),
    ("allocate in an orphan span", 1, |w| {
        w.orphaned(1024, 0);
        Box::new(|w| {
            w.region.alloc(owner(A), 1024);
        })
    }),
    ("allocate blocks that other tasks have freed", 1, |w| {
        let blocks: Vec<_> = (0..6).map(|_| w.alloc(A, 30_000)).collect();
        w.own.borrow_mut().extend([blocks[1], blocks[5]]);
        for i in [0, 2, 3, 4] {
            w.region.free(owner(B), blocks[i]);
        }
        Box::new(|w| {
            w.region.alloc(owner(A), 30_000);
        })
    }),
    ("allocate and grow", 1, |w| {
        for _ in 0..3 {
            w.others(B, 64 << 10);
        }
        Box::new(|w| {
            w.region.alloc(owner(A), 1024);
        })
    }),
    ("allocate when memory has run out", 1, |w| {
        w.own(64);
        for bytes in [1024, 4096] {
            let block = w.alloc(A, bytes);
            w.region.free(owner(A), block);
        }
        for _ in 0..36 {
            w.loose(B, 64 << 10);
        }
        Box::new(|w| {
            w.region.alloc(owner(A), 30_000);
        })
    }),
    ("allocate one span", 1, |_| {
        Box::new(|w| {
            w.region.alloc(owner(A), 64 << 10);
        })
    }),
    ("allocate a run", 1, |_| {
        Box::new(|w| {
            w.region.alloc(owner(A), 150 << 10);
        })
    }),
    ("free the only block", 0, |w| {
        let block = w.loose(A, 64);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free and list a full span", 0, |w| {
        let block = w.loose(A, 30_000);
        w.own(30_000);
        w.own(30_000);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free the last block of a listed span", 0, |w| {
        let (first, last) = (w.alloc(A, 30_000), w.loose(A, 30_000));
        w.own(30_000);
        w.region.free(owner(A), first);
        Box::new(move |w| w.region.free(owner(A), last))
    }),
    ("free the middle of a list", 0, |w| {
        let blocks: Vec<_> = (0..7).map(|_| w.alloc(A, 30_000)).collect();
        for i in [0, 2, 4] {
            w.region.free(owner(A), blocks[i]);
        }
        w.own.borrow_mut().extend([blocks[1], blocks[5], blocks[6]]);
        w.loose.borrow_mut().push(blocks[3]);
        let last = blocks[3];
        w.own.borrow_mut().retain(|&b| b != last);
        Box::new(move |w| w.region.free(owner(A), last))
    }),
    ("free an own shared block", 0, |w| {
        let block = w.loose(A, 64);
        // SAFETY: the block is not freed meanwhile.
        unsafe { w.region.heap.keep(block) };
        w.own(64);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free another task's block", 0, |w| {
        let block = w.loose(B, 64);
        w.others(B, 64);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free another task's only block", 0, |w| {
        let block = w.loose(B, 1024);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free in an orphan span", 0, |w| {
        let block = w.orphaned(1024, 0);
        w.link(0).store(0, Relaxed);
        w.loose.borrow_mut().push(block);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free an own run", 0, |w| {
        let block = w.loose(A, 150 << 10);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free another task's run", 0, |w| {
        let block = w.loose(B, 150 << 10);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("free one span", 0, |w| {
        let block = w.loose(B, 64 << 10);
        Box::new(move |w| w.region.free(owner(A), block))
    }),
    ("keep", 0, |w| {
        let blocks = [w.loose(A, 64), w.loose(A, 64 << 10), w.loose(A, 150 << 10)];
        Box::new(move |w| {
            for block in blocks {
                // SAFETY: the blocks are not freed meanwhile.
                unsafe { w.region.heap.keep(block) };
            }
        })
    }),
    ("publish a small block", 0, |w| {
        let block = w.loose(A, 64);
        Box::new(move |w| w.publish(A, block, 0))
    }),
    ("publish a large block", 0, |w| {
        let block = w.loose(A, 150 << 10);
        Box::new(move |w| w.publish(A, block, 0))
    }),
    ("publish a kept block", 0, |w| {
        let block = w.loose(A, 64);
        // SAFETY: the block is not freed meanwhile.
        unsafe { w.region.heap.keep(block) };
        Box::new(move |w| w.publish(A, block, 0))
    }),
    ("publish another task's block", 0, |w| {
        let block = w.loose(B, 64);
        Box::new(move |w| w.publish(A, block, 0))
    }),
    ("retire an own block", 0, |w| {
        w.own(64);
        let block = w.linked(A, 64, 0);
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("retire the only block of a span", 0, |w| {
        let block = w.linked(A, 30_000, 0);
        w.linked(A, 30_000, 2);
        w.own(30_000);
        let other = w.linked_blocks()[1];
        w.retire(A, other, 2);
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("retire another task's block", 0, |w| {
        w.others(B, 64);
        let block = w.linked(B, 64, 0);
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("retire another task's only block", 0, |w| {
        let block = w.linked(B, 1024, 0);
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("retire in an orphan span", 0, |w| {
        let block = w.orphaned(1024, 0);
        w.region.free(owner(C), w.alloc(C, 16));
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("retire an own run", 0, |w| {
        let block = w.linked(A, 150 << 10, 0);
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("retire another task's span", 0, |w| {
        let block = w.linked(B, 64 << 10, 0);
        Box::new(move |w| w.retire(A, block, 0))
    }),
    ("take an own block", 0, |w| {
        w.own(64);
        let block = w.linked(A, 64, 0);
        Box::new(move |w| w.take(A, block, 0))
    }),
    ("take an own run", 0, |w| {
        let block = w.linked(A, 150 << 10, 0);
        Box::new(move |w| w.take(A, block, 0))
    }),
    ("take another task's span", 0, |w| {
        let block = w.linked(B, 64 << 10, 0);
        Box::new(move |w| w.take(A, block, 0))
    }),
    ("take another task's run", 0, |w| {
        let block = w.linked(B, 150 << 10, 0);
        Box::new(move |w| w.take(A, block, 0))
    }),
    ("take an orphaned run", 0, |w| {
        let block = w.orphaned(150 << 10, 0);
        Box::new(move |w| w.take(A, block, 0))
    }),
    ("replace an own block", 0, |w| {
        let (old, new) = (w.linked(A, 64, 0), w.loose(A, 1024));
        Box::new(move |w| w.replace(A, old, new, 0))
    }),
    ("replace another task's block", 0, |w| {
        let (old, new) = (w.linked(B, 1024, 0), w.loose(A, 1024));
        Box::new(move |w| w.replace(A, old, new, 0))
    }),
    ("replace in an orphan span by a run", 0, |w| {
        let (old, new) = (w.orphaned(64, 0), w.loose(A, 150 << 10));
        Box::new(move |w| w.replace(A, old, new, 0))
    }),
    ("replace a run", 0, |w| {
        let (old, new) = (w.linked(B, 150 << 10, 0), w.loose(A, 200 << 10));
        Box::new(move |w| w.replace(A, old, new, 0))
    }),
];
