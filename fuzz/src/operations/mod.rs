//! Sequences of operations on the objects of a region, each compared with a reference model that is a few lines of the
//! standard library.

mod containers;
mod events;
mod heap;
mod names;
mod queue;
mod ring;
mod semaphores;

use arbitrary::Arbitrary;
use latchwork::region::RegionOptions;

/// One input: the object, and what is done with it.
#[derive(Arbitrary, Debug)]
pub enum Input {
    /// A queue whose receivers race, or are served in order.
    Queue(bool, Vec<queue::Step>),
    Ring(Vec<ring::Step>),
    Semaphores(Vec<semaphores::Step>),
    Events(Vec<events::Step>),
    Heap(Vec<heap::Step>),
    Containers(Vec<containers::Step>),
    Names(Vec<names::Step>),
}

/// Carries the steps out in a region of their own.
pub fn run(input: Input) {
    let region = RegionOptions::new()
        .address(0x3180_0000_0000)
        .max_bytes(1 << 20)
        .max_tasks(4)
        .max_names(12)
        .create_anonymous()
        .unwrap();
    match input {
        Input::Queue(in_order, steps) => queue::run(&region, in_order, steps),
        Input::Ring(steps) => ring::run(&region, steps),
        Input::Semaphores(steps) => semaphores::run(&region, steps),
        Input::Events(steps) => events::run(&region, steps),
        Input::Heap(steps) => heap::run(&region, steps),
        Input::Containers(steps) => containers::run(&region, steps),
        Input::Names(steps) => names::run(&region, steps),
    }
    region.check_heap().unwrap();
    region.detach().unwrap();
}
