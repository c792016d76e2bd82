//! After a span changes hands, its former owner does not use its old cache entry.

use super::*;

fn span_of(region: &Region, block: NonNull<u8>) -> usize {
    (block.addr().get() - region.data.0.addr().get()) / SPAN_BYTES
}

/// The span now belongs to `second`: `first` frees a block of it, and `second` frees a block of another span of `first`.
fn free_each_others(region: &Region, first: Owner, second: Owner, size: usize, span: usize) {
    let blocks = [0, 1].map(|_| region.alloc(second, size));
    assert_eq!(blocks.map(|block| span_of(region, block)), [span; 2]);
    region.heap.check().unwrap();
    region.free(first, blocks[0]);
    region.heap.check().unwrap();
    // `first` must not get a block of `second`'s span.
    let other = region.alloc(first, size);
    assert_ne!(span_of(region, other), span);
    region.free(second, other);
    region.free(second, blocks[1]);
    region.heap.check().unwrap();
}

#[test]
fn a_span_that_was_released_and_claimed_by_another_task_is_that_tasks() {
    for (size, next_size) in [(1024, 1024), (1024, 16), (16, 1024)] {
        let region = Region::new(4);
        let (first, second) = (owner(1), owner(2));
        let block = region.alloc(first, size);
        let span = span_of(&region, block);
        region.free(first, block);
        // `first` keeps the empty span as its current one; `trim` releases it.
        region.heap.trim(&region.task(first));
        region.heap.check().unwrap();
        free_each_others(&region, first, second, next_size, span);
        region.assert_empty(&[first, second]);
    }
}

#[test]
fn a_span_that_was_inherited_is_the_heirs() {
    let region = Region::new(4);
    let (dead, heir) = (owner(1), owner(2));
    let blocks = [0, 1].map(|_| region.alloc(dead, 1024));
    let span = span_of(&region, blocks[0]);
    region.free(dead, blocks[0]);
    region.recover(dead, OnDeath::Adopt(heir));
    region.heap.check().unwrap();
    // The next task in the dead one's slot.
    let next = Owner::new(dead.slot(), NonZero::new(dead.generation() + 1).unwrap());
    free_each_others(&region, next, heir, 1024, span);
    region.free(next, blocks[1]);
    region.assert_empty(&[next, heir]);
}

#[test]
fn spans_that_get_memory_are_in_no_cache() {
    let region = Region::new(4);
    region.alloc(owner(1), 1024);
    for span in 1..4 {
        let cached = Desc::cached_as(owner(1), 3);
        region.heap.desc(span).cached.store(cached, Relaxed);
    }
    region.alloc(owner(1), 3 * SPAN_BYTES);
    assert!((1..4).all(|span| region.heap.desc(span).cached.load(Relaxed) == 0));
}

#[test]
fn a_span_without_small_blocks_in_a_cache_is_found() {
    let region = Region::new(4);
    region.alloc(owner(1), 3 * SPAN_BYTES);
    for span in 0..3 {
        let desc = region.heap.desc(span);
        desc.cached.store(Desc::cached_as(owner(1), 3), Relaxed);
        assert_eq!(region.heap.check().unwrap_err().span, span);
        desc.cached.store(0, Relaxed);
        region.heap.check().unwrap();
    }
}
