/* Time in the classic interface: its ticks are those of the region. */
#include "classic.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

uint64_t latchwork_classic_tick(void);

static uint64_t microseconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

rtems_status_code rtems_task_wake_after(rtems_interval ticks)
{
	uint64_t end, tick = latchwork_classic_tick();
	struct timespec at;
	if (ticks == RTEMS_YIELD_PROCESSOR) {
		pthread_testcancel();
		sched_yield();
		return RTEMS_SUCCESSFUL;
	}
	if (tick == 0)
		return RTEMS_INTERNAL_ERROR;
	end = microseconds() + ticks * tick;
	at.tv_sec = (time_t)(end / 1000000);
	at.tv_nsec = (long)(end % 1000000) * 1000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
	return RTEMS_SUCCESSFUL;
}

rtems_interval rtems_clock_get_ticks_per_second(void)
{
	uint64_t tick = latchwork_classic_tick();
	return tick == 0 ? 0 : (rtems_interval)(1000000 / tick);
}

rtems_interval rtems_clock_get_ticks_since_boot(void)
{
	uint64_t tick = latchwork_classic_tick();
	return tick == 0 ? 0 : (rtems_interval)(microseconds() / tick);
}

rtems_interval lw_classic_ticks(uint64_t milliseconds)
{
	uint64_t tick = latchwork_classic_tick(), ticks;
	if (tick == 0)
		return 0;
	if (__builtin_mul_overflow(milliseconds, 1000, &ticks) || __builtin_add_overflow(ticks, tick - 1, &ticks))
		return UINT32_MAX;
	ticks /= tick;
	return ticks > UINT32_MAX ? UINT32_MAX : (rtems_interval)ticks;
}
