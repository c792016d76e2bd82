//! A process that prints a report in a better form than this process can: see [`convey`].
//!
//! The process is started while a lock of the program is held, in a program that does not know of it. So
//! nothing is allocated, no lock of libc's is taken, and the program's waits and signal handlers do not see it.
//! Between the two is one more process, which has no exit signal and is reaped here; so the helper is no child
//! of the program when its `exec` gives it an exit signal. Both start in this process's memory (`CLONE_VM`),
//! like `posix_spawn`, since copying a large process takes long, and with descriptor tables of their own. All
//! signals are blocked meanwhile: a handler of the program must not run there.
//!
//! *Deaths:* if the helper ends before it has reported success, the pipe for that report reaches its end, and
//! the caller writes the report itself. If the program ends while it waits, the helper still has all that it
//! needs: the report and the maps are a file in memory.
#![allow(unsafe_code)]

use super::process::{self, Stack};
use super::signals::kernel_mask;
use super::{introspect, memory};
use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::time::Deadline;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::time::Duration;
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::pipe::PipeFlags;

/// The helper's file, and the number of the process's system-call filters when the helper was chosen.
pub struct Helper {
    file: [AtomicU64; 2],
    filters: AtomicU32,
}

/// The byte that the helper sends when the report is written.
const DONE: u8 = 6;

/// How long the caller waits for it: its input may be large, and the machine busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a stack for two functions that make system calls.
const STACK: usize = 64 << 10;

impl Helper {
    #[allow(clippy::new_without_default, reason = "a static")]
    pub const fn new() -> Self {
        Self {
            file: [const { AtomicU64::new(0) }; 2],
            filters: AtomicU32::new(0),
        }
    }

    /// Chooses the helper's file.
    pub fn choose(&self, path: &CStr) {
        let Ok(file) = open(path) else { return };
        // Relaxed, here and below: the choice is made before reports can occur.
        self.filters.store(filters(), Ordering::Relaxed);
        for (known, now) in self.file.iter().zip(identity(&file)) {
            known.store(now, Ordering::Relaxed);
        }
    }

    /// Opens the file, if it is still the chosen one and the process may have a helper. It may not if a
    /// system-call filter was added since (the filter might end the process for trying), or if the process
    /// inherits orphans, which no code would reap.
    fn find(&self, path: &CStr) -> Option<OwnedFd> {
        let file = open(path).ok()?;
        let known = self
            .file
            .each_ref()
            .map(|word| word.load(Ordering::Relaxed));
        let is_it = known != [0; 2] && identity(&file) == known;
        let may = self.filters.load(Ordering::Relaxed) == filters() && !inherits_orphans();
        (is_it && may).then_some(file)
    }
}

fn open(path: &CStr) -> Result<OwnedFd> {
    rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

fn identity(file: &OwnedFd) -> [u64; 2] {
    introspect::identity(file.as_raw_fd().cast_unsigned())
}

/// The number of filters that apply to the calling thread's system calls.
fn filters() -> u32 {
    let mut buffer = [0; 2048];
    let status = introspect::read_beginning(format_args!("/proc/thread-self/status"), &mut buffer);
    let text = status.and_then(|status| str::from_utf8(status).ok());
    let line = text.and_then(|text| text.split("Seccomp_filters:").nth(1));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

fn inherits_orphans() -> bool {
    let mut is_subreaper: c_int = 0;
    // SAFETY: the kernel writes only the variable.
    unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut is_subreaper) };
    is_subreaper != 0 || super::thread::process_id() == 1
}

/// The data for the processes in between, on the stack of the caller, which is suspended meanwhile.
struct Plan {
    program: RawFd,
    arguments: [*const c_char; 4],
    environment: [*const c_char; 1],
    /// The descriptors that become its standard input, output and error.
    streams: [RawFd; 3],
    stack: *mut c_void,
}

