//! What is detected, from the records. Nothing here reports: the results are returned.

pub(crate) mod cross_process;
pub(crate) mod cycle;
pub(crate) mod lasting;
pub(crate) mod order;
pub(crate) mod visible_tasks;
pub(crate) mod wait;
