//! Information about files and threads for reports, without allocation.
#![allow(unsafe_code)]

use super::{signals, symbol};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::fmt::{self, Write};
use rustix::fd::{BorrowedFd, FromRawFd, IntoRawFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Result;

/// A path of /proc, or any short one.
struct Path {
    bytes: [u8; 256],
    length: usize,
}

impl Write for Path {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte stays 0.
        let room = self.bytes.len() - 1 - self.length;
        if text.len() > room {
            return Err(fmt::Error);
        }
        self.bytes[self.length..][..text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl Path {
    const EMPTY: Self = Self {
        bytes: [0; 256],
        length: 0,
    };

    fn new(path: fmt::Arguments<'_>) -> Result<Self> {
        let mut this = Self::EMPTY;
        fmt::write(&mut this, path).map_err(|_| rustix::io::Errno::NAMETOOLONG)?;
        Ok(this)
    }

    fn text(&self) -> &str {
        str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    fn as_c_str(&self) -> Result<&CStr> {
        CStr::from_bytes_until_nul(&self.bytes).map_err(|_| rustix::io::Errno::INVAL)
    }
}

/// Reads the beginning of a file of /proc.
pub fn read_beginning<'a>(path: fmt::Arguments<'_>, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let path = Path::new(path).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path.as_c_str().ok()?, flags, Mode::empty()).ok()?;
    let mut count = 0;
    while count < buffer.len() {
        match rustix::io::read(&file, &mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(&buffer[..count])
}

/// The state of a thread, as ps shows it; `None` if the thread does not exist.
pub fn thread_state(process: u32, thread: u32) -> Option<char> {
    let mut buffer = [0; 128];
    let stat = read_beginning(
        format_args!("/proc/{process}/task/{thread}/stat"),
        &mut buffer,
    )?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_end + 2).map(|state| char::from(*state))
}

/// The real-time priority of a thread; 0 if it has none.
pub fn priority_of(thread: u32) -> Option<u8> {
    let mut priority = 0_i32;
    // SAFETY: the kernel writes a `sched_param`, which is one int.
    let result = unsafe { libc::syscall(libc::SYS_sched_getparam, thread, &raw mut priority) };
    (result == 0).then_some(priority as u8)
}

/// Writes `module+offset` of a return address or instruction, where the offset is one in the file, or the bare
/// address if it is in no file. Adds the name of the function in parentheses, if the file has it.
pub fn write_place(process: u32, address: u64, to: &mut impl Write) -> fmt::Result {
    let mut found = false;
    let path = Path::new(format_args!("/proc/{process}/maps"));
    if let Ok(path) = path {
        each_line(&path, |line| {
            let Some(mapping) = Mapping::parse(line) else {
                return false;
            };
            if !(mapping.start..mapping.end).contains(&address) {
                return false;
            }
            if let Some(file) = mapping.file {
                let name = file.rsplit('/').next().unwrap_or(file);
                let offset = address - mapping.start + mapping.offset;
                found = write!(to, "{name}+{offset:#x}").is_ok();
                // A return address may lie behind the end of its function.
                let place = symbol::Place::Code(offset.saturating_sub(1));
                let mut function = Name::EMPTY;
                if let Ok(path) = Path::new(format_args!("{file}"))
                    && let Ok(path) = path.as_c_str()
                    && symbol::write_symbol(path, mapping.inode, place, &mut function).is_some()
                {
                    let _ = write!(to, " ({})", function.text());
                }
            }
            true
        });
    }
    if found {
        return Ok(());
    }
    write!(to, "{address:#x}")
}

/// Writes the module of a static variable and the variable's offset in it; `None` if it is in no module.
pub fn write_static(address: usize, to: &mut impl Write) -> Option<()> {
    let module = Module::around(address as u64)?;
    write!(to, "{}+{:#x}", module.name(), module.behind).ok()
}

/// Writes the module and the symbol of a static variable that has the name given by [`write_static`]; `None` if
/// it has another name, or no symbol.
pub fn write_variable(address: usize, called: &str, to: &mut impl Write) -> Option<()> {
    let (_, behind) = called.rsplit_once("+0x")?;
    let module = Module::around(address as u64)?;
    let is_its_place =
        u64::from_str_radix(behind, 16).ok()? == module.behind && called.starts_with(module.name());
    if !is_its_place {
        return None;
    }
    let mut variable = Name::EMPTY;
    let place = symbol::Place::Variable(module.behind);
    symbol::write_symbol(
        module.path.as_c_str().ok()?,
        module.inode,
        place,
        &mut variable,
    )?;
    write!(to, "{}:{}", module.name(), variable.text()).ok()
}

/// The name of a function or variable.
type Name = Path;

/// The module around an address, from `/proc/self/maps` and not from the loader, whose lock may be held by a
/// task that waits for the caller. Zero-initialised variables are in anonymous memory behind the module's file
/// mappings.
struct Module {
    path: Path,
    inode: u64,
    /// The distance of the address from the module's beginning.
    behind: u64,
}

impl Module {
    fn around(address: u64) -> Option<Self> {
        let maps = Path::new(format_args!("/proc/self/maps")).ok()?;
        let mut path = Path::EMPTY;
        let (mut inode, mut base, mut last_end) = (0, 0, 0);
        let (mut found, mut is_behind) = (false, false);
        each_line(&maps, |line| {
            let Some(mapping) = Mapping::parse(line) else {
                return false;
            };
            is_behind = mapping.file.is_none();
            match mapping.file {
                Some(file) if file.starts_with('/') => {
                    if path.text() != file {
                        path = Path::EMPTY;
                        (base, inode) = (mapping.start, mapping.inode);
                        if path.write_str(file).is_err() {
                            path = Path::EMPTY;
                        }
                    }
                }
                None if mapping.start == last_end && path.length > 0 => {}
                _ => path = Path::EMPTY,
            }
            last_end = mapping.end;
            found = (mapping.start..mapping.end).contains(&address);
            found
        });
        if !found || path.length == 0 || is_memory(path.text()) {
            return None;
        }
        // Unrelated memory may be mapped right behind the module.
        if is_behind && module_end(base).is_some_and(|end| address >= end) {
            return None;
        }
        Some(Self {
            path,
            inode,
            behind: address - base,
        })
    }

    fn name(&self) -> &str {
        self.path.text().rsplit('/').next().unwrap_or_default()
    }
}

/// The end of the segments of a module that begins at `base`. (Read through a file, since the module may be
/// unloaded meanwhile.)
fn module_end(base: u64) -> Option<u64> {
    let path = Path::new(format_args!("/proc/self/mem")).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let memory = rustix::fs::openat(CWD, path.as_c_str().ok()?, flags, Mode::empty()).ok()?;
    let read = |address: u64, to: &mut [u8]| {
        let read = rustix::io::pread(&memory, &mut *to, address);
        read.is_ok_and(|count| count == to.len()).then_some(())
    };
    let mut head = [0; symbol::HEADER];
    read(base, &mut head)?;
    let (table, count) = (symbol::word(&head, 32)?, symbol::half(&head, 56)?);
    if !head.starts_with(symbol::MAGIC) {
        return None;
    }
    let page = rustix::param::page_size() as u64;
    let (mut first, mut end) = (None, 0);
    for index in 0..u64::from(count) {
        let mut segment = [0; symbol::SEGMENT];
        let at = base.checked_add(table)?;
        read(
            at.checked_add(index * symbol::SEGMENT as u64)?,
            &mut segment,
        )?;
        if symbol::narrow(&segment, 0)? == libc::PT_LOAD {
            let (begin, length) = (symbol::word(&segment, 16)?, symbol::word(&segment, 40)?);
            first.get_or_insert(begin - begin % page);
            end = begin.checked_add(length)?.max(end);
        }
    }
    // The mapping ends with a whole page.
    base.checked_add(end.checked_sub(first?)?)?
        .checked_next_multiple_of(page)
}

/// Whether a path is that of shared memory and not of a module.
fn is_memory(path: &str) -> bool {
    ["/memfd:", "/dev/shm/", "/dev/zero", "/SYSV"]
        .iter()
        .any(|start| path.starts_with(start))
}

/// Whether an address of this process is in memory that other processes may have mapped, too.
pub fn is_shared_memory(address: u64) -> bool {
    let mut is_shared = false;
    if let Ok(maps) = Path::new(format_args!("/proc/self/maps")) {
        each_line(&maps, |line| {
            let mapping = Mapping::parse(line).filter(|mapping| {
                let range = mapping.start..mapping.end;
                range.contains(&address)
            });
            is_shared |= mapping.as_ref().is_some_and(|mapping| mapping.is_shared);
            mapping.is_some()
        });
    }
    is_shared
}

/// Whether memory at an address of this process keeps its purpose unless a call reports a change: a module's
/// variables, or, with `heap`, the C library's heap.
pub fn keeps_what_it_is(address: u64, heap: bool) -> bool {
    if Module::around(address).is_some() {
        return true;
    }
    let mut is_heap = false;
    if let Ok(maps) = Path::new(format_args!("/proc/self/maps")).and_then(|maps| match heap {
        true => Ok(maps),
        false => Err(rustix::io::Errno::NOENT),
    }) {
        each_line(&maps, |line| {
            let mapping = Mapping::parse(line).filter(|mapping| {
                let range = mapping.start..mapping.end;
                range.contains(&address)
            });
            is_heap |= mapping
                .as_ref()
                .is_some_and(|mapping| mapping.file == Some("[heap]"));
            mapping.is_some()
        });
    }
    is_heap
}

/// The word on which a thread of this process sleeps, if it sleeps on one.
pub fn sleeps_at(thread: u32) -> Option<usize> {
    let mut buffer = [0; 64];
    let call = read_beginning(
        format_args!("/proc/self/task/{thread}/syscall"),
        &mut buffer,
    )?;
    let mut words = str::from_utf8(call).ok()?.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let word = words.next()?.strip_prefix("0x")?;
    (number == libc::SYS_futex).then(|| usize::from_str_radix(word, 16).ok())?
}

/// The name of an error number that reports a wrong call.
pub const fn error_name(error: i32) -> &'static str {
    match error {
        libc::EINVAL => "EINVAL",
        libc::EPERM => "EPERM",
        libc::EDEADLK => "EDEADLK",
        _ => "an error",
    }
}

/// A line of `/proc/PID/maps`.
struct Mapping<'a> {
    start: u64,
    end: u64,
    is_shared: bool,
    offset: u64,
    inode: u64,
    file: Option<&'a str>,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let rights = fields.next()?;
        let offset = fields.next().and_then(hex)?;
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            is_shared: rights.ends_with('s'),
            offset,
            inode: fields.nth(1)?.parse().ok()?,
            file: fields.next(),
        })
    }
}

