//! Validation of a list by a checked attach.
#![allow(unsafe_code)]

use super::super::container::Anchor;
use super::super::{Unsound, Validate, Validator};
use super::{List, Node, NodePtr, Root, VALUE, commit, read};
use core::alloc::Layout;
use core::ptr::NonNull;

// SAFETY: root and nodes are claimed, each value that a stage promises is validated, and the links back are those forward.
unsafe impl<T: Validate> Validate for List<T> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the container begins with its anchor.
        let address = unsafe { Anchor::validate(place.cast(), region)? };
        if address == 0 {
            return Ok(());
        }
        let root = region.claim(place, address, Layout::new::<Root>())?;
        // SAFETY: the block has room for a root, of which every value is valid.
        let root: &Root = unsafe { root.cast().as_ref() };
        let pending = read(&root.pending);
        let (mut len, mut last, mut is_linked) = (0, 0, false);
        let mut link = &root.head;
        while let address @ 1.. = read(link) {
            let node: NodePtr<T> = region
                .claim(NonNull::from(link), address, Layout::new::<Node<T>>())?
                .cast();
            // SAFETY: the block has room for a node, whose value is not looked at before it is validated.
            let [stage, prev, next] = unsafe {
                let node = node.as_ptr();
                [&(*node).stage, &(*node).prev, &(*node).next]
            };
            if read(stage) != VALUE {
                return Err(region.unsound(node, "an element of a list has no value"));
            }
            if pending != 0 {
                // As whoever finishes the operation would do.
                commit(prev, last);
            } else if read(prev) != last {
                return Err(region.unsound(node, "an element of a list names another before it"));
            }
            // SAFETY: a part of the node.
            unsafe { validate_value(node, region)? };
            len += 1;
            is_linked |= address == pending;
            last = address;
            link = next;
        }
        if pending == 0 {
            let is_right = (read(&root.tail), read(&root.len)) == (last, len);
            return is_right.then_some(()).ok_or_else(|| {
                region.unsound(NonNull::from(root), "a list has another end or length")
            });
        }
        commit(&root.tail, last);
        commit(&root.len, len);
        if is_linked {
            return Ok(());
        }
        let word = NonNull::from(&root.pending);
        let node: NodePtr<T> = region
            .claim(word, pending, Layout::new::<Node<T>>())?
            .cast();
        // SAFETY: the block has room for a node; every value of the word is valid.
        match unsafe { read(&(*node.as_ptr()).stage) } {
            0 => Ok(()),
            // SAFETY: a part of the node.
            VALUE => unsafe { validate_value(node, region) },
            _ => Err(region.unsound(node, "an element of a list is in a state that there is not")),
        }
    }
}

/// # Safety
/// The node is in a block that was claimed.
unsafe fn validate_value<T: Validate>(
    node: NodePtr<T>,
    region: &mut Validator<'_>,
) -> Result<(), Unsound> {
    // SAFETY: the place of the value, which has the layout of what it may contain.
    unsafe {
        let value = (&raw mut (*node.as_ptr()).value).cast::<T>();
        T::validate(NonNull::new_unchecked(value), region)
    }
}
