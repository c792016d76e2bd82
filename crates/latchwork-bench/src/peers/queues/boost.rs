//! Boost's message queue in shared memory, by a C++ file that is compiled when it is first needed.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, mem};

use super::{CAPACITY, MessageQueue, Receives, Sends};

type Make = unsafe extern "C" fn(*const c_char, usize, usize) -> *mut c_void;
type Unmake = unsafe extern "C" fn(*mut c_void);
type Send = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> isize;
type Receive = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> isize;

/// The functions of the C++ file.
struct Functions {
    make: Make,
    unmake: Unmake,
    send: Send,
    receive: Receive,
}

const SOURCE: &str = include_str!("boost.cpp");

/// `boost::interprocess::message_queue`.
pub(crate) struct Boost {
    queue: NonNull<c_void>,
    functions: &'static Functions,
}

// SAFETY: the queue is made for use by many tasks.
unsafe impl std::marker::Send for Boost {}
// SAFETY: the queue is made for use by many tasks.
unsafe impl Sync for Boost {}

fn functions() -> io::Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    let made = FUNCTIONS.get_or_init(|| build().map_err(|error| error.to_string()));
    made.as_ref().map_err(|error| io::Error::other(&**error))
}

/// Compiles the file in a temporary directory, and loads the result.
fn build() -> io::Result<Functions> {
    let directory = tempfile::Builder::new()
        .prefix("latchwork-bench-")
        .tempdir()?;
    let library = directory.path().join("boost.so");
    compile(&library).and_then(|()| load(&library))
}

fn compile(library: &Path) -> io::Result<()> {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut child = Command::new(compiler)
        .args(["-x", "c++", "-O2", "-shared", "-fPIC", "-o"])
        .arg(library)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::other(format!("no C++ compiler (package g++): {error}")))?;
    if let Some(mut input) = child.stdin.take() {
        // An error is ignored: a compiler that ends early reports the reason.
        let _ = input.write_all(SOURCE.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let why = text.lines().find(|line| line.contains("error"));
    Err(io::Error::other(
        why.unwrap_or("the C++ compiler failed").to_owned(),
    ))
}

fn load(library: &Path) -> io::Result<Functions> {
    let path = CString::new(library.as_os_str().as_encoded_bytes())?;
    // SAFETY: the name ends in zero; the library's initialisers do not affect this program's data. It stays loaded.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    let symbol = |name: &CStr| {
        // SAFETY: an open handle, or null, which is refused; the name ends in zero.
        let symbol = (!library.is_null()).then(|| unsafe { libc::dlsym(library, name.as_ptr()) });
        symbol
            .filter(|symbol| !symbol.is_null())
            .ok_or_else(|| io::Error::other("what was compiled cannot be loaded"))
    };
    // SAFETY: the file has functions of these types under these names.
    unsafe {
        Ok(Functions {
            make: mem::transmute::<*mut c_void, Make>(symbol(c"mail_make")?),
            unmake: mem::transmute::<*mut c_void, Unmake>(symbol(c"mail_unmake")?),
            send: mem::transmute::<*mut c_void, Send>(symbol(c"mail_send")?),
            receive: mem::transmute::<*mut c_void, Receive>(symbol(c"mail_receive")?),
        })
    }
}

impl MessageQueue for Boost {
    type Sender<'a> = &'a Self;
    type Receiver<'a> = &'a Self;

    const PACKAGE: Option<&'static str> = Some("libboost-dev");

    fn make(size: usize) -> io::Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let functions = functions()?;
        // Relaxed: only the number's uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("latchwork-bench-{}-{number}", std::process::id()))?;
        // SAFETY: the name outlives the call.
        let queue = unsafe { (functions.make)(name.as_ptr(), CAPACITY, size) };
        let queue =
            NonNull::new(queue).ok_or_else(|| io::Error::other("boost makes no message queue"))?;
        Ok(Self { queue, functions })
    }

    fn sender(&self) -> io::Result<&Self> {
        Ok(self)
    }

    fn receiver(&self) -> io::Result<&Self> {
        Ok(self)
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        // SAFETY: `make` made it, and it is not used any more.
        unsafe { (self.functions.unmake)(self.queue.as_ptr()) };
    }
}

fn check(bytes: isize) -> io::Result<()> {
    if bytes < 0 {
        return Err(io::Error::other("boost's message queue failed"));
    }
    Ok(())
}

impl Sends for &Boost {
    fn send(&mut self, message: &[u8], times: u64) -> io::Result<()> {
        let (send, queue) = (self.functions.send, self.queue.as_ptr());
        // SAFETY: the queue exists, and so does the message.
        (0..times)
            .try_for_each(|_| check(unsafe { send(queue, message.as_ptr().cast(), message.len()) }))
    }
}

impl Receives for &Boost {
    fn receive(&mut self, buffer: &mut [u8], times: u64) -> io::Result<()> {
        let (receive, queue) = (self.functions.receive, self.queue.as_ptr());
        (0..times).try_for_each(|_| {
            // SAFETY: the queue exists, and the buffer has the length that is passed.
            check(unsafe { receive(queue, buffer.as_mut_ptr().cast(), buffer.len()) })
        })
    }
}
