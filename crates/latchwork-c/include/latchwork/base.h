/* Part of latchwork.h: definitions that all its parts need. */
#ifndef LATCHWORK_BASE_H
#define LATCHWORK_BASE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* musl defines no macro of its own; <errno.h> has defined those of the others. */
#if defined(__linux__) && !defined(__GLIBC__) && !defined(__UCLIBC__) && !defined(__BIONIC__)
#define LW__MUSL 1
#endif
#if !(defined(__GLIBC__) || defined(LW__MUSL)) || !defined(__LP64__) ||                               \
	!(defined(__x86_64__) || defined(__aarch64__))
#error "Latchwork's C interface is for glibc or musl on 64-bit x86 or Arm"
#endif

#define LW_VERSION_MAJOR 0
#define LW_VERSION_MINOR 1
#define LW_VERSION_PATCH 0

#ifdef __cplusplus
#define LW__ASSERT(what, text) static_assert(what, text)
#define LW__BEGIN extern "C" {
#define LW__END }
#else
#define LW__ASSERT(what, text) _Static_assert(what, text)
#define LW__BEGIN
#define LW__END
#endif

#ifndef __cplusplus
/* An expression that compiles if the condition holds. */
#define LW__ONLY_IF(condition, text)                                                                  \
	((void)sizeof(struct {                                                                        \
		_Static_assert(condition, text);                                                      \
		int lw_;                                                                              \
	}))
/* For arguments of types that do not belong together: the assertion has given the reason. */
static inline int lw__wrong_type(const void *object, ...)
{
	(void)object;
	return 0;
}
#endif

/* The library itself defines this, to have each inline function as a symbol as well. */
#ifdef __CHECKER__
#define LW_INLINE extern
#elif !defined(LW_INLINE)
#define LW_INLINE inline
#endif

/*
 * Static analysis. Clang: -Wthread-safety. Sparse: contexts. Define LW_NO_ANALYSIS to disable it.
 */
#if defined(__clang__) && !defined(LW_NO_ANALYSIS)
#define LW__ATTRIBUTE(x) __attribute__((x))
#else
#define LW__ATTRIBUTE(x)
#endif
#if defined(__CHECKER__) && !defined(LW_NO_ANALYSIS)
#define LW__CONTEXT(x, in, out) __attribute__((context(x, in, out)))
#else
#define LW__CONTEXT(x, in, out)
#endif
#define LW_CAPABILITY(name) LW__ATTRIBUTE(capability(name))
#define LW_GUARDED_BY(lock) LW__ATTRIBUTE(guarded_by(lock))
#define LW_PT_GUARDED_BY(lock) LW__ATTRIBUTE(pt_guarded_by(lock))
#define LW_ACQUIRE(lock) LW__ATTRIBUTE(acquire_capability(lock)) LW__CONTEXT(lock, 0, 1)
#define LW_ACQUIRE_SHARED(lock) LW__ATTRIBUTE(acquire_shared_capability(lock)) LW__CONTEXT(lock, 0, 1)
#define LW_TRY_ACQUIRE(lock) LW__ATTRIBUTE(try_acquire_capability(0, lock))
#define LW_TRY_ACQUIRE_SHARED(lock) LW__ATTRIBUTE(try_acquire_shared_capability(0, lock))
#define LW_RELEASE(lock) LW__ATTRIBUTE(release_capability(lock)) LW__CONTEXT(lock, 1, 0)
#define LW_RELEASE_SHARED(lock) LW__ATTRIBUTE(release_shared_capability(lock)) LW__CONTEXT(lock, 1, 0)
#define LW_RELEASE_ANY(lock) LW__ATTRIBUTE(release_generic_capability(lock)) LW__CONTEXT(lock, 1, 0)
#define LW_REQUIRES(...) LW__ATTRIBUTE(requires_capability(__VA_ARGS__))
#define LW_EXCLUDES(...) LW__ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define LW_UNCHECKED LW__ATTRIBUTE(no_thread_safety_analysis)

#endif
