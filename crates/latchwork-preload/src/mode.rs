//! What this process is to use instead of glibc's mutexes, as its environment says.
//!
//! It is read at the first call of any function here, and by this library's constructor at the latest: to find
//! it out takes the loader's lock, which another thread may hold later, in the constructor of a library that
//! it loads, and wait for the mode; and what standard error is can be seen only until the program closes it.
//! (A call may come before: the dynamic linker calls the constructors of other libraries first.) Until the
//! mode is known every call goes on to glibc.
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
/// The thread that finds it out.
static FINDER: AtomicU32 = AtomicU32::new(0);

/// What a lock's word is when it is held and nobody waits: [`HOLDER`] stands for the holder's ID; 0: the mutex is not
/// ours, or it is not known yet whose.
static MARK: AtomicU32 = AtomicU32::new(0);
const HOLDER: u32 = u32::MAX;

/// The calling thread, with the mark that it leaves in locks.
#[derive(Clone, Copy)]
pub(crate) struct Me {
    pub(crate) id: u32,
    pub(crate) mark: u32,
}

/// `None`: mutexes are not ours, or it is not known yet whose.
#[inline(always)]
pub(crate) fn me() -> Option<Me> {
    // Acquire: pairs with the Release in `find`; before that the ID has no meaning.
    let mark = MARK.load(Ordering::Acquire);
    let id = crate::thread::id();
    let mark = if mark == HOLDER { id } else { mark };
    (mark != 0).then_some(Me { id, mark })
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
// SAFETY: a section of pointers to such functions.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[cold]
#[inline(never)]
fn find() -> Mode {
    let me = crate::thread::ask();
    // Relaxed: who is not the finder waits for the mode.
    match FINDER.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => {
            let mode = crate::thread::keeping_errno(prepare);
            let mark = match mode {
                Mode::Glibc => 0,
                Mode::WaitWake => 1,
                Mode::Throughput | Mode::Inherit => HOLDER,
            };
            // After the mode: who has a mark may ask for that.
            MODE.store(mode as u8, Ordering::Release);
            MARK.store(mark, Ordering::Release);
            mode
        }
        // It comes back here from its own preparations.
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
    // SAFETY: this copy of the library has no interface but the interposed functions, none of which joins a region or takes
    // a robust lock of it.
    unsafe { latchwork::mutex::foreign::take_no_key() };
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
    } else if !crate::memory::prepare() {
        "this glibc lays its condition variables out in an unknown way"
    } else if !crate::thread::prepare() {
        "the kernel does not tell where glibc keeps a thread's ID"
    } else if wanted == Mode::Inherit && !crate::memory::can_inherit() {
        "this system has no futexes that inherit priority"
    } else {
        crate::thread::prepare_process();
        return wanted;
    };
    say::line(format_args!("{problem}: mutexes stay glibc's"));
    Mode::Glibc
}

/// Whether the program was built with it: it would take all that is done under locks of ours for races.
fn has_thread_sanitizer() -> bool {
    // SAFETY: a name that ends in NUL.
    unsafe {
        let found = libc::dlsym(libc::RTLD_DEFAULT, c"__tsan_init".as_ptr());
        // That there is none is no error that the program is to be told of.
        libc::dlerror();
        !found.is_null()
    }
}
