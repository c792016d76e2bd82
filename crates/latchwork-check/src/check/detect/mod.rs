//! What is detected, from the records. Nothing here reports: the results are returned.
//!
//! | part | file | what |
//! | --- | --- | --- |
//! | deadlocks | `cycle.rs`, `visible_tasks.rs` | wait-for cycles through processes, before the sleep |
//! | the same by locks in no region | `cross_process.rs` | in other processes, when the wait has lasted for 0.1 s |
//! | whether a deadlock lasts | `lasting.rs` | or another task may release the locks |
//! | lock order | `order.rs`, `order/` | cycles of the lock order, and which of them are harmless |
//! | inversions, long waits | `wait.rs` | what is due in a wait that lasts |
//! | waits without a notifier | `unsignallable.rs` | events that no other task can signal |

pub(crate) mod cross_process;
pub(crate) mod cycle;
pub(crate) mod lasting;
pub(crate) mod order;
pub(crate) mod unsignallable;
pub(crate) mod visible_tasks;
pub(crate) mod wait;