/// Calls `is_last` for the lines of a file until it returns true.
fn each_line(path: &Path, mut is_last: impl FnMut(&str) -> bool) {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = path
        .as_c_str()
        .and_then(|path| rustix::fs::openat(CWD, path, flags, Mode::empty()))
    else {
        return;
    };
    let mut buffer = [0; 1024];
    let mut filled = 0;
    while let Ok(more) = rustix::io::read(&file, &mut buffer[filled..]) {
        filled += more;
        let mut from = 0;
        while let Some(length) = buffer[from..filled].iter().position(|byte| *byte == b'\n') {
            if str::from_utf8(&buffer[from..from + length]).is_ok_and(&mut is_last) {
                return;
            }
            from += length + 1;
        }
        buffer.copy_within(from..filled, 0);
        filled -= from;
        if more == 0 || filled == buffer.len() {
            return;
        }
    }
}

/// Calls `read` with the value of an environment variable, if it is set and valid text. Not in a program that
/// runs with other rights than its caller's, since the caller could make it write files.
pub fn with_variable<R>(name: &CStr, read: impl FnOnce(&str) -> R) -> Option<R> {
    // SAFETY: the name is a C string. (A program that changes its environment while another thread reads it has
    // a race of its own.)
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: reads what the kernel passed to the process.
    let is_privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if value.is_null() || is_privileged {
        return None;
    }
    // SAFETY: not null, hence a C string; it is read before this thread can change the environment.
    let value = unsafe { CStr::from_ptr(value.cast::<c_char>()) };
    value.to_str().ok().map(read)
}

