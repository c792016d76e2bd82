//! A dead task is recovered after the kernel has walked its whole robust list, and no sooner.
//!
//! Two words of the task's slot show how far the kernel is; the tests set them as the kernel would.
#![allow(unsafe_code)]

mod processes;

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use latchwork::mutex::{LockError, Mutex};
use latchwork::region::{AttachError, Box, Region, RegionOptions, StorageError};
use latchwork_testkit::{Child, Exit, Page, Trial};
use std::sync::mpsc;

const OWNER_DIED: u32 = 0x4000_0000;
const WAITERS: u32 = 0x8000_0000;
/// Where the slots are, and in a slot the process and the tail.
const SLOTS: usize = 4096;
const SLOT_BYTES: usize = 1792;
const PROCESS: usize = 44;
const TAIL: usize = 704;

fn options() -> RegionOptions {
    RegionOptions::new()
        .max_bytes(4 << 20)
        .max_tasks(8)
        .max_names(8)
}

fn region() -> Region {
    options().create_anonymous().unwrap()
}

fn thread_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u32 }
}

fn word(region: &Region, slot: usize, place: usize) -> &AtomicU32 {
    let address = region.base().addr() + SLOTS + slot * SLOT_BYTES + place;
    // SAFETY: a word of the task table, all of which is atomics.
    unsafe { &*core::ptr::with_exposed_provenance(address) }
}

/// The slot of the only other task.
const VICTIM: usize = 1;

/// Makes the calling thread the first task, and a child the second, with a block of its own, and
/// kills that.
fn kill_one(trial: &Trial, region: &Region) {
    region.base().expose_provenance();
    region.join("survivor").unwrap();
    let ready = Page::<AtomicU32>::new();
    let mut victim = Child::fork(|| {
        region.join("victim").unwrap();
        core::mem::forget(Box::new_in([1u64; 100], region).unwrap());
        ready.store(1, SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| ready.load(SeqCst) == 1);
    assert_eq!(
        word(region, VICTIM, TAIL).load(SeqCst),
        victim.pid() as u32 | WAITERS
    );
    assert_eq!(
        word(region, VICTIM, PROCESS).load(SeqCst),
        victim.pid() as u32
    );
    assert_eq!(victim.kill(), Exit::Signal(libc::SIGKILL));
    for place in [0, TAIL] {
        let word = word(region, VICTIM, place).load(SeqCst);
        assert_eq!(word, OWNER_DIED | WAITERS);
    }
}

fn blocks(region: &Region) -> usize {
    let stats = region.heap_stats();
    stats.private_blocks + stats.shared_blocks
}

#[test]
fn a_dead_task_is_recovered_as_soon_as_its_tail_is_marked() {
    let trial = Trial::begin("a_dead_task_is_recovered_as_soon_as_its_tail_is_marked");
    let region = region();
    kill_one(&trial, &region);
    assert_eq!(blocks(&region), 1);
    assert_eq!(region.sweep().unwrap().dead, ["victim"]);
    assert_eq!(blocks(&region), 0);
    assert_eq!(word(&region, VICTIM, TAIL).load(SeqCst), 0);
}

#[test]
fn a_sweep_waits_until_the_kernel_has_walked_the_dead_tasks_list() {
    let trial = Trial::begin("a_sweep_waits_until_the_kernel_has_walked_the_dead_tasks_list");
    let region = region();
    kill_one(&trial, &region);
    let tail = word(&region, VICTIM, TAIL);
    tail.store(0x3fff_fff0 | WAITERS, SeqCst);
    let sweeper = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let sweep = scope.spawn(|| {
            sweeper.store(thread_id(), SeqCst);
            region.sweep().unwrap()
        });
        trial.wait_until(|| sleeps_on(sweeper.load(SeqCst), tail) || sweep.is_finished());
        assert_eq!(blocks(&region), 1, "settled before the kernel was done");
        tail.store(OWNER_DIED | WAITERS, SeqCst);
        // SAFETY: wakes who sleeps on a word of ours.
        unsafe { libc::syscall(libc::SYS_futex, tail, libc::FUTEX_WAKE, 1) };
        assert_eq!(sweep.join().unwrap().dead, ["victim"]);
    });
    let stats = region.heap_stats();
    // If this machine stood still for a second, the sweep lost its patience and kept the block.
    assert_eq!(stats.private_blocks, 0);
    assert!(stats.shared_blocks <= 1);
}

