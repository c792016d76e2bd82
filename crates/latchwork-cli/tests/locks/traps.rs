//! Programs that are no harm to who looks at them, though they try.
#![allow(unsafe_code)]

use super::roles::{task, until_the_end};
use latchwork::check::layout::{
    BOARD, BYTES, MAGIC, PLACES, PLACES_AT, Place, REPORTS, REPORTS_AT, Report, VERSION,
};
use latchwork_testkit::Seed;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};

/// Waits for a word in a file that it has mapped as its own, and whose name is then that of a FIFO. The memory in front of the
/// file ends as if a pthread rwlock, of which that word is a part, began there.
pub fn module(path: &str) {
    const PAGE: usize = 1 << 16;
    std::fs::write(path, vec![0; PAGE]).unwrap();
    let file = std::fs::File::open(path).unwrap();
    let rights = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let kind = rustix::mm::MapFlags::PRIVATE;
    // SAFETY: fresh mappings, which stay; the second one replaces a half of the first one.
    let word = unsafe {
        let front = rustix::mm::mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, rights, kind);
        let word = front.unwrap().byte_add(PAGE);
        // The readers of the lock, and of its writers.
        word.cast::<[u32; 2]>().sub(1).write([8, 0]);
        let kind = kind | rustix::mm::MapFlags::FIXED;
        rustix::mm::mmap(word, PAGE, rights, kind, &file, 0)
    };
    let word = word.unwrap().cast::<u32>();
    // SAFETY: as above; no other code knows it.
    let word = unsafe { AtomicU32::from_ptr(word) };
    word.store(2, Ordering::Relaxed);
    std::fs::remove_file(path).unwrap();
    let rights = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, rights, 0).unwrap();
    task("sleeper", || {
        loop {
            // SAFETY: the word stays.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    word.as_ptr(),
                    libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                    2,
                    0,
                );
            }
        }
    });
    until_the_end();
}

/// Has a board on which anything stands, and always something else.
pub fn board() {
    let flags = rustix::fs::MemfdFlags::empty();
    let board = std::fs::File::from(rustix::fs::memfd_create(BOARD, flags).unwrap());
    board.set_len(BYTES as u64).unwrap();
    let mut head = [0xff; 64];
    head[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    head[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    head[12..16].copy_from_slice(&std::process::id().to_ne_bytes());
    board.write_all_at(&head, 0).unwrap();
    let mut random = Seed::announced().rng(0);
    // No place of a table is free: all searches go as far as they may.
    let mut garbage = vec![0; BYTES - PLACES_AT];
    random.fill(&mut garbage);
    board.write_all_at(&garbage, PLACES_AT as u64).unwrap();
    // Each place says that it is a thread's, and that this waits and has all that it can.
    let me = std::process::id();
    for place in 0..PLACES {
        let at = (PLACES_AT + place * size_of::<Place>()) as u64;
        for (offset, value) in [(0, me), (4, me), (12, u32::MAX), (44, 1)] {
            board
                .write_all_at(&value.to_ne_bytes(), at + offset)
                .unwrap();
        }
    }
    // Each report is one, whatever else it says.
    let keep_rules = |board: &std::fs::File| {
        for place in 0..REPORTS {
            let at = (REPORTS_AT + place * size_of::<Report>()) as u64;
            let rule = (place as u32 % latchwork::check::Rule::ALL.len() as u32).to_ne_bytes();
            board.write_all_at(&rule, at + 4).unwrap();
        }
    };
    keep_rules(&board);
    task("scribe", move || {
        loop {
            let mut page = [0; 4096];
            random.fill(&mut page);
            let at = random.usize(PLACES_AT..BYTES - page.len());
            board.write_all_at(&page, at as u64).unwrap();
            keep_rules(&board);
            std::thread::yield_now();
        }
    });
    until_the_end();
}
