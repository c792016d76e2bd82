//! `struct mutex_debug` of `include/migrate.h`: a mutex that reports its use to the checker.
//!
//! The lock itself is the plain one, four bytes; rules, deadlocks, reports and settings are the checker's, as for locks
//! in Rust ([`latchwork::check`]). The fields here hold what the checker cannot know of a lock that a static
//! initialiser made: its address, its name, and that it was made at all.
//!
//! | `state` | meaning |
//! | --- | --- |
//! | [`KNOWN`] | it was reported to the checker |
//! | [`NOBODYS`] | it was made locked, without an owner: the first task that tries may release it |
#![allow(unsafe_code)]

use crate::how_of;
use crate::lock::at;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::{self, Write as _};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use latchwork::check::hook::{self, Kind, Lock, Mode, NoLock, Site, Verdict};
use latchwork::check::{self, BoardReader, Finding, Rule};
use latchwork::foreign::{Blocking, ForeignLock, Undisturbed};
use latchwork::mutex::WaitWake;
use latchwork::time::Deadline;
use libc::{EBUSY, EDEADLK, EINVAL, ETIMEDOUT};
use std::io::Write as _;

const MAGIC: u32 = 0x6d75_7478;
const KNOWN: u32 = 1;
const NOBODYS: u32 = 2;

/// `LW__TRY`, `LW__INTERRUPTIBLE`.
const TRY: u32 = 1;
const INTERRUPTIBLE: u32 = 3;

/// `struct mutex_debug`.
#[repr(C)]
struct Debug {
    lock: WaitWake,
    magic: AtomicU32,
    state: AtomicU32,
    line: u32,
    this: *const Self,
    name: *const c_char,
    file: *const c_char,
}

const _: () = assert!(size_of::<Debug>() == 40 && align_of::<Debug>() == 8);

/// Held while a new lock is reported to the checker. Each process has its own.
static INTRODUCING: AtomicPtr<Own> = AtomicPtr::new(ptr::null_mut());

/// `struct latchwork_own`.
#[repr(C)]
struct Own {
    made_by: u64,
    lock: WaitWake,
    first: *mut c_void,
}

unsafe extern "C" {
    fn latchwork_own(place: *const AtomicPtr<Own>) -> *const Own;
}

/// Runs `report` while no other thread does. (Without memory for the lock, others may.)
fn alone(report: impl FnOnce()) {
    // SAFETY: the variable has the layout of a pointer. What the call returns is never freed.
    let own = unsafe { latchwork_own(&raw const INTRODUCING).as_ref() };
    let is_locked = own.is_some_and(|own| own.lock.lock(Blocking::Forever) == 0);
    report();
    if let Some(own) = own.filter(|_| is_locked) {
        // SAFETY: this thread has locked it.
        unsafe { ForeignLock::unlock(&own.lock) };
    }
}

/// A C string of the program's; empty if it is null or not UTF-8.
///
/// # Safety
/// If the pointer is not null, the string ends with a zero byte and does not change while the result is used.
unsafe fn text<'a>(text: *const c_char) -> &'a str {
    if text.is_null() {
        return "";
    }
    // SAFETY: by the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("")
}

/// # Safety
/// As for [`text`].
unsafe fn place(file: *const c_char, line: u32) -> Site {
    // SAFETY: by the caller's contract.
    hook::source_line(unsafe { text(file) }, line)
}

impl Debug {
    fn as_lock(&self) -> Lock {
        Lock::new(ptr::from_ref(self).addr(), Kind::Mutex)
    }

    /// Checks its magic number and address, before each use.
    #[inline]
    fn verify(&self, site: Site) {
        // Relaxed, in all of this file: each word is complete by itself.
        let is_made = self.magic.load(Ordering::Relaxed) == MAGIC && ptr::eq(self.this, self);
        if !is_made {
            self.complain(site);
        } else if self.state.load(Ordering::Relaxed) & KNOWN == 0 {
            self.introduce();
        }
    }