/// Whether a thread sleeps on a word.
fn sleeps_on(thread: u32, word: &AtomicU32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    let call = call.unwrap_or_default();
    let mut fields = call.split(' ');
    fields.next() == Some(&libc::SYS_futex.to_string())
        && fields.next() == Some(&format!("{:#x}", core::ptr::from_ref(word).addr()))
}

/// Something may be wrong with the list, so that its end is never reached.
#[test]
fn if_the_kernel_never_gets_to_the_tail_the_block_is_kept_and_the_slot_is_freed() {
    let trial = Trial::begin(
        "if_the_kernel_never_gets_to_the_tail_the_block_is_kept_and_the_slot_is_freed",
    );
    let region = region();
    kill_one(&trial, &region);
    word(&region, VICTIM, TAIL).store(0x3fff_fff0 | WAITERS, SeqCst);
    assert_eq!(region.sweep().unwrap().dead, ["victim"]);
    let stats = region.heap_stats();
    assert_eq!((stats.private_blocks, stats.shared_blocks), (0, 1));
    for place in [0, TAIL] {
        assert_eq!(word(&region, VICTIM, place).load(SeqCst), 0);
    }
}

/// One thread of a process may die while its other threads live.
#[test]
fn a_sweep_does_not_wait_for_living_tasks_of_the_dead_tasks_process() {
    let trial = Trial::begin("a_sweep_does_not_wait_for_living_tasks_of_the_dead_tasks_process");
    let region = region();
    kill_one(&trial, &region);
    let ready = Page::<AtomicU32>::new();
    let other = Child::fork(|| {
        // The first free slot: the victim's is not free yet.
        region.base().expose_provenance();
        ready.store(1, SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| ready.load(SeqCst) == 1);
    let process = word(&region, VICTIM, PROCESS);
    process.store(other.pid() as u32, SeqCst);
    word(&region, 0, PROCESS).store(other.pid() as u32, SeqCst);
    assert_eq!(region.sweep().unwrap().dead, ["victim"]);
    // Not because the time limit has passed.
    assert_eq!(blocks(&region), 0);
}

/// A wait for an event of which no other task knows is reported as a deadlock, so the answer must not be wrong.
#[test]
fn has_only_own_task_holds_for_an_own_task_only() {
    let trial = Trial::begin("has_only_own_task_holds_for_an_own_task_only");
    let region = region();
    let address = region.base().addr();
    assert!(!latchwork::region::has_only_own_task(address), "no task");
    let joined = Page::<AtomicU32>::new();
    let mut child = Child::fork(|| {
        region.join("child").unwrap();
        joined.store(1, SeqCst);
        loop {
            std::thread::park();
        }
    });
    trial.wait_until(|| joined.load(SeqCst) == 1);
    assert!(
        !latchwork::region::has_only_own_task(address),
        "the only task is another process's"
    );
    region.join("own").unwrap();
    assert!(!latchwork::region::has_only_own_task(address), "two tasks");
    child.kill();
    region.sweep().unwrap();
    assert!(latchwork::region::has_only_own_task(address));
    let address = &raw const trial;
    assert!(
        !latchwork::region::has_only_own_task(address.addr()),
        "in no region"
    );
}

fn join_cpu(cpu: usize) -> bool {
    // SAFETY: all-zero is an empty set; the kernel reads it.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
    }
}

fn become_real_time() -> bool {
    latchwork_testkit::priority::fifo(10).try_give(0)
}

/// A survivor of higher priority, on the dead one's CPU, runs as soon as the kernel has woken it: in
/// the middle of the list.
#[test]
fn no_lock_is_lost_behind_one_in_a_dead_tasks_own_block() {
    let trial = Trial::begin("no_lock_is_lost_behind_one_in_a_dead_tasks_own_block");
    let region = region();
    let named = region.object("named", || Mutex::robust(0u64)).unwrap();
    let watcher = Page::<AtomicU32>::new();
    let skipped = Child::fork(|| {
        if !join_cpu(0) || !become_real_time() {
            std::process::exit(2);
        }
    })
    .wait()
        == Exit::Code(2);
    if skipped {
        eprintln!("skipped: needs CAP_SYS_NICE, for SCHED_FIFO");
        return;
    }
    let mut survivor = Child::fork(|| {
        assert!(join_cpu(0) && become_real_time());
        region.join("survivor").unwrap();
        let idle = region
            .object("idle", latchwork::completion::Completion::shared)
            .unwrap();
        watcher.store(1, SeqCst);
        loop {
            // Whatever woke us, the dead one is settled; its memory is used.
            let _ = idle.wait_for(core::time::Duration::from_millis(100));
            let bytes = core::alloc::Layout::new::<[u8; 65536]>();
            let blocks = [(); 4].map(|()| region.allocate(bytes).unwrap());
            for block in blocks {
                // SAFETY: a block of this task's own, freed once.
                unsafe {
                    block.write_bytes(0xff, bytes.size());
                    region.deallocate(block).unwrap();
                }
            }
        }
    });
    trial.wait_until(|| watcher.load(SeqCst) == 1);
    for _ in 0..trial.times(20) {
        let held = Page::<AtomicU32>::new();
        let mut victim = Child::fork(|| {
            assert!(join_cpu(0));
            core::mem::forget(named.lock().unwrap());
            let own = Box::new_in(Mutex::robust(1u64), &region).unwrap();
            core::mem::forget(own.as_pin().lock().unwrap());
            held.store(1, SeqCst);
            loop {
                std::thread::park();
            }
        });
        trial.wait_until(|| held.load(SeqCst) == 1);
        victim.kill();
        let Err(LockError::OwnerDied(died)) = named.lock() else {
            panic!("the lock of the dead is lost")
        };
        drop(died.make_consistent());
        trial.progress();
    }
    survivor.kill();
}

type Told = mpsc::Sender<Result<(), StorageError>>;

/// Allocates in the region when it is dropped.
struct Late(Region, Told);

impl Drop for Late {
    fn drop(&mut self) {
        let made = Box::new_in(7u64, &self.0).map(core::mem::forget);
        let _ = self.1.send(made.map_err(StorageError::from));
    }
}

thread_local! {
    static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
}

/// A value of a thread whose destructor runs after those of all thread-locals, and after that of what was made when the
/// program began.
fn drop_at_the_end(late: Late) {
    unsafe extern "C" fn drop_it(late: *mut libc::c_void) {
        // SAFETY: made below.
        drop(unsafe { std::boxed::Box::from_raw(late.cast::<Late>()) });
    }
    let mut key = 0;
    let late = std::boxed::Box::into_raw(std::boxed::Box::new(late));
    // SAFETY: a place for the key; a function that takes such a value.
    unsafe {
        assert_eq!(libc::pthread_key_create(&raw mut key, Some(drop_it)), 0);
        assert_eq!(libc::pthread_setspecific(key, late.cast()), 0);
    }
}

/// Its end would look like a kill, and free what it gave to others.
#[test]
fn a_thread_whose_end_has_begun_becomes_no_task() {
    let _trial = Trial::begin("a_thread_whose_end_has_begun_becomes_no_task");
    let region = region();
    region.join("first").unwrap();
    let (sender, results) = mpsc::channel();
    let (first, second) = (
        Late(region.clone(), sender.clone()),
        Late(region.clone(), sender),
    );
    let user = region.clone();
    std::thread::spawn(move || {
        drop_at_the_end(second);
        // Destructors of thread-locals run in the reverse order of first use; whichever it is, they come before.
        LATE.set(Some(first));
        user.join("thread").unwrap();
    })
    .join()
    .unwrap();
    results.recv().unwrap().unwrap();
    assert!(matches!(
        results.recv().unwrap(),
        Err(StorageError::Attach(AttachError::ThreadEnding))
    ));
    assert_eq!(region.sweep().unwrap().dead, [""; 0]);
}

/// `exit` ends the regions of the thread that calls it, whichever it is.
#[test]
fn a_process_that_exits_leaves_its_regions_in_good_order() {
    let _trial = Trial::begin("a_process_that_exits_leaves_its_regions_in_good_order");
    let region = region();
    region.join("first").unwrap();
    let exit = |region: &Region| {
        region.join("who exits").unwrap();
        std::process::exit(0)
    };
    Child::fork(|| exit(&region)).succeed();
    assert_eq!(region.sweep().unwrap().dead, [""; 0]);
    Child::fork(|| {
        std::thread::scope(|scope| scope.spawn(|| exit(&region)).join()).unwrap();
    })
    .succeed();
    assert_eq!(region.sweep().unwrap().dead, [""; 0]);
}

/// The end of a thread, a detach and `exit` are no deaths: others may use the blocks, and no record says who.
#[test]
fn the_blocks_of_a_task_that_leaves_in_good_order_stay_allocated() {
    let _trial = Trial::begin("the_blocks_of_a_task_that_leaves_in_good_order_stay_allocated");
    let region = region();
    region.join("first").unwrap();
    let allocate = |region: &Region| core::mem::forget(Box::new_in([1u64; 100], region).unwrap());
    let blocks = || {
        region.sweep().unwrap();
        let stats = region.heap_stats();
        (stats.private_blocks, stats.shared_blocks)
    };
    let (private, shared) = blocks();

    let dies = |region: &Region| {
        allocate(region);
        // SAFETY: the process is not to clean up.
        unsafe { libc::_exit(0) }
    };
    Child::fork(|| dies(&region)).succeed();
    assert_eq!(blocks(), (private, shared));

    std::thread::scope(|scope| scope.spawn(|| allocate(&region)).join()).unwrap();
    assert_eq!(blocks(), (private, shared + 1));
    std::thread::scope(|scope| {
        let handle = region.clone();
        let detaches = || {
            allocate(&handle);
            handle.detach().unwrap();
        };
        scope.spawn(detaches).join()
    })
    .unwrap();
    assert_eq!(blocks(), (private, shared + 2));
    let exits = |region: &Region| {
        allocate(region);
        std::process::exit(0)
    };
    Child::fork(|| exits(&region)).succeed();
    assert_eq!(blocks(), (private, shared + 3));
}

/// As many as fit into a large table, of which the work is no cubic function.
#[test]
fn very_many_deaths_are_settled_together() {
    const DEAD: u16 = 8_192;
    let _trial = Trial::begin("very_many_deaths_are_settled_together");
    let options = RegionOptions::new().max_bytes(1 << 20);
    let region = options.max_tasks(DEAD + 16).create_anonymous().unwrap();
    region.join("survivor").unwrap();
    let word = |at: usize| {
        // SAFETY: the header and the slots are mapped, and begin with atomic words.
        unsafe { &*region.base().add(at).cast::<AtomicU32>() }
    };
    let header = (0..SLOTS).step_by(size_of::<u32>()).map(word);
    let mut counts: Vec<&AtomicU32> = header.collect();
    // The word that counts the slots which were ever used.
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for used in 2..7 {
            let (region, end) = (&region, &end);
            scope.spawn(move || {
                region.join("other").unwrap();
                while !end.load(SeqCst) {
                    std::thread::yield_now();
                }
            });
            while !counts.iter().any(|word| word.load(SeqCst) == used) {
                std::thread::yield_now();
            }
            counts.retain(|word| word.load(SeqCst) == used);
        }
        end.store(true, SeqCst);
    });
    assert_eq!(counts.len(), 1, "words that count slots");
    for slot in 7..7 + usize::from(DEAD) {
        word(SLOTS + slot * SLOT_BYTES).store(OWNER_DIED, SeqCst);
    }
    counts[0].store(7 + u32::from(DEAD), SeqCst);
    assert_eq!(region.sweep().unwrap().dead.len(), usize::from(DEAD));
    assert_eq!(region.sweep().unwrap().dead.len(), 0);
}
