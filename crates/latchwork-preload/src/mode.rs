//! Which lock this process uses instead of glibc's mutexes, as its environment says.
//!
//! The environment is read at the first call of any function here, and at the latest by this library's constructor. It
//! must not be later, for two reasons. The look-up takes the loader's lock; later another thread could hold that lock,
//! in the constructor of a library that it loads, and wait for the mode. And standard error can be identified only
//! until the program closes it. (A call may come before the constructor, since the dynamic linker calls the
//! constructors of other libraries first.) Until the mode is known, every call goes on to glibc.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use latchwork_interpose::symbol::environment;
use latchwork_interpose::{counts, say};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Mode {
    Glibc = 1,
    Throughput = 2,
    WaitWake = 3,
    Inherit = 4,
}

const UNKNOWN: u8 = 0;
static MODE: AtomicU8 = AtomicU8::new(UNKNOWN);
/// The thread that determines the mode.
static FINDER: AtomicU32 = AtomicU32::new(0);

/// The word of a lock that is held and has no waiters: [`HOLDER`] stands for the holder's ID. 0 if mutexes are not
/// replaced, or if the mode is not known yet.
static MARK: AtomicU32 = AtomicU32::new(0);
const HOLDER: u32 = u32::MAX;

/// The calling thread, with the mark that it stores in locks.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) id: u32,
    pub(crate) mark: u32,
}

/// `None` if mutexes are not replaced, or if the mode is not known yet.
#[inline(always)]
pub(crate) fn caller() -> Option<Caller> {
    // Acquire: pairs with the Release in `find`; before that the ID has no meaning.
    let mark = MARK.load(Ordering::Acquire);
    let id = crate::thread::id();
    let mark = if mark == HOLDER { id } else { mark };
    (mark != 0).then_some(Caller { id, mark })
}

#[inline(always)]
pub(crate) fn get() -> Mode {
    // Acquire: pairs with the Release in `find`.
    match MODE.load(Ordering::Acquire) {
        2 => Mode::Throughput,
        3 => Mode::WaitWake,
        4 => Mode::Inherit,
        UNKNOWN => find(),
        _ => Mode::Glibc,
    }
}

extern "C" fn start() {
    get();
}

/// Called by the dynamic linker, before the program's own constructors.
// SAFETY: `.init_array` is a section of pointers to functions of this type.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cold]
#[inline(never)]
fn find() -> Mode {
    let me = crate::thread::ask();
    // Relaxed: a thread that is not the finder waits for the mode.
    match FINDER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            let mode = crate::thread::keeping_errno(prepare);
            let mark = match mode {
                Mode::Glibc => 0,
                Mode::WaitWake => 1,
                Mode::Throughput | Mode::Inherit => HOLDER,
            };
            // The mark comes after the mode, since a thread that has a mark may read the mode.
            MODE.store(mode as u8, Ordering::Release);
            MARK.store(mark, Ordering::Release);
            mode
        }
        // The finder's own preparations call these functions.
        Err(finder) if finder == me => Mode::Glibc,
        Err(_) => {
            while MODE.load(Ordering::Acquire) == UNKNOWN {
                core::hint::spin_loop();
            }
            get()
        }
    }
}

fn prepare() -> Mode {
    crate::real::look_up_all();
    say::prepare();
    counts::prepare();
    crate::heal::setting::prepare();
    // SAFETY: this copy of the library has no interface but the interposed functions, none of which joins a region or
    // takes a robust lock of it.
    unsafe { latchwork::mutex::foreign::delete_thread_key() };
    let wanted = match environment(c"LATCHWORK_MUTEX") {
        None | Some(b"glibc") => return Mode::Glibc,
        Some(b"tp") => Mode::Throughput,
        Some(b"wait-wake") => Mode::WaitWake,
        Some(b"pi") => Mode::Inherit,
        Some(other) => {
            say::line(format_args!(
                "LATCHWORK_MUTEX is {:?}, and not tp, wait-wake, pi or glibc: mutexes stay glibc's",
                core::str::from_utf8(other).unwrap_or("?")
            ));
            return Mode::Glibc;
        }
    };
    let problem = if has_thread_sanitizer() {
        "ThreadSanitizer sees no locks but glibc's"
    } else if !crate::probe::finds_flags() {
        "this glibc lays its condition variables out in an unknown way"
    } else if !crate::thread::prepare() {
        "the place where this glibc keeps a thread's ID was not found"
    } else if wanted == Mode::Inherit && !crate::probe::can_inherit() {
        "this system has no priority-inheritance futexes"
    } else {
        crate::thread::prepare_process();
        return wanted;
    };
    say::line(format_args!("{problem}: mutexes stay glibc's"));
    Mode::Glibc
}

/// Whether the program was built with ThreadSanitizer, which would report accesses under replaced locks as data races.
fn has_thread_sanitizer() -> bool {
    // SAFETY: the name ends in NUL.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__tsan_init".as_ptr());
        // Clears the error of a failed look-up, which the program must not see.
        libc::dlerror();
        !found.is_null()
    }
}