    #[cold]
    fn complain(&self, site: Site) {
        let what = match self.magic.load(Ordering::Relaxed) {
            MAGIC => NoLock::Copied,
            0 => NoLock::Zeroed,
            _ => NoLock::Overwritten,
        };
        hook::uses_no_lock(self.as_lock(), what, site);
    }

    /// Reports a lock that a static initialiser made to the checker.
    #[cold]
    fn introduce(&self) {
        alone(|| {
            if self.state.load(Ordering::Relaxed) & KNOWN == 0 {
                // SAFETY: string literals of the program, since the interface made the lock.
                let (name, site) = unsafe { (text(self.name), place(self.file, self.line)) };
                // The initialiser's argument was the lock's address, written with `&`.
                hook::initialised(self.as_lock(), Some(name.trim_start_matches('&')), site);
                self.state.fetch_or(KNOWN, Ordering::Relaxed);
            }
        });
    }

    fn lock(&self, how: u32, site: Site) -> c_int {
        self.verify(site);
        let me = self.as_lock();
        if ForeignLock::lock(&self.lock, Blocking::Try) == 0 {
            let how = if how == TRY {
                hook::How::Tried
            } else {
                hook::How::Locked
            };
            hook::taken(me, Mode::Exclusive, how, site);
            return 0;
        }
        if how == TRY {
            return EBUSY;
        }
        let verdict = hook::wants(me, Mode::Exclusive, false, site);
        // A call that cannot fail waits, as it would without the checker.
        if verdict == Verdict::Deadlock && how == INTERRUPTIBLE && check::refuses() {
            hook::gave_up(me);
            return EDEADLK;
        }
        loop {
            let look = hook::next_report_time();
            let wait = match (how, look) {
                (INTERRUPTIBLE, look) => {
                    Blocking::Interruptible(look.map(Deadline::from_nanoseconds))
                }
                (_, Some(look)) => Blocking::Until(Deadline::from_nanoseconds(look)),
                (how, None) => how_of(how, 0),
            };
            match ForeignLock::lock(&self.lock, wait) {
                0 => {
                    hook::taken(me, Mode::Exclusive, hook::How::Locked, site);
                    return 0;
                }
                ETIMEDOUT if look.is_some() => hook::still_waits(),
                error => {
                    hook::gave_up(me);
                    return error;
                }
            }
        }
    }

