//! Statistics of the heap, the check of its invariants, and the use of a heap that is not mapped, read from its file.

use core::mem::offset_of;

use super::layout::{BLOCK, Header, place_of};
use super::{CLASSES, Desc, Heap, HeapLayout, Kind, SPAN_BYTES, State};
use crate::atomic::Ordering::{Acquire, Relaxed};

/// The contents of a heap.
///
/// Exact while no task changes the heap, and only approximate otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeapStats {
    /// Bytes in spans that have memory.
    pub committed_bytes: usize,
    /// Bytes in spans whose memory was returned to the system.
    pub trimmed_bytes: usize,
    /// Bytes in allocated blocks, in the sizes of their classes.
    pub allocated_bytes: usize,
    /// Bytes in free spans and in free blocks that have memory.
    pub free_bytes: usize,
    /// Allocated blocks that are private to a task.
    pub private_blocks: usize,
    /// Allocated blocks that are shared, and so outlive their task.
    pub shared_blocks: usize,
    /// Spans that no task has claimed.
    pub free_spans: usize,
    /// Spans of small blocks, orphans included.
    pub small_spans: usize,
    /// Spans of small blocks that no task owns.
    pub orphan_spans: usize,
    /// Spans of large blocks.
    pub large_spans: usize,
    /// Spans that a task is claiming or freeing.
    pub transit_spans: usize,
}

/// A violated invariant of the heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("span {span} of the heap is corrupt: {what}")]
pub struct Corruption {
    /// The span.
    pub span: u32,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Heap {
    /// Counts the contents of the heap. Takes time in proportion to the heap's size.
    pub fn stats(&self) -> HeapStats {
        let mut stats = HeapStats::default();
        let committed = self.committed();
        stats.committed_bytes = committed as usize * SPAN_BYTES;
        for span in 0..committed {
            let state = self.state(span);
            match state.kind() {
                Some(Kind::Hollow) => {
                    stats.free_spans += 1;
                    stats.trimmed_bytes += SPAN_BYTES;
                }
                Some(Kind::Free) => {
                    stats.free_spans += 1;
                    stats.free_bytes += SPAN_BYTES;
                }
                Some(Kind::Small) => {
                    stats.small_spans += 1;
                    stats.orphan_spans += usize::from(state.is_orphan());
                    self.count_small(span, state.class(), &mut stats);
                }
                Some(Kind::Head) => {
                    stats.large_spans += 1;
                    let spans = self.run_of(span, state) as usize;
                    stats.allocated_bytes += spans * SPAN_BYTES;
                    match state.is_shared() {
                        true => stats.shared_blocks += 1,
                        false => stats.private_blocks += 1,
                    }
                }
                Some(Kind::Part) => {
                    let head = state.head_of_part();
                    let live = head < committed && self.state(head).kind() == Some(Kind::Head);
                    match live {
                        true => stats.large_spans += 1,
                        false => stats.transit_spans += 1,
                    }
                }
                _ => stats.transit_spans += 1,
            }
        }
        stats.committed_bytes -= stats.trimmed_bytes;
        stats
    }

    fn count_small(&self, span: u32, class: usize, stats: &mut HeapStats) {
        let Some(class) = CLASSES.get(class) else {
            return;
        };
        let bits = self.bits(span, class);
        let (mut live, mut shared) = (0, 0);
        for word in 0..class.words {
            // Relaxed: only a count.
            let taken = bits.alloc(word).load(Relaxed) & !class.tail(word);
            let taken = taken & !bits.remote(word).load(Relaxed);
            live += taken.count_ones() as usize;
            shared += (taken & bits.shared(word).load(Relaxed)).count_ones() as usize;
        }
        stats.allocated_bytes += live * class.size as usize;
        stats.free_bytes += (class.count as usize - live) * class.size as usize;
        stats.shared_blocks += shared;
        stats.private_blocks += live - shared;
    }

    /// Checks the heap's invariants, while no task changes it and no dead task is unrecovered.
    ///
    /// # Errors
    ///
    /// The first span that violates one.
    pub fn check(&self) -> Result<(), Corruption> {
        let (committed, max) = (self.committed(), self.layout.max_spans);
        let corrupt = |span| move |what| Corruption { span, what };
        if committed > max {
            return Err(corrupt(committed)(
                "more spans are committed than there are",
            ));
        }
        let mut span = 0;
        while span < committed {
            span += self.check_span(span, committed).map_err(corrupt(span))?;
        }
        let is_stray = |&span: &u32| {
            let is_small = self.state(span).kind() == Some(Kind::Small);
            !is_small && self.desc(span).cached.load(Relaxed) != 0
        };
        if let Some(span) = (0..committed).find(is_stray) {
            return Err(corrupt(span)("a span without small blocks is in a cache"));
        }
        match (committed..max).find(|&span| self.entry(span).load(Acquire) != 0) {
            Some(span) => Err(corrupt(span)("a span in use is not committed")),
            None => Ok(()),
        }
    }

    /// Checks a span that is no part of a run, or a whole run. Returns the number of its spans.
    fn check_span(&self, span: u32, committed: u32) -> Result<u32, &'static str> {
        let state = self.state(span);
        match state.kind().ok_or("unknown span state")? {
            Kind::Free | Kind::Hollow if state == State::FREE || state == State::HOLLOW => Ok(1),
            Kind::Free | Kind::Hollow => Err("a free span has an owner"),
            Kind::Small => {
                self.check_small(span, state.class())?;
                self.check_cached(span, state).map(|()| 1)
            }
            Kind::Head => {
                let run = self.run_of(span, state);
                let end = span.checked_add(run).filter(|&end| end <= committed);
                let end = end.ok_or("a run exceeds the heap")?;
                let ours = |part: u32| {
                    let state = self.state(part);
                    state.kind() == Some(Kind::Part) && state.head_of_part() == span
                };
                if run == 0 || !(span + 1..end).all(ours) {
                    return Err("a run has not all of its parts");
                }
                Ok(run)
            }
            Kind::Part => Err("a part has no head"),
            Kind::Init => Err("a span was not initialised"),
            Kind::Transit => Err("a run was not finished"),
        }
    }

