//! Which free spans a task takes.

use super::*;

/// So tasks do not compete for the span at the common hint.
#[test]
fn each_task_takes_first_what_it_freed_last() {
    for spans in [1, 2] {
        let region = Region::new(16);
        let tasks = [owner(1), owner(2)];
        let blocks = tasks.map(|owner| region.alloc(owner, spans * SPAN_BYTES));
        for index in [0, 1] {
            region.free(tasks[index], blocks[index]);
        }
        for index in [1, 0] {
            let again = region.alloc(tasks[index], spans * SPAN_BYTES);
            assert_eq!(again, blocks[index], "{spans} spans");
            region.free(tasks[index], again);
        }
        region.assert_empty(&tasks);
    }
}

#[test]
fn a_task_that_frees_a_run_does_not_cut_it_up_for_a_single_span() {
    let region = Region::new(8);
    let task = owner(1);
    let [first, second, run] = [1, 1, 6].map(|spans| region.alloc(task, spans * SPAN_BYTES));
    region.free(task, first);
    region.free(task, run);
    assert_eq!(region.alloc(task, SPAN_BYTES), first);
    assert_eq!(region.alloc(task, 6 * SPAN_BYTES), run);
    for block in [first, second, run] {
        region.free(task, block);
    }
    region.assert_empty(&[task]);
}

/// A task whose blocks another task frees does not go through all memory.
#[test]
fn spans_that_another_task_frees_are_used_again() {
    let region = Region::new(64);
    let all = region.alloc(owner(1), 64 * SPAN_BYTES);
    region.free(owner(1), all);
    for _ in 0..100 {
        let block = region.alloc(owner(1), SPAN_BYTES);
        let span = (block.addr().get() - region.data.0.addr().get()) / SPAN_BYTES;
        assert!(span < 16, "span {span}");
        region.free(owner(2), block);
    }
}