    fn unlock(&self, site: Site) {
        self.verify(site);
        let state = self.state.load(Ordering::Relaxed);
        let was_nobodys = state & NOBODYS != 0
            && self.state.fetch_and(!NOBODYS, Ordering::Relaxed) & NOBODYS != 0;
        if was_nobodys || hook::releasing(self.as_lock(), site) != Verdict::NotHeld {
            // SAFETY: the caller holds it, or releases it as it would without the checker, which has reported that.
            unsafe { ForeignLock::unlock(&self.lock) };
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mutex_debug_init(
    mutex: *mut Debug,
    name: *const c_char,
    locked: c_int,
    file: *const c_char,
    line: u32,
) {
    let Some(place) = ptr::NonNull::new(mutex).filter(|mutex| mutex.is_aligned()) else {
        return;
    };
    let fresh = Debug {
        lock: WaitWake::new(),
        magic: AtomicU32::new(MAGIC),
        state: AtomicU32::new(if locked == 0 { 0 } else { NOBODYS }),
        line,
        this: mutex,
        name,
        file,
    };
    if locked != 0 {
        ForeignLock::lock(&fresh.lock, Blocking::Try);
    }
    // SAFETY: the caller's memory, large enough for this type. The checker reports an overwritten lock that is held.
    unsafe {
        place.write(fresh);
        place.as_ref().introduce();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mutex_debug_sema_init(
    mutex: *mut Debug,
    name: *const c_char,
    count: c_int,
    file: *const c_char,
    line: u32,
) {
    // SAFETY: by the caller's contract, here and below.
    unsafe {
        mutex_debug_init(mutex, name, (count == 0).into(), file, line);
        if count != 0 && count != 1 {
            let why = "uses a count other than 0 and 1 to initialise";
            let lock = Lock::new(mutex.addr(), Kind::Mutex);
            hook::not_a_lock(lock, Rule::InitialisedByInterface, why, place(file, line));
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mutex_debug_lock(
    mutex: *mut Debug,
    how: u32,
    file: *const c_char,
    line: u32,
) -> c_int {
    // SAFETY: by the caller's contract; only that the memory can be read is relied on.
    unsafe { at::<Debug>(mutex.cast()).map_or(EINVAL, |mutex| mutex.lock(how, place(file, line))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mutex_debug_unlock(mutex: *mut Debug, file: *const c_char, line: u32) {
    // SAFETY: by the caller's contract; only that the memory can be read is relied on.
    unsafe {
        if let Some(mutex) = at::<Debug>(mutex.cast()) {
            mutex.unlock(place(file, line));
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mutex_debug_is_locked(mutex: *const Debug) -> c_int {
    // SAFETY: by the caller's contract; only that the memory can be read is relied on.
    unsafe { at::<Debug>(mutex.cast()) }
        .is_some_and(|mutex| mutex.lock.is_locked())
        .into()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mutex_debug_freed(
    memory: *const c_void,
    bytes: usize,
    file: *const c_char,
    line: u32,
) {
    let start = memory.addr();
    // SAFETY: the file name is a string literal of the caller's.
    hook::freed(start..start.saturating_add(bytes), unsafe {
        place(file, line)
    });
}

/// The handler that [`mutex_debug_on_violation`] set.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// A C string of fixed capacity; longer text is cut off.
struct ReportText {
    bytes: [u8; 4096],
    length: usize,
}

impl fmt::Write for ReportText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..4095];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        Ok(())
    }
}

fn report(finding: &Finding) {
    // Acquire: pairs with the Release in `mutex_debug_on_violation`.
    let handler = HANDLER.load(Ordering::Acquire);
    if handler.is_null() {
        return;
    }
    let mut text = ReportText {
        bytes: [0; 4096],
        length: 0,
    };
    let _ = write!(text, "{finding}");
    // SAFETY: only functions of this type are stored there.
    unsafe {
        let handler: unsafe extern "C" fn(*const c_char) = core::mem::transmute(handler);
        handler(text.bytes.as_ptr().cast());
    }
}

#[unsafe(no_mangle)]
extern "C" fn mutex_debug_on_violation(handler: Option<unsafe extern "C" fn(*const c_char)>) {
    let address = handler.map_or(ptr::null_mut(), |handler| handler as *mut ());
    // Release: see `report`.
    HANDLER.store(address, Ordering::Release);
    check::set_reporter(handler.map(|_| report as fn(&Finding)));
    check::set_text(handler.is_none());
}

#[unsafe(no_mangle)]
extern "C" fn mutex_debug_show_held() {
    let _undisturbed = Undisturbed::begin();
    let Some(board) = BoardReader::of(std::process::id()) else {
        return;
    };
    for task in board.tasks() {
        for held in &task.held {
            let address = held.lock.address() as u64;
            let name = board.lock(address).and_then(|lock| lock.name);
            let name = name.unwrap_or_else(|| format!("{address:#x}"));
            let place = board.text(held.site.raw());
            let place = place.unwrap_or_else(|| format!("{:#x}", held.site.raw()));
            let (who, thread) = (task.view.name(), task.view.thread);
            let kind = held.lock.kind.name();
            // An error is ignored: the program may have closed standard error.
            let _ = writeln!(
                std::io::stderr(),
                "latchwork: held: {kind} {name}, by {who} ({thread}), taken {place}"
            );
        }
    }
}
