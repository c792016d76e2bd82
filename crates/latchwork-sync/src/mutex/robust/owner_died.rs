//! The methods of a lock that was taken from a dead owner, for robust mutexes and robust reader/writer locks.

/// Implements all but the definition of `OwnerDied<'a, T, $parameter>`, whose field `guard` is a `ManuallyDrop` of the
/// `$guard` with the field `$lock`.
macro_rules! methods_of_owner_died {
    ({$($bounds:tt)*} $parameter:ident, $guard:ident, $lock:ident) => {
        impl<'a, T: ?Sized, $($bounds)*> OwnerDied<'a, T, $parameter> {
            pub(super) fn new(guard: $guard<'a, T, $parameter>) -> Self {
                Self { guard: ManuallyDrop::new(guard) }
            }

            fn into_guard(self) -> $guard<'a, T, $parameter> {
                // In the child of a fork the guard belongs to the parent: this aborts there.
                owner_of_guard(self.guard.owner);
                let mut this = ManuallyDrop::new(self);
                this.guard.robust().mark_consistent();
                // SAFETY: `this` is never dropped, so the guard is moved out once.
                unsafe { ManuallyDrop::take(&mut this.guard) }
            }

            /// Releases the lock with the data as it is: the next owner gets `LockError::OwnerDied`, too.
            pub fn pass_on(self) {
                let this = ManuallyDrop::new(self);
                owner_of_guard(this.guard.owner);
                this.guard.report_releasing();
                // SAFETY: this guard holds the lock, and neither it nor the inner one is dropped.
                unsafe { this.guard.robust().unlock_inconsistent() }
            }

            /// Declares the data whole, whatever its type, and returns an ordinary guard.
            ///
            /// # Safety
            /// The data is a valid value of `T`, although its last owner stopped between two instructions.
            pub unsafe fn make_consistent_unchecked(self) -> $guard<'a, T, $parameter> {
                self.into_guard()
            }
        }

        impl<'a, T, $($bounds)*> OwnerDied<'a, T, $parameter> {
            /// The data as memory that may or may not hold a value.
            pub fn as_uninit(&self) -> &MaybeUninit<T> {
                // SAFETY: the guard holds the lock, and `MaybeUninit` promises nothing of the content.
                unsafe { &*self.guard.$lock.data.get().cast() }
            }

            /// As [`Self::as_uninit`], for a repair in place.
            ///
            /// # Safety
            /// If `T` is [`TornSafe`], the caller writes only valid values, each at a place of its type: safe code can
            /// read them from then on. The caller treats the value as pinned.
            pub unsafe fn as_uninit_mut(&mut self) -> &mut MaybeUninit<T> {
                // SAFETY: the guard holds the lock and is borrowed exclusively; `MaybeUninit` promises nothing of the
                // content.
                unsafe { &mut *self.guard.$lock.data.get().cast() }
            }

            /// Writes a new value in place of the torn one, which is not dropped, and returns an ordinary guard.
            pub fn replace(self, value: T) -> $guard<'a, T, $parameter> {
                owner_of_guard(self.guard.owner);
                let place = self.guard.$lock.data.get();
                // SAFETY: the guard holds the lock. The old data may be no value of `T`: it is overwritten, not dropped.
                unsafe { torn_safe::overwrite(place, ManuallyDrop::new(value)) };
                self.into_guard()
            }
        }

        impl<'a, T: ?Sized + TornSafe, $($bounds)*> OwnerDied<'a, T, $parameter> {
            #[doc = concat!("The data, pinned, for a repair before [`Self::make_consistent`]: see [`", stringify!($guard), "::as_mut`].")]
            pub fn as_mut(&mut self) -> Pin<&mut T>
            where
                T: Relocatable,
            {
                self.guard.as_mut()
            }

            #[doc = concat!("The editor of the data: see [`", stringify!($guard), "::edit`].")]
            pub fn edit(&mut self) -> T::Editor<'_>
            where
                T: Relocatable + Edit,
            {
                self.guard.edit()
            }

            /// Declares the data repaired, and returns an ordinary guard.
            pub fn make_consistent(self) -> $guard<'a, T, $parameter> {
                self.into_guard()
            }
        }

        impl<T: ?Sized + TornSafe, $($bounds)*> Deref for OwnerDied<'_, T, $parameter> {
            type Target = T;
            fn deref(&self) -> &T {
                &self.guard
            }
        }

        impl<T: ?Sized + TornSafe + Unpin, $($bounds)*> DerefMut for OwnerDied<'_, T, $parameter> {
            fn deref_mut(&mut self) -> &mut T {
                &mut self.guard
            }
        }

        impl<T: ?Sized, $($bounds)*> fmt::Debug for OwnerDied<'_, T, $parameter> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("OwnerDied")
            }
        }

        impl<T: ?Sized, $($bounds)*> Drop for OwnerDied<'_, T, $parameter> {
            fn drop(&mut self) {
                owner_of_guard(self.guard.owner);
                self.guard.report_releasing();
                let lock = self.guard.robust();
                // SAFETY: this guard holds the lock, and the inner guard is never dropped itself.
                unsafe {
                    if std::thread::panicking() {
                        lock.unlock_inconsistent();
                    } else {
                        lock.release_not_recoverable();
                    }
                }
            }
        }
    };
}
pub(crate) use methods_of_owner_died;
