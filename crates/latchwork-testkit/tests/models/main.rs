//! Models of what loom cannot reach: the kernel's part in a death, sleeps and sweeps of a whole region, and the protocol of
//! several processes. Each visits every state of a few tasks that are killed at any step, and has negative twins: copies with
//! one planted fault, in which something must be wrong. The head of each model says which lines of the source it mirrors, and
//! what it leaves out.
//!
//! `LATCHWORK_MODEL_STATES=200000000 cargo test --release -p latchwork-testkit --test models -- --test-threads=1` visits the
//! states of larger bounds (`ci/models.sh` keeps how many they are in `results/models`).

mod lookout;
mod region_lock;
mod robust;
mod zygote;

use latchwork_testkit::explore;
