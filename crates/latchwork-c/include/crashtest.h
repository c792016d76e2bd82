/*
 * Marks for `latchwork crashtest`, which kills an operation of a program at each of its instructions, and has the
 * program check what is left. docs/crashtest.md shows how to use it, latchwork(1) all options.
 *
 *	lw_crashtest_begin();
 *	... the operation ...
 *	lw_crashtest_end();
 *
 * A mark is the system call getpid, with two arguments that the kernel ignores, and that the command recognises. Without
 * the command a mark has no effect, and takes as long as a getpid. There is no library to link. A mark does not change
 * errno, and the compiler moves no access to memory across it.
 *
 * All functions may be called by any thread, in a signal handler, and in a child after fork. None fails.
 */
#ifndef LATCHWORK_CRASHTEST_H
#define LATCHWORK_CRASHTEST_H

#if !defined __linux__ || !(defined __x86_64__ && defined __LP64__ || defined __aarch64__)
#error "crashtest.h is for 64-bit Linux on x86-64 and aarch64"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* For other languages: getpid (39 on x86-64, 172 on aarch64) with the arguments 0x6c77637261736874 and `which`. */
static inline void lw_crashtest_mark(long which)
{
#ifdef __x86_64__
	long result;
	__asm__ __volatile__("syscall"
			     : "=a"(result)
			     : "0"(39L), "D"(0x6c77637261736874L), "S"(which)
			     : "rcx", "r11", "memory", "cc");
	(void)result;
#else
	register long number __asm__("x8") = 172;
	register long first __asm__("x0") = 0x6c77637261736874L;
	register long second __asm__("x1") = which;
	__asm__ __volatile__("svc #0" : "+r"(first) : "r"(number), "r"(second) : "memory", "cc");
#endif
}

/* The operation that is to be killed begins here. The process that comes to this mark first is the one. */
static inline void lw_crashtest_begin(void) { lw_crashtest_mark(1); }

/* It ends here. */
static inline void lw_crashtest_end(void) { lw_crashtest_mark(2); }

/* For `latchwork crashtest --recoverer`: the repair of what the killed operation has left begins and ends here. */
static inline void lw_crashtest_recovery_begin(void) { lw_crashtest_mark(3); }
static inline void lw_crashtest_recovery_end(void) { lw_crashtest_mark(4); }

#ifdef __cplusplus
}
#endif

#endif
