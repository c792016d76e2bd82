//! Many sections at random: nested, with deadlines, by tasks that change their priorities and processors, and die.

use super::bound::{bind, bound_task, processors_of, real_time_of, two_processors};
use super::make;
use super::semaphore_support::{current, priority, region};
use core::time::Duration;
use latchwork::region::Region;
use latchwork::semaphore::TaskPriority as _;
use latchwork::semaphore::{MrspSemaphore, ObtainError};
use latchwork_testkit::fastrand::Rng;
use latchwork_testkit::{Child, Page, Trial};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;

const SEMAPHORES: usize = 3;
/// Nested from the first to the last.
const CEILINGS: [u8; SEMAPHORES] = [50, 45, 40];

fn semaphores(region: &Region) -> [MrspSemaphore<'_>; SEMAPHORES] {
    core::array::from_fn(|index| make(region, &format!("{index}"), CEILINGS[index]))
}

/// Who is in which section, by the tests' own book.
type Sections = [AtomicU32; SEMAPHORES];

fn sections(
    region: &Region,
    rng: &mut Rng,
    processors: [usize; 2],
    inside: &Sections,
    killed: &AtomicU32,
    goes_on: impl Fn() -> bool,
) {
    let semaphores = semaphores(region);
    let (mut home, mut own) = (processors[rng.usize(..2)], 60);
    let me = bound_task(region, home, own);
    while goes_on() {
        let mut held = Vec::new();
        for (semaphore, inside) in semaphores.iter().zip(inside) {
            if rng.u8(..3) == 0 {
                continue;
            }
            let patience = Duration::from_micros(rng.u64(..500));
            let obtained = match rng.u8(..8) {
                0 => semaphore.try_obtain(),
                _ => semaphore.obtain_for(patience),
            };
            match obtained {
                Ok(section) => {
                    let before = inside.swap(1, SeqCst);
                    assert!(before == 0 || section.owner_died());
                    // One waiter spins on each processor, and keeps all others there from coming. First come, first served:
                    // so nobody waits for more sections than there are processors. A waiter that was killed counts until its
                    // death is detected.
                    let most = processors.len() as u32 + killed.load(SeqCst);
                    assert!(semaphore.waiting() <= most);
                    held.push((section, inside));
                }
                Err(ObtainError::WouldBlock | ObtainError::TimedOut) => break,
                Err(error) => panic!("{error}"),
            }
        }
        match rng.u8(..16) {
            0 => thread::sleep(Duration::from_micros(20)),
            1 => thread::yield_now(),
            _ => (0..rng.u32(..300)).for_each(|_| core::hint::spin_loop()),
        }
        while !held.is_empty() {
            let (section, inside) = held.swap_remove(rng.usize(..held.len()));
            inside.store(0, SeqCst);
            drop(section);
        }
        assert_eq!(processors_of(0), [home]);
        assert_eq!(real_time_of(0), 100 - i32::from(own));
        assert_eq!(current(region, me), own);
        match rng.u8(..16) {
            0 => {
                own = rng.u8(55..70);
                me.set_priority(region, priority(own)).unwrap();
            }
            1 => {
                home = processors[rng.usize(..2)];
                bind(&[home]);
            }
            // Others of this processor have a turn.
            _ => thread::sleep(Duration::from_micros(10)),
        }
    }
}

#[test]
fn after_any_sections_priorities_and_processors_are_what_they_were() {
    const NAME: &str = "after_any_sections_priorities_and_processors_are_what_they_were";
    let Some(processors) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let region = region();
    let inside = Sections::default();
    let done = AtomicU32::new(0);
    let most = trial.times(3_000) as u32;
    thread::scope(|scope| {
        for worker in 0..4 {
            let mut rng = trial.seed().rng(worker);
            let (region, inside, done, trial) = (&region, &inside, &done, &trial);
            scope.spawn(move || {
                sections(
                    region,
                    &mut rng,
                    processors,
                    inside,
                    &AtomicU32::new(0),
                    || {
                        trial.progress();
                        done.fetch_add(1, SeqCst) < most
                    },
                );
            });
        }
    });
    assert!(
        semaphores(&region)
            .iter()
            .all(|semaphore| { semaphore.waiting() == 0 && semaphore.owner().is_none() })
    );
}

#[test]
fn kills_leave_the_survivors_priorities_and_processors_what_they_were() {
    const NAME: &str = "kills_leave_the_survivors_priorities_and_processors_what_they_were";
    let Some(processors) = two_processors(NAME) else {
        return;
    };
    let trial = Trial::begin(NAME);
    let region = region();
    let inside = Page::<Sections>::new();
    let over = Page::<AtomicBool>::new();
    let done = Page::<AtomicU32>::new();
    let killed = Page::<AtomicU32>::new();
    let start = |worker: u64| {
        let mut rng = trial.seed().rng(worker);
        let (region, inside, over) = (&region, &inside, &over);
        let (done, killed) = (&done, &killed);
        Child::fork(move || {
            sections(region, &mut rng, processors, inside, killed, || {
                done.fetch_add(1, SeqCst);
                !over.load(SeqCst)
            });
        })
    };
    let mut children: Vec<Child> = (0..4).map(start).collect();
    let mut rng = trial.seed().rng(1_000);
    for kill in 0..trial.times(60) {
        let until = done.load(SeqCst) + rng.u32(5..40);
        trial.wait_until(|| done.load(SeqCst) >= until);
        let victim = rng.usize(..children.len());
        assert_eq!(children[victim].try_wait(), None, "a child has ended");
        killed.fetch_add(1, SeqCst);
        children[victim].kill();
        children[victim] = start(2_000 + kill);
    }
    over.store(true, SeqCst);
    children.into_iter().for_each(Child::succeed);
    for semaphore in semaphores(&region) {
        drop(semaphore.try_obtain().unwrap());
        assert_eq!(semaphore.waiting(), 0);
    }
}
