/* Every inline function of the header, as a symbol: for callers that do not inline, and for other languages. */
#define LW_INLINE extern inline
#define LW_NO_GENERIC
#include "latchwork.h"