/// Opens a file for appending, and creates it if it does not exist. The descriptor stays open.
pub fn append_to(path: &str) -> Option<u32> {
    let mut room = [0; libc::PATH_MAX as usize];
    room.get_mut(..path.len())?.copy_from_slice(path.as_bytes());
    let path = CStr::from_bytes_until_nul(&room).ok()?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(CWD, path, flags, mode).ok()?;
    let high = rustix::io::fcntl_dupfd_cloexec(&file, HIGH);
    Some(high.unwrap_or(file).into_raw_fd().cast_unsigned())
}

/// Descriptors from this number on do not collide with a program's own.
const HIGH: i32 = 900;

/// Duplicates an open descriptor to a number that does not collide with the program's; `None` if nothing is
/// open there, or the process may not have so many. The duplicate stays open.
pub fn duplicate(descriptor: u32) -> Option<u32> {
    // SAFETY: the borrow is not kept; the call fails if nothing is open there.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) };
    let high = rustix::io::fcntl_dupfd_cloexec(file, HIGH).ok()?;
    Some(high.into_raw_fd().cast_unsigned())
}

/// Writes the current directory and a slash; returns the number of bytes, or 0 if there is no such path or no
/// room.
pub fn write_directory(room: &mut [u8]) -> usize {
    // SAFETY: `getcwd` writes within the room, with a NUL at the end.
    let written = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
    let length = room.iter().position(|byte| *byte == 0);
    match length {
        // A directory outside the process's root does not begin with a slash.
        Some(length) if !written.is_null() && room[0] == b'/' => {
            room[length] = b'/';
            length + 1
        }
        _ => 0,
    }
}

