//! How a [`RawLock`](super::RawLock) implements the traits of [`lock_api`].

/// Implements the traits of [`lock_api`] for a [`RawLock`](super::RawLock), so that other crates can use it.
macro_rules! implement_lock_api {
    ({$($parameter:ident : $bound:path)?} $lock:ty, $is_locked:expr) => {
        $crate::mutex::implement_lock_api!({$($parameter: $bound)?} $lock, $is_locked, lock_api::GuardSend);
    };
    ({$($parameter:ident : $bound:path)?} $lock:ty, $is_locked:expr, $guard:ty) => {
        // SAFETY: `RawMutex` asks for mutual exclusion between `lock` and `unlock`, which `RawLock` promises.
        unsafe impl $(<$parameter: $bound>)? lock_api::RawMutex for $lock {
            #[allow(clippy::declare_interior_mutable_const, reason = "the trait's way to spell a constructor")]
            const INIT: Self = Self::new();
            type GuardMarker = $guard;

            #[inline]
            fn lock(&self) {
                $crate::mutex::RawLock::lock(self);
            }

            #[inline]
            fn try_lock(&self) -> bool {
                $crate::mutex::RawLock::try_lock(self)
            }

            #[inline]
            unsafe fn unlock(&self) {
                // SAFETY: the caller holds the lock: `RawMutex::unlock` asks for the same.
                unsafe { $crate::mutex::RawLock::unlock(self) }
            }

            #[inline]
            fn is_locked(&self) -> bool {
                let is_locked: fn(&Self) -> bool = $is_locked;
                is_locked(self)
            }
        }

        // SAFETY: both calls return true only if the lock is taken, as `RawMutexTimed` asks.
        unsafe impl $(<$parameter: $bound>)? lock_api::RawMutexTimed for $lock {
            type Duration = core::time::Duration;
            type Instant = $crate::time::Deadline;

            #[inline]
            fn try_lock_for(&self, timeout: Self::Duration) -> bool {
                $crate::mutex::RawLock::try_lock(self)
                    || $crate::mutex::RawLock::lock_until(self, $crate::time::Deadline::after(timeout))
            }

            #[inline]
            fn try_lock_until(&self, timeout: Self::Instant) -> bool {
                $crate::mutex::RawLock::lock_until(self, timeout)
            }
        }
    };
}
pub(crate) use implement_lock_api;
