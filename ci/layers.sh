#!/bin/sh
# Checks rules that the compiler does not: only `sys` makes system calls, only `atomic.rs` names atomics, lock paths
# avoid functions that take the loader's lock, and no layer uses a layer above it.
. "$(dirname "$0")/lib.sh"
say "layers"
src=crates/latchwork/src
check=crates/latchwork-check/src
region=crates/latchwork-region/src
sync=crates/latchwork-sync/src
sys=crates/latchwork-sys/src
failed=0
forbid() { # what, pattern, files…
    what=$1; pattern=$2; shift 2
    # A comment may name anything.
    if hits=$(grep -nE "$pattern" "$@" /dev/null | grep -vE '^[^:]+:[0-9]+: *//'); then
        printf '%s:\n%s\n' "$what" "$hits"; failed=1
    fi
}
all=$(find $src $check $region $sync -name '*.rs' -not -path '*/tests/*' -not -name 'tests.rs')
all_sys=$(find $sys -name '*.rs')
forbid "a system call outside latchwork-sys" 'libc::(syscall|mmap|fork|clone|kill|prctl|waitpid|waitid)\(|rustix::(mm|process|thread|net|fs)::[a-z_]+\(' $all
forbid "what takes the loader's lock at the first use of a lock (see sys/clock.rs, sys/each_thread.rs)" \
    'rustix::(time::|thread::sched_getcpu)|^ *(std::)?thread_local! *[{]' \
    $(echo "$all $all_sys" | tr ' ' '\n' | grep -v -e "$sys/model/" -e "/src/model" -e _loom.rs -e "$sys/sys/each_thread.rs" -e "$sys/sys/own_record.rs" -e "$region/region/heap/fault.rs")
forbid "atomics named outside atomic.rs" '(core|std)::sync::atomic::' $(echo "$all $all_sys" | tr ' ' '\n' | grep -v -e "$sys/atomic.rs" -e "$sync/torn_safe.rs")
forbid "a queue that reaches up" 'use crate::(semaphore|classic|coproc)' $(find $src/queue -name '*.rs')
forbid "events that reach up" 'use crate::(queue|semaphore|classic|coproc)' $src/event.rs
forbid "a semaphore that reaches up" 'use crate::(queue|classic|coproc)' $(find $src/semaphore -name '*.rs')
forbid "a classic interface that reaches up" 'use crate::coproc' $(find $src/classic -name '*.rs')
above='observer|configure|checked|robust|rwlock|tagged|hook'
forbid "a record of the checker that reaches up" "(crate::check|super)::($above|observe|report|detect)\\b" $(find $check/check/record -name '*.rs')
forbid "detection that reaches up" "(crate::check|super)::($above|observe|report)\\b" $(find $check/check/detect -name '*.rs')
forbid "a report that reaches up" "(crate::check|super)::($above|observe)\\b" $(find $check/check/report -name '*.rs')
forbid "an event that reaches up" "(crate::check|super)::($above)\\b" $(find $check/check/observe -name '*.rs')
[ $failed = 0 ] && echo "in order"
exit $failed
