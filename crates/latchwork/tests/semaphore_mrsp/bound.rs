//! Threads that are bound to a processor, and what the kernel tells of them.
#![allow(unsafe_code)]
#![allow(dead_code, reason = "each test program uses a part")]

use latchwork::region::{Region, TaskId};
use latchwork::semaphore::Priority;
use latchwork::semaphore::TaskPriority as _;

type Mask = [u64; 128];

/// The processors that a thread may run on; 0 is the calling one.
pub(crate) fn processors_of(thread: u32) -> Vec<usize> {
    let mut mask: Mask = [0; 128];
    // SAFETY: the kernel writes at most as many bytes as the call passes, which is the size of the set.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            thread,
            size_of::<Mask>(),
            mask.as_mut_ptr(),
        )
    };
    assert!(done >= 0);
    (0..mask.len() * 64)
        .filter(|processor| mask[processor / 64] >> (processor % 64) & 1 != 0)
        .collect()
}

/// Binds the calling thread.
pub(crate) fn bind(processors: &[usize]) {
    let mut mask: Mask = [0; 128];
    for processor in processors {
        mask[processor / 64] |= 1 << (processor % 64);
    }
    // SAFETY: the kernel reads the mask.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of::<Mask>(),
            mask.as_ptr(),
        )
    };
    assert_eq!(done, 0);
}

/// Where the calling thread runs.
pub(crate) fn processor() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::sched_getcpu() as usize }
}

pub(crate) fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u32 }
}

/// The real-time priority of a thread, 0 if it has none.
pub(crate) fn real_time_of(thread: u32) -> i32 {
    try_real_time_of(thread).expect("a thread")
}

/// The same, or `None` if there is no such thread.
pub(crate) fn try_real_time_of(thread: u32) -> Option<i32> {
    let mut priority = 0_i32;
    // SAFETY: the kernel writes one int.
    let done = unsafe { libc::syscall(libc::SYS_sched_getparam, thread, &raw mut priority) };
    (done == 0).then_some(priority)
}

/// Gives the calling thread a real-time priority, or none; whether the system agreed.
pub(crate) fn try_real_time(priority: i32) -> bool {
    let policy = if priority == 0 {
        libc::SCHED_OTHER
    } else {
        libc::SCHED_FIFO
    };
    // SAFETY: the kernel reads one int.
    let done =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
    done == 0
}

/// The calling thread as a task of this priority, which the kernel knows, bound to a processor.
pub(crate) fn bound_task(region: &Region, processor: usize, of: u8) -> TaskId {
    bind(&[processor]);
    let me = region.task_id().unwrap();
    me.set_priority(region, Priority::new(of).unwrap()).unwrap();
    me.mirror(region, true).unwrap();
    assert_eq!(real_time_of(0), 100 - i32::from(of));
    me
}

/// Two processors for a test that needs them, and real-time priorities; if it cannot have them, says so.
pub(crate) fn two_processors(test: &str) -> Option<[usize; 2]> {
    let may = std::thread::spawn(|| try_real_time(90)).join().unwrap();
    if !may {
        println!("skipped: {test} needs CAP_SYS_NICE, or an RLIMIT_RTPRIO of 90");
        return None;
    }
    let [first, second, ..] = processors_of(0)[..] else {
        println!("skipped: {test} needs two processors");
        return None;
    };
    Some([first, second])
}