    /// Checks the fields of a small span's descriptor that the fast paths use.
    fn check_cached(&self, span: u32, state: State) -> Result<(), &'static str> {
        let desc = self.desc(span);
        let cached = desc.cached.load(Relaxed);
        if (cached != 0) != (desc.membership.load(Relaxed) != Desc::NOWHERE) {
            return Err("a span's cache entry and its list membership differ");
        }
        if cached == 0 {
            return Ok(());
        }
        let class = &CLASSES[state.class()];
        let owner = state.owner().ok_or("an orphan is in a cache")?;
        if cached != Desc::cached_as(owner, state.class()) {
            return Err("a span's cache entry names another task or class");
        }
        let (bits, cursor) = (self.bits(span, class), desc.cursor.load(Relaxed));
        if desc.cursor_word.load(Relaxed) != bits.alloc_address(cursor) {
            return Err("a span's cursor address is not that of its cursor");
        }
        let (freed, bit) = (desc.freed.load(Relaxed), desc.freed_bit.load(Relaxed));
        let is_it = || bit < 64 && class.index_of(freed - 1) == Some(cursor * 64 + bit);
        let is_free = || bits.alloc(cursor).load(Relaxed) >> bit & 1 == 0;
        match freed == 0 || is_it() && is_free() {
            true => Ok(()),
            false => Err("the block recorded as freed last is not a free block"),
        }
    }

    /// Checks that no span or block belongs to a task, in a region without tasks: for a region of doubtful origin,
    /// after [`Heap::check`]. A task would trust what it finds in its own spans.
    pub(in crate::region) fn check_settled(&self) -> Result<(), Corruption> {
        for span in 0..self.committed() {
            let state = self.state(span);
            let what = match state.kind() {
                _ if self.desc(span).cached.load(Relaxed) != 0 => {
                    "a span is in the cache of a task"
                }
                Some(Kind::Small) if !state.is_orphan() => "a span has a dead owner",
                Some(Kind::Small) if self.desc(span).membership.load(Relaxed) != Desc::NOWHERE => {
                    "an orphan span is in a list"
                }
                Some(Kind::Head) if state.owner().is_some() => "a block has a dead owner",
                _ => continue,
            };
            return Err(Corruption { span, what });
        }
        Ok(())
    }

    fn check_small(&self, span: u32, class: usize) -> Result<(), &'static str> {
        let class = CLASSES.get(class).ok_or("no such class")?;
        let (desc, bits) = (self.desc(span), self.bits(span, class));
        let mut used = 0;
        for word in 0..class.words {
            // Relaxed: no task changes the bitmaps, by contract.
            let tail = class.tail(word);
            let taken = bits.alloc(word).load(Relaxed);
            if taken & tail != tail {
                return Err("a block beyond the last one is free");
            }
            let taken = taken & !tail;
            if bits.shared(word).load(Relaxed) & !taken != 0 {
                return Err("a free block is shared");
            }
            if bits.remote(word).load(Relaxed) & !taken != 0 {
                return Err("a free block is freed");
            }
            used += taken.count_ones();
        }
        if desc.used.load(Relaxed) != used {
            return Err("the count of blocks is wrong");
        }
        if desc.cursor.load(Relaxed) >= class.words {
            return Err("the cursor is out of range");
        }
        if used == 0 && desc.membership.load(Relaxed) != Desc::CURRENT {
            return Err("an empty span was not released");
        }
        Ok(())
    }
}

