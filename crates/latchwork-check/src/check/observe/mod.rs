pub(crate) mod ended_threads;
pub(crate) mod fast_path;
pub(crate) mod tell;
pub(crate) mod thread_end;