/// The device and inode of an open file; zeros if none is open there.
pub fn identity(descriptor: u32) -> [u64; 2] {
    // SAFETY: the borrow is not kept; the call fails if nothing is open there.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) };
    rustix::fs::fstat(file).map_or([0; 2], |found| [found.st_dev, found.st_ino])
}

/// Closes a descriptor of [`append_to`].
pub fn close(descriptor: u32) {
    // SAFETY: opened by `append_to`, and not used any more.
    drop(unsafe { rustix::fd::OwnedFd::from_raw_fd(descriptor.cast_signed()) });
}

/// Writes the bytes, as far as possible; returns how many were written. (A pipe without readers, or a limit for
/// file sizes, must not end the program by a signal.)
pub fn write(descriptor: u32, bytes: &[u8]) -> usize {
    use rustix::io::Errno;
    let mut left = bytes;
    signals::without_those_of_writes(|| {
        let result = write_all(descriptor, &mut left);
        matches!(result, Err(Errno::PIPE | Errno::FBIG))
    });
    bytes.len() - left.len()
}

fn write_all(descriptor: u32, bytes: &mut &[u8]) -> Result<()> {
    // SAFETY: a descriptor's number. If nothing is open there, the write fails; if the program has opened
    // something else there, the write goes there. Memory is not touched.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor.cast_signed()) };
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(count) => *bytes = &bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Stores the return addresses on the calling thread's stack, innermost first; returns their number.
pub fn stack(frames: &mut [u64]) -> usize {
    struct Walk<'a> {
        frames: &'a mut [u64],
        count: usize,
    }

    #[repr(C)]
    struct Context([u8; 0]);

    unsafe extern "C" {
        fn _Unwind_Backtrace(
            trace: extern "C" fn(*mut Context, *mut c_void) -> c_int,
            argument: *mut c_void,
        ) -> c_int;
        fn _Unwind_GetIP(context: *mut Context) -> usize;
    }

    extern "C" fn note(context: *mut Context, argument: *mut c_void) -> c_int {
        const GO_ON: c_int = 0;
        const STOP: c_int = 4;
        // SAFETY: the argument is the pointer that `_Unwind_Backtrace` was given below.
        let walk = unsafe { &mut *argument.cast::<Walk<'_>>() };
        let Some(frame) = walk.frames.get_mut(walk.count) else {
            return STOP;
        };
        // SAFETY: the context is the unwinder's, during its call.
        *frame = unsafe { _Unwind_GetIP(context) } as u64;
        walk.count += 1;
        GO_ON
    }

    let mut walk = Walk { frames, count: 0 };
    // SAFETY: `_Unwind_Backtrace` is the C++ runtime's, which Rust programs link; it calls only `note`, with a
    // pointer that lives until it returns.
    unsafe { _Unwind_Backtrace(note, (&raw mut walk).cast()) };
    walk.count
}
