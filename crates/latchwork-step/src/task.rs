//! A traced task that is stopped: its registers and its code.
#![allow(unsafe_code)]

use core::ptr;
use libc::user_regs_struct as Registers;
use std::io::{self, Error};

/// A task of which the calling thread is the tracer, by its thread ID.
///
/// Each call needs the task to be stopped; it fails with `ESRCH` if the task runs, or was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task(pub i32);

/// The type of a request, which each C library chooses.
#[cfg(target_env = "musl")]
type Request = libc::c_int;
#[cfg(not(target_env = "musl"))]
type Request = libc::c_uint;

/// A request of the kernel's (<linux/ptrace.h>), which is not known of each C library.
const GET_SYSCALL_INFO: Request = 0x420e;

/// How far a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resume {
    /// To its next signal.
    Run,
    /// To its next entry into a system call, exit from one, or signal.
    ToCall,
    /// For one instruction; a system call is one.
    Step,
}

/// A system call, with its first arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which call.
    pub number: u64,
    /// Its first two arguments.
    pub arguments: [u64; 2],
}

impl Task {
    /// Resumes it, with a signal that it is to receive, or 0.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn resume(self, how: Resume, signal: i32) -> io::Result<()> {
        let request = match how {
            Resume::Run => libc::PTRACE_CONT,
            Resume::ToCall => libc::PTRACE_SYSCALL,
            Resume::Step => libc::PTRACE_SINGLESTEP,
        };
        self.request(request, 0, signal as usize)
    }

    /// Ends the tracing; the task continues.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn detach(self) -> io::Result<()> {
        self.request(libc::PTRACE_DETACH, 0, 0)
    }

    /// Sets options of its tracing: `libc::PTRACE_O_*`.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn set_options(self, options: i32) -> io::Result<()> {
        self.request(libc::PTRACE_SETOPTIONS, 0, options as usize)
    }

    /// What the kernel says of the event at which it is stopped: the ID of a new task, for example.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn event_message(self) -> io::Result<u64> {
        let mut message: libc::c_ulong = 0;
        let place = (&raw mut message).expose_provenance();
        self.request(libc::PTRACE_GETEVENTMSG, 0, place)?;
        Ok(message)
    }

    /// The address of its next instruction.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn address(self) -> io::Result<u64> {
        Ok(*program_counter(&mut self.registers()?))
    }

    /// Lets it go on from another instruction.
    ///
    /// # Errors
    /// If it is not stopped.
    fn set_address(self, address: u64) -> io::Result<()> {
        let mut registers = self.registers()?;
        *program_counter(&mut registers) = address;
        forget_call(&mut registers);
        self.exchange_registers(libc::PTRACE_SETREGSET, &mut registers)
    }

    /// Lets a task that a breakpoint has stopped go on from the instruction that the breakpoint replaced.
    ///
    /// # Errors
    /// If it is not stopped, or by something else.
    pub(crate) fn leave_breakpoint(self, address: u64) -> io::Result<()> {
        // x86-64 has executed the breakpoint.
        let behind = address + u64::from(cfg!(target_arch = "x86_64"));
        let stopped_at = self.address()?;
        if stopped_at != behind {
            return Err(Error::other(format!(
                "a trap at {stopped_at:#x}, which is not the breakpoint at {address:#x}"
            )));
        }
        self.set_address(address)
    }

    /// Its registers, in the order of the kernel's `user_regs_struct`.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn all_registers(self) -> io::Result<Vec<u64>> {
        let registers = self.registers()?;
        let count = size_of_val(&registers) / size_of::<u64>();
        // SAFETY: the structure consists of numbers of 8 bytes.
        Ok(unsafe { core::slice::from_raw_parts((&raw const registers).cast(), count) }.to_vec())
    }

    /// Where the function returns to, of which its next instruction is the first.
    ///
    /// # Errors
    /// If it is not stopped.
    pub(crate) fn return_address(self) -> io::Result<u64> {
        let registers = self.registers()?;
        match return_register(&registers) {
            Some(address) => Ok(address),
            // The call has pushed it.
            None => self.code(stack_pointer(&registers)),
        }
    }

    /// Eight bytes of its code.
    ///
    /// # Errors
    /// If it is not stopped, or nothing is mapped there.
    pub fn code(self, address: u64) -> io::Result<u64> {
        let mut code: u64 = 0;
        // The C library's `ptrace` returns the bytes, so that an error is hard to tell; the system call stores them.
        // SAFETY: reads memory of a stopped tracee, and stores into a local variable.
        let result = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                libc::PTRACE_PEEKTEXT as libc::c_long,
                libc::c_long::from(self.0),
                address,
                &raw mut code,
            )
        };
        match result {
            0 => Ok(code),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Changes eight bytes of its code: in its process, and not in the file.
    ///
    /// # Errors
    /// If it is not stopped, or nothing is mapped there.
    pub fn set_code(self, address: u64, code: u64) -> io::Result<()> {
        self.request(libc::PTRACE_POKETEXT, address as usize, code as usize)
    }

    /// The system call that its next instruction makes, if it is one.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn call_ahead(self) -> io::Result<Option<Call>> {
        let mut registers = self.registers()?;
        // The last bytes of a mapping cannot be read as eight.
        let code = self.code(*program_counter(&mut registers));
        let is_call = code.is_ok_and(is_system_call);
        Ok(is_call.then(|| call_to_make(&registers)))
    }

    /// The system call at whose entry it is stopped, after [`Resume::ToCall`] with `PTRACE_O_TRACESYSGOOD`; `None` at
    /// the exit from one.
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn call_entered(self) -> io::Result<Option<Call>> {
        // struct ptrace_syscall_info: a byte that says where it is stopped; from byte 24 on, at an entry, the number of
        // the call and its arguments.
        let mut info = [0_u64; 11];
        let place = info.as_mut_ptr().expose_provenance();
        self.request(GET_SYSCALL_INFO, size_of_val(&info), place)?;
        const ENTRY: u8 = 1;
        Ok((info[0].to_ne_bytes()[0] == ENTRY).then_some(Call {
            number: info[3],
            arguments: [info[4], info[5]],
        }))
    }

    /// Whether a signal is about to be delivered to it. (If not, its process has stopped.)
    ///
    /// # Errors
    /// If it is not stopped.
    pub fn has_signal(self) -> io::Result<bool> {
        // SAFETY: all-zero is a valid siginfo_t.
        let mut info: libc::siginfo_t = unsafe { core::mem::zeroed() };
        let place = (&raw mut info).expose_provenance();
        match self.request(libc::PTRACE_GETSIGINFO, 0, place) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
            other => other.map(|()| true),
        }
    }

    fn registers(self) -> io::Result<Registers> {
        // SAFETY: all-zero is a valid set of registers.
        let mut registers: Registers = unsafe { core::mem::zeroed() };
        self.exchange_registers(libc::PTRACE_GETREGSET, &mut registers)?;
        Ok(registers)
    }

    fn exchange_registers(self, request: Request, registers: &mut Registers) -> io::Result<()> {
        let mut place = libc::iovec {
            iov_base: ptr::from_mut(registers).cast(),
            iov_len: size_of_val(registers),
        };
        // The registers are read or written at the place described.
        let place = (&raw mut place).expose_provenance();
        self.request(request, libc::NT_PRSTATUS as usize, place)
    }

    fn request(self, request: Request, address: usize, data: usize) -> io::Result<()> {
        // SAFETY: acts on a stopped tracee; if `data` is an address, the caller's variable is there.
        match unsafe { libc::ptrace(request, self.0, address, data) } {
            -1 => Err(Error::last_os_error()),
            _ => Ok(()),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn program_counter(registers: &mut Registers) -> &mut u64 {
    &mut registers.rip
}

#[cfg(target_arch = "aarch64")]
fn program_counter(registers: &mut Registers) -> &mut u64 {
    &mut registers.pc
}

/// Says that the task is in no system call. After a breakpoint a user-mode kernel gives the number 0, and might "restart" that
/// call when it gets the registers back.
#[cfg(target_arch = "x86_64")]
fn forget_call(registers: &mut Registers) {
    registers.orig_rax = u64::MAX;
}

#[cfg(target_arch = "aarch64")]
fn forget_call(_: &mut Registers) {}

/// The register that has the return address, where it is no word on the stack.
#[cfg(target_arch = "x86_64")]
fn return_register(_: &Registers) -> Option<u64> {
    None
}

#[cfg(target_arch = "aarch64")]
fn return_register(registers: &Registers) -> Option<u64> {
    Some(registers.regs[30])
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(registers: &Registers) -> u64 {
    registers.rsp
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(registers: &Registers) -> u64 {
    registers.sp
}

#[cfg(target_arch = "x86_64")]
fn call_to_make(registers: &Registers) -> Call {
    Call {
        number: registers.rax,
        arguments: [registers.rdi, registers.rsi],
    }
}

#[cfg(target_arch = "aarch64")]
fn call_to_make(registers: &Registers) -> Call {
    Call {
        number: registers.regs[8],
        arguments: [registers.regs[0], registers.regs[1]],
    }
}

/// Whether code begins with an instruction that makes a system call.
fn is_system_call(code: u64) -> bool {
    if cfg!(target_arch = "x86_64") {
        // `syscall`, `sysenter`, `int 0x80`.
        [0x050f, 0x340f, 0x80cd].contains(&(code & 0xffff))
    } else {
        code & 0xffff_ffff == 0xd400_0001
    }
}

/// Code that begins with a breakpoint instruction.
pub(crate) fn break_into(code: u64) -> u64 {
    if cfg!(target_arch = "x86_64") {
        code & !0xff | 0xcc
    } else {
        code & !0xffff_ffff | 0xd420_0000
    }
}
