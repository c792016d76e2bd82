//! Words that must not share a cache line with others.

/// A cache line and its neighbour, which CPUs prefetch with it.
#[derive(Default)]
#[repr(C, align(128))]
pub(super) struct Line<T>(pub(super) T);

impl<T> core::ops::Deref for Line<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
