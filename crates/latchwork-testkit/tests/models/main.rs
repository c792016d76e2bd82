//! Models of what loom cannot reach: the kernel's part in a death, sleeps and sweeps of a whole region, and the protocol of
//! several processes. Each visits every state of a few tasks that are killed at any step, and has negative twins: copies with
//! one planted fault, in which something must be wrong. The head of each model says which lines of the source it mirrors, and
//! what it leaves out.
//!
//! `ci/models.sh` visits the states of larger bounds, and keeps how many they are in `results/models`.

mod futex_word;
mod inherit;
mod lookout;
mod pool;
mod region_lock;
mod robust;
mod section;
mod zygote;

use latchwork_testkit::explore;
