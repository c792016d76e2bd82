pub(crate) mod cross_process;
pub(crate) mod cycle;
pub(crate) mod lasting;
pub(crate) mod order;
pub(crate) mod unsignallable;
pub(crate) mod visible_tasks;
pub(crate) mod wait;
