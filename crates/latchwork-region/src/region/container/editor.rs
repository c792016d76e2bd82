//! What the editors of all containers have in common. An editor changes a container in its place.

/// Lends a container to its editor, which derefs to `$target`.
macro_rules! editor {
    ($editor:ident, $container:ident<$($part:ident),* $(; $number:ident)?> => $target:ty) => {
        impl<$($part,)* $(const $number: usize)?> $container<$($part,)* $($number)?> {
            /// Lends it to an editor, which changes it in its place.
            #[inline]
            pub fn edit(self: core::pin::Pin<&mut Self>) -> $editor<'_, $($part,)* $($number)?> {
                // SAFETY: the editor does not lend the `&mut` of the container, nor moves the container.
                $editor(unsafe { self.get_unchecked_mut() })
            }
        }

        impl<$($part,)* $(const $number: usize)?> $crate::edit::Edit for $container<$($part,)* $($number)?> {
            type Editor<'a> = $editor<'a, $($part,)* $($number)?> where Self: 'a;

            #[inline]
            fn edit(self: core::pin::Pin<&mut Self>) -> $editor<'_, $($part,)* $($number)?> {
                self.edit()
            }
        }

        impl<$($part,)* $(const $number: usize)?> core::ops::Deref for $editor<'_, $($part,)* $($number)?> {
            type Target = $target;
            #[inline]
            fn deref(&self) -> &$target {
                self.0
            }
        }

        impl<$($part: core::fmt::Debug,)* $(const $number: usize)?> core::fmt::Debug
            for $editor<'_, $($part,)* $($number)?>
        {
            fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self.0, formatter)
            }
        }
    };
}

/// Methods of an editor that call the container's methods of the same names.
macro_rules! forward {
    ($container:ident: $(
        $(#[$attribute:meta])*
        fn $name:ident $(<$key:ident: Hash + Eq + ?Sized>)? (&mut self $(, $argument:ident: $type:ty)*)
            $(-> $result:ty)? $(where $($part:ident: $bound:path),+)?;
    )*) => {$(
        #[allow(clippy::missing_errors_doc, clippy::missing_panics_doc, reason = "it names the one that it calls")]
        #[doc = concat!("[`", stringify!($container), "::", stringify!($name), "`].")]
        $(#[$attribute])*
        #[inline]
        pub fn $name $(<$key: Hash + Eq + ?Sized>)? (&mut self $(, $argument: $type)*)
            $(-> $result)? $(where $($part: $bound),+)?
        {
            self.0.$name($($argument),*)
        }
    )*};
}

pub(in crate::region) use {editor, forward};
