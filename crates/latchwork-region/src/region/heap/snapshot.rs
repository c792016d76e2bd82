//! The use of the heap of a region that is not mapped, read from its file.
//!
//! Every number may be wrong, and may change from one read to the next: each is bounded before use, and no pointer is
//! followed.

use core::mem::{offset_of, size_of};

use super::classes::CLASSES;
use super::layout::{Desc, Header, HeapLayout, SPAN_BYTES};
use super::state::{Kind, State};

/// The use of a heap, according to its tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HeapUse {
    /// Bytes of the heap that have memory.
    pub committed_bytes: u64,
    /// Bytes in allocated blocks. Only approximate while tasks use the heap.
    pub allocated_bytes: u64,
}

/// The number of spans that are read at a time.
const BATCH: usize = 512;

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
        let mut states = [0; BATCH * 8];
        let mut descs = vec![0; BATCH * size_of::<Desc>()];
        for first in (0..spans).step_by(BATCH) {
            let count = BATCH.min(spans - first);
            let states = &mut states[..count * 8];
            let descs = &mut descs[..count * size_of::<Desc>()];
            read(self.table + first * 8, states)?;
            read(self.descs + first * size_of::<Desc>(), descs)?;
            let (states, _) = states.as_chunks::<8>();
            let (descs, _) = descs.as_chunks::<{ size_of::<Desc>() }>();
            for (state, desc) in states.iter().zip(descs) {
                let state = State(u64::from_ne_bytes(*state));
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
