//! System calls that fail, as under a kernel or a sandbox that does not have them.
#![allow(unsafe_code)]

/// From now on a system call fails with `error` for the calling thread, and for the threads and processes that it starts.
///
/// # Panics
/// If the kernel refuses the filter.
pub fn refuse(call: libc::c_long, error: i32) {
    let [load, compare, give] = [
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    ];
    let step = |code: u32, jf, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf,
        k,
    };
    // The number of the call is the first field of what a filter sees.
    let mut filter = [
        step(load, 0, 0),
        step(compare, 1, call as u32),
        step(give, 0, libc::SECCOMP_RET_ERRNO | error as u32),
        step(give, 0, libc::SECCOMP_RET_ALLOW),
    ];
    install(&mut filter);
}

/// From now on a seccomp filter decides about the system calls of the calling thread, and of the threads and processes that it
/// starts.
///
/// # Panics
/// If the kernel refuses the filter.
pub fn install(filter: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the filter.
    let results = unsafe {
        [
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ),
        ]
    };
    assert_eq!(results, [0; 2], "{}", std::io::Error::last_os_error());
}
