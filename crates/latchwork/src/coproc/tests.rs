//! Unit tests of internals: the chain of records, and a pool whose requests cannot be sent.
#![allow(unsafe_code)]

use super::pool::Pool;
use super::record::{self, Chain, Ref, Request};
use super::zygote::{BATCH, Zygote, end_all};
use crate::region::{Region, RegionOptions};
use crate::sys::process;
use crate::sys::{sockets, thread::process_id};
use core::sync::atomic::Ordering::Relaxed;
use core::time::Duration;
use latchwork_testkit::{Child, Exit, Trial, step};

fn request() -> Request {
    Request::without_call(process_id(), true)
}

/// A region with a control record.
fn runtime() -> (Region, Ref) {
    let region = RegionOptions::new();
    let region = region.max_bytes(8 << 20).create_anonymous().unwrap();
    let control = Ref::new(&region, request()).unwrap();
    (region, control)
}

/// The records that a zygote would find.
fn followed(control: &Ref) -> Vec<usize> {
    let follow = |address: usize| {
        // SAFETY: the links are those of a chain that no task changes meanwhile.
        unsafe { Ref::at(&control.region, address) }
    };
    core::iter::successors(follow(control.next()), |record| follow(record.next()))
        .map(|record| record.address())
        .collect()
}

/// It may end between two looks of a task that waits for its start.
#[test]
fn a_coproc_that_ends_after_its_start_is_left_to_the_join() {
    let _trial = Trial::begin("a_coproc_that_ends_after_its_start");
    let (region, control) = runtime();
    let record = Ref::new(&region, request()).unwrap();
    let mut child = Child::fork(|| ());
    record.pid.store(child.pid().cast_unsigned(), Relaxed);
    while !process::has_ended(child.pid().cast_unsigned()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    record.announce(record::DONE);
    let left = !record.ended_unstarted();
    assert!(left, "it was reaped");
    assert_eq!(record.pid.load(Relaxed), child.pid().cast_unsigned());
    assert_eq!(child.wait(), Exit::Code(0));
    let child = Child::fork(|| ());
    record.pid.store(child.pid().cast_unsigned(), Relaxed);
    record.announce(record::REQUESTED);
    while !record.ended_unstarted() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(record.pid.load(Relaxed), 0);
    // It has been reaped.
    core::mem::forget(child);
    // SAFETY: only this test knows the records.
    unsafe {
        record.free();
        control.free();
    }
}

#[test]
fn a_chain_leads_to_the_records_that_are_not_freed() {
    let (region, control) = runtime();
    let before = region.heap_stats().shared_blocks;
    let chain = Chain::new(&control);
    let records: Vec<Ref> = (0..4).map(|_| chain.add(request()).unwrap()).collect();
    let addresses: Vec<usize> = records.iter().map(Ref::address).collect();
    let led_to = |indices: &[usize]| -> Vec<usize> {
        indices.iter().map(|index| addresses[*index]).collect()
    };
    assert_eq!(followed(&control), led_to(&[3, 2, 1, 0]));
    // In the middle, at the beginning, at the end.
    for (freed, left) in [(2, &[3, 1, 0][..]), (3, &[1, 0]), (0, &[1])] {
        assert!(records[freed].is_in_chain());
        // SAFETY: only this test knows the records.
        unsafe { records[freed].free() };
        assert_eq!(followed(&control), led_to(left));
    }
    chain.dissolve();
    assert_eq!(followed(&control), [0; 0]);
    assert!(!records[1].is_in_chain());
    // SAFETY: only this test knows the records; the control record is not used after this.
    unsafe {
        records[1].free();
        assert_eq!(region.heap_stats().shared_blocks, before);
        control.free();
    }
}

#[test]
fn requests_that_were_sent_stay_if_more_cannot_be_sent() {
    const SIZE: usize = 10 * BATCH;
    let (region, control) = runtime();
    let before = region.heap_stats().shared_blocks;
    let chain = Chain::new(&control);
    let (ours, _theirs) = sockets::pair().unwrap();
    // Room for a few messages, and no waiting for more.
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).unwrap();
    rustix::io::ioctl_fionbio(&ours, true).unwrap();
    let mut pool = Pool::new(SIZE, false);
    pool.refill(&Zygote::without_process(ours), process_id(), &chain);
    let (ready, coming) = pool.count();
    assert_eq!(ready, 0);
    assert!(coming != 0 && coming < SIZE && coming.is_multiple_of(BATCH));
    assert_eq!(followed(&control).len(), coming);
    assert_eq!(region.heap_stats().shared_blocks, before + coming);
    pool.free_unmade();
    assert_eq!(followed(&control), [0; 0]);
    assert_eq!(region.heap_stats().shared_blocks, before);
    // SAFETY: nothing is left in the chain.
    unsafe { control.free() };
}

/// The creator is killed in each step of a change of the chain, and nobody but the zygote has it swept. The block of the control
/// record is not in a span of the creator's: it can be used again as soon as it is free.
#[test]
fn the_zygote_frees_no_record_before_the_dead_creator_is_swept() {
    let trial = Trial::begin("the_zygote_frees_no_record_before_the_dead_creator_is_swept");
    let (region, control) = runtime();
    let layout = Ref::layout();
    let before = region.heap_stats();
    // SAFETY: only this test knows the record.
    unsafe { control.free() };
    step::each_instruction(
        &trial,
        "add a record to the chain, and free it",
        || Ref::new(&region, request()).unwrap(),
        |control, span| {
            region.join("creator").unwrap();
            let chain = Chain::new(control);
            span.run(|| {
                let record = chain.add(request()).unwrap();
                // SAFETY: only this task knows the record.
                unsafe { record.free() };
            });
        },
        |_| false,
        |control, _| {
            end_all(&control, None);
            // The next user of the control record's block.
            let blocks = [(); 64].map(|()| region.allocate(layout).unwrap());
            for block in blocks {
                // SAFETY: a block of this size, which only this test knows.
                unsafe { block.write_bytes(0xff, layout.size()) };
            }
            region.sweep().unwrap();
            for block in blocks {
                // SAFETY: allocated above.
                unsafe { region.deallocate(block) }.unwrap();
            }
            region.check_heap().unwrap();
            let left = region.heap_stats();
            assert_eq!(
                left.private_blocks + left.shared_blocks + 1,
                before.private_blocks + before.shared_blocks
            );
        },
    );
}
