//! How much stack a report takes.
#![allow(unsafe_code)]

use crate::bounds::until_so_many_wait;
use crate::kinds::plain;
use latchwork::check::{Checked, Refused, Refuses};
use latchwork::mutex::{Protocol, WaitWake};
use latchwork_testkit::{Child, Watchdog};
use std::mem::MaybeUninit;
use std::sync::Barrier;
use std::thread::scope;

type Plain = Checked<WaitWake>;

/// How much stack a closure has used that runs on a thread of its own.
fn stack_used_by(body: impl FnOnce() + Send) -> usize {
    const BYTES: usize = 1 << 20;
    const UNTOUCHED: u8 = 0xa5;
    type Body<'b> = Option<Box<dyn FnOnce() + Send + 'b>>;
    extern "C" fn begin(body: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: what the thread was given below, where it is waited for.
        let body = unsafe { &mut *body.cast::<Body<'_>>() };
        body.take().expect("begun once")();
        std::ptr::null_mut()
    }
    let mut stack = vec![UNTOUCHED; BYTES + 4096];
    let at = stack.as_ptr().align_offset(4096);
    let mut body: Body<'_> = Some(Box::new(body));
    // SAFETY: a stack, a place for what the thread is given, and the thread's end, all of which are waited for here.
    unsafe {
        let mut attributes = MaybeUninit::uninit();
        libc::pthread_attr_init(attributes.as_mut_ptr());
        let bottom = stack.as_mut_ptr().add(at).cast();
        assert_eq!(
            libc::pthread_attr_setstack(attributes.as_mut_ptr(), bottom, BYTES),
            0
        );
        let mut thread = MaybeUninit::uninit();
        let given = (&raw mut body).cast();
        let made = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), begin, given);
        assert_eq!(made, 0);
        libc::pthread_join(thread.assume_init(), std::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    let untouched = stack[at..].iter().take_while(|byte| **byte == UNTOUCHED);
    BYTES - untouched.count()
}

/// The search for a cycle and the report need little of the thread's stack, also without optimisation: most of this is what
/// any lock call needs. (10 KiB suffice with it.)
#[test]
fn report_fits_into_a_small_stack() {
    let _watchdog = Watchdog::start("a report on a small stack".into());
    Child::fork(|| {
        latchwork::check::set_text(false);
        let [a, c] = ["a", "c"].map(plain);
        let b = Checked::<WaitWake, Refuses>::named("b", WaitWake::new());
        let nest = |first: &Plain, second: &Plain| {
            let _ = first.acquire();
            let _ = second.acquire();
            // SAFETY: taken.
            unsafe {
                second.release();
                first.release();
            }
        };
        let orderly = stack_used_by(|| nest(&a, &c));
        let two_orders = stack_used_by(|| nest(&c, &a));
        let both = Barrier::new(2);
        let cycle = scope(|scope| {
            scope.spawn(|| {
                b.acquire().unwrap();
                both.wait();
                let _ = a.acquire();
                // SAFETY: taken.
                unsafe {
                    a.release();
                    b.release();
                }
            });
            stack_used_by(|| {
                let _ = a.acquire();
                both.wait();
                // On a stack of its own, since it needs much itself.
                scope.spawn(|| until_so_many_wait(1)).join().unwrap();
                assert_eq!(b.acquire(), Err(Refused::Deadlock));
                // SAFETY: taken.
                unsafe { a.release() };
            })
        });
        println!("{orderly} {two_orders} {cycle}");
        assert!(
            two_orders.max(cycle) < 32 << 10,
            "{orderly} {two_orders} {cycle}"
        );
    })
    .succeed();
}
