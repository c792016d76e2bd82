//! How a pinned value is changed in place.
#![allow(unsafe_code)]

use core::pin::Pin;

/// A type that is changed in place while it is pinned, by an *editor* that never lends the whole value.
///
/// `lock.lock()?.edit()` gives the editor of the data of a robust lock:
///
/// | data | editor |
/// | --- | --- |
/// | [`Vec`](../region/struct.Vec.html), `String`, `HashMap`, `List`, `Undo` | [`VecMut`](../region/struct.VecMut.html), …, with the methods that change the container |
/// | a struct with `#[derive(PinnedFields)]` | a struct with the same fields: `Pin<&mut F>` where the field is marked `#[pin]`, `&mut F` elsewhere |
/// | an array, a tuple | an array or a tuple of `Pin<&mut F>` |
///
/// ```
/// use latchwork::mutex::{Mutex, Robust};
/// use latchwork::region::{RegionOptions, Vec};
///
/// type Pair = (Vec<u32>, [Vec<u32>; 2]);
/// let region = RegionOptions::new().max_bytes(4 << 20).create_anonymous()?;
/// let new = || Vec::new_in(&region);
/// let pair = region.object::<Mutex<Pair, Robust>>("pair", || Mutex::robust((new(), [new(), new()])))?;
/// let mut pair = pair.lock()?;
/// let (first, others) = pair.edit();
/// first.edit().push(1)?;
/// let [second, third] = latchwork::region::Edit::edit(others);
/// second.edit().push(2)?;
/// third.edit().push(3)?;
/// assert_eq!(pair.1[1][0], 3);
/// # drop(pair);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Edit {
    /// What changes a value.
    type Editor<'a>
    where
        Self: 'a;

    /// Lends the value to an editor.
    fn edit(self: Pin<&mut Self>) -> Self::Editor<'_>;
}

impl<T, const N: usize> Edit for [T; N] {
    type Editor<'a>
        = [Pin<&'a mut T>; N]
    where
        Self: 'a;

    #[inline]
    fn edit(self: Pin<&mut Self>) -> [Pin<&mut T>; N] {
        // SAFETY: an array moves only as a whole.
        unsafe {
            self.get_unchecked_mut()
                .each_mut()
                .map(|element| Pin::new_unchecked(element))
        }
    }
}

macro_rules! edited_tuples {
    ($($name:ident $part:ident)*) => {
        impl<$($name),*> Edit for ($($name,)*) {
            type Editor<'a> = ($(Pin<&'a mut $name>,)*) where Self: 'a;

            #[inline]
            fn edit(self: Pin<&mut Self>) -> ($(Pin<&mut $name>,)*) {
                // SAFETY: a tuple moves only as a whole.
                unsafe {
                    let ($($part,)*) = self.get_unchecked_mut();
                    ($(Pin::new_unchecked($part),)*)
                }
            }
        }
    };
}
crate::torn_safe::each_tuple!(edited_tuples);
