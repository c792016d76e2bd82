/* Every inline function of the header, as a symbol: for callers that do not inline, and for other languages. */
#define LW_INLINE extern inline
#define LW_NO_GENERIC
#include "latchwork.h"
#include "latchwork/region.h"

/* Functions that earlier headers called: the library never drops a symbol. */
int lw_cond_has_waiters(const lw_cond_t *cond);
int lw_cond_has_waiters(const lw_cond_t *cond)
{
	return LW__HAS_WAITERS(cond);
}
int lw_shared_cond_has_waiters(const lw_shared_cond_t *cond);
int lw_shared_cond_has_waiters(const lw_shared_cond_t *cond)
{
	return LW__HAS_WAITERS(cond);
}