/// Makes the helper at `path` write a report to a descriptor; at most two `arguments` follow its name. Returns
/// whether it has; an error if it was not started.
pub fn convey(
    helper: &Helper,
    path: &CStr,
    arguments: &[&CStr],
    report: &[u8],
    to: BorrowedFd<'_>,
) -> Result<bool> {
    let program = helper.find(path).ok_or(Errno::NOENT)?;
    let message = message(report)?;
    let (done, end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (first, second) = (Stack::map(STACK)?, Stack::map(STACK)?);
    let mut plan = Plan {
        program: program.as_raw_fd(),
        arguments: [c"latchwork".as_ptr(), ptr::null(), ptr::null(), ptr::null()],
        environment: [ptr::null()],
        streams: [message.as_raw_fd(), to.as_raw_fd(), end.as_raw_fd()],
        stack: second.top(),
    };
    for (place, argument) in plan.arguments[1..3].iter_mut().zip(arguments) {
        *place = argument.as_ptr();
    }
    let plan = (&raw mut plan).cast::<c_void>();
    let before = kernel_mask(libc::SIG_SETMASK, u64::MAX);
    // SAFETY: the caller is suspended until the new process has ended, and the new process runs on a stack of
    // its own. Its code allocates nothing, takes no lock, and leaves the memory as it was, except for `errno`.
    let between = unsafe { libc::clone(between, first.top(), VM, plan) };
    if between > 0 {
        let _ = process::reap(between.cast_unsigned(), true);
    }
    kernel_mask(libc::SIG_SETMASK, before);
    drop(end);
    Ok(between > 0 && says_done(&done))
}

/// The processes share all memory, and the parent is suspended until its child has ended or called exec.
const VM: c_int = libc::CLONE_VM | libc::CLONE_VFORK;

extern "C" fn between(plan: *mut c_void) -> c_int {
    // SAFETY: the plan is that of `convey`, which is suspended until this process ends; the child satisfies the
    // same conditions.
    let made = unsafe { libc::clone(become_helper, (*plan.cast::<Plan>()).stack, VM, plan) };
    c_int::from(made < 0)
}

extern "C" fn become_helper(plan: *mut c_void) -> c_int {
    // SAFETY: the plan is that of `convey`, which is still suspended. The descriptors are those of this
    // process's own table.
    unsafe {
        let plan = &*plan.cast::<Plan>();
        let aside = |file: RawFd| libc::fcntl(file, libc::F_DUPFD, 3);
        let program = aside(plan.program);
        let streams = plan.streams.map(aside);
        if program < 0 || streams.iter().any(|stream| *stream < 0) {
            return 1;
        }
        for (number, stream) in (0..).zip(streams) {
            libc::dup2(stream, number);
        }
        libc::fcntl(program, libc::F_SETFD, libc::FD_CLOEXEC);
        process::close_all_but(&mut [program]);
        kernel_mask(libc::SIG_SETMASK, 0);
        libc::syscall(
            libc::SYS_execveat,
            program,
            c"".as_ptr(),
            plan.arguments.as_ptr(),
            plan.environment.as_ptr(),
            libc::AT_EMPTY_PATH,
        );
    }
    1
}

/// Creates the message: the report and the maps, as a file in memory.
fn message(report: &[u8]) -> Result<OwnedFd> {
    let file = memory::anonymous_file("latchwork-report")?;
    let write = |bytes: &[u8]| {
        let is_whole = introspect::write(&file, bytes) == bytes.len();
        is_whole.then_some(()).ok_or(Errno::NOSPC)
    };
    write(report)?;
    write(&[0])?;
    let maps = introspect::open(c"/proc/self/maps")?;
    let mut buffer = [0; 2048];
    loop {
        match retry_on_intr(|| rustix::io::read(&maps, &mut buffer))? {
            0 => break,
            count => write(&buffer[..count])?,
        }
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))?;
    Ok(file)
}

fn says_done(done: &OwnedFd) -> bool {
    let mut said = [0];
    process::wait_for_end(done, Some(Deadline::after(PATIENCE))) == Ok(true)
        && rustix::io::read(done, &mut said) == Ok(1)
        && said == [DONE]
}