// Every number in a file may be wrong, and may change from one read to the next: each is bounded before use, and no
// pointer is followed.

/// The use of a heap, according to its tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HeapUse {
    /// Bytes of the heap that have memory.
    pub committed_bytes: u64,
    /// Bytes in allocated blocks. Only approximate while tasks use the heap.
    pub allocated_bytes: u64,
}

impl HeapLayout {
    /// Reads the use of a heap whose metadata `read` provides: it fills a buffer from an offset into them. `memory`
    /// is the size of the file's memory as a whole, which bounds the work even if the tables claim more.
    pub(in crate::region) fn usage<E>(
        &self,
        memory: u64,
        read: impl Fn(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<HeapUse, E> {
        let mut word = [0; 4];
        read(offset_of!(Header, committed), &mut word)?;
        let most = usize::try_from(memory / SPAN_BYTES as u64).unwrap_or(usize::MAX);
        let spans = (u32::from_ne_bytes(word).min(self.max_spans) as usize).min(most);
        let (mut allocated_bytes, mut hollow) = (0, 0);
        let mut states = [0; BLOCK * 8];
        let mut descs = vec![0; BLOCK * size_of::<Desc>()];
        for first in (0..spans).step_by(BLOCK) {
            let count = BLOCK.min(spans - first);
            let descs = &mut descs[..count * size_of::<Desc>()];
            read(self.table + first * 8, &mut states)?;
            read(self.descs + first * size_of::<Desc>(), descs)?;
            let (states, _) = states.as_chunks::<8>();
            let (descs, _) = descs.as_chunks::<{ size_of::<Desc>() }>();
            for (index, desc) in descs.iter().enumerate() {
                let state = State(u64::from_ne_bytes(states[place_of(index)]));
                allocated_bytes += allocated(state, desc);
                hollow += u64::from(state == State::HOLLOW);
            }
        }
        Ok(HeapUse {
            committed_bytes: (spans as u64 - hollow) * SPAN_BYTES as u64,
            allocated_bytes,
        })
    }
}

/// Bytes in allocated blocks of one span.
fn allocated(state: State, desc: &[u8; size_of::<Desc>()]) -> u64 {
    match state.kind() {
        Some(Kind::Head | Kind::Part) => SPAN_BYTES as u64,
        Some(Kind::Small) => CLASSES.get(state.class()).map_or(0, |class| {
            let at = offset_of!(Desc, used);
            let used = u32::from_ne_bytes([desc[at], desc[at + 1], desc[at + 2], desc[at + 3]]);
            u64::from(used.min(class.count)) * u64::from(class.size)
        }),
        _ => 0,
    }
}
