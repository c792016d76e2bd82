//! Validation of a map by a checked attach.
#![allow(unsafe_code)]

use super::super::container::Anchor;
use super::super::{Unsound, Validate, Validator};
use super::table::{COMPLETE, KEY, Node, TOMBSTONE, Table, VALUE, View};
use super::{HashMap, read};
use core::alloc::Layout;
use core::ptr::NonNull;

/// How many slots the check looks at for each slot of a map, to find all entries. Entries whose hashes differ need less than
/// ten each; a few hundred entries of equal hashes are within it. Without a bound, a file in which all entries are far from
/// their places would make the check take a time in proportion to the square of its size.
const PROBES: usize = 256;

// SAFETY: table and nodes are claimed; each key and value that a stage promises is validated; and each node is where a
// search for its hash finds it, so that a pending node is taken for linked exactly if it is.
unsafe impl<K: Validate, V: Validate> Validate for HashMap<K, V> {
    unsafe fn validate(place: NonNull<Self>, region: &mut Validator<'_>) -> Result<(), Unsound> {
        // SAFETY: the container begins with its anchor.
        let address = unsafe { Anchor::validate(place.cast(), region)? };
        if address == 0 {
            return Ok(());
        }
        let block = region.claim(place, address, Layout::new::<Table>())?;
        // SAFETY: the block has room for a table's head, of which every value is valid.
        let head: &Table = unsafe { block.cast().as_ref() };
        let is_there = head.capacity.is_power_of_two()
            && View::layout(head.capacity).is_some_and(|all| region.has_room(block, all.size()));
        if !is_there {
            return Err(region.unsound(block, "a map has no room for its capacity"));
        }
        // SAFETY: the head is sound.
        let Some(view) = unsafe { place.as_ref() }.view() else {
            return Ok(());
        };
        let pending = read(&head.pending);
        let (mut len, mut used, mut is_linked) = (0, 0, false);
        let mut probes = view.slots.len().saturating_mul(PROBES);
        for slot in view.slots {
            let node = read(slot);
            used += usize::from(node != 0);
            if node <= TOMBSTONE {
                continue;
            }
            len += 1;
            is_linked |= node == pending;
            let stage = (node != pending).then_some(COMPLETE);
            let hash = validate_node::<K, V, _>(NonNull::from(slot), node, stage, region)?;
            match view.probes_for(hash, node, probes) {
                Some(taken) => probes -= taken,
                None => {
                    let what = "an entry of a map cannot be found, or is too far from its place";
                    return Err(region.unsound(NonNull::from(slot), what));
                }
            }
        }
        if pending == 0 {
            // A task that was killed as it cleared the map leaves a count of used slots that is too large.
            let counted = read(&head.used);
            let is_counted = len == read(&head.len) && (used..=head.capacity).contains(&counted);
            return is_counted
                .then_some(())
                .ok_or_else(|| region.unsound(block, "a map has another number of entries"));
        }
        if !is_linked {
            let word = NonNull::from(&head.pending);
            validate_parts::<K, V, _>(word, pending, region)?;
        }
        Ok(())
    }
}

/// A node in a slot, which has its key and its value; returns its hash. `stage`: what its stage must be.
fn validate_node<K: Validate, V: Validate, W>(
    word: NonNull<W>,
    address: usize,
    stage: Option<usize>,
    region: &mut Validator<'_>,
) -> Result<u64, Unsound> {
    let node = region.claim(word, address, Layout::new::<Node<K, V>>())?;
    let node = node.cast::<Node<K, V>>();
    // SAFETY: the block has room for a node; the words that are read have no invalid value.
    let (hash, found) = unsafe { ((*node.as_ptr()).hash, read(&(*node.as_ptr()).stage)) };
    if stage.is_some_and(|stage| found != stage) || found & !COMPLETE != 0 {
        return Err(region.unsound(node, "an entry of a map has no key or no value"));
    }
    // SAFETY: parts of the node.
    unsafe { validate_key_and_value(node, COMPLETE, region)? };
    Ok(hash)
}

/// A pending node that no slot leads to, and those of its parts that it has.
fn validate_parts<K: Validate, V: Validate, W>(
    word: NonNull<W>,
    address: usize,
    region: &mut Validator<'_>,
) -> Result<(), Unsound> {
    let node = region.claim(word, address, Layout::new::<Node<K, V>>())?;
    let node = node.cast::<Node<K, V>>();
    // SAFETY: the block has room for a node; every value of the word is valid.
    let stage = unsafe { read(&(*node.as_ptr()).stage) };
    if stage & !COMPLETE != 0 {
        return Err(region.unsound(node, "an entry of a map is in a state that there is not"));
    }
    // SAFETY: parts of the node.
    unsafe { validate_key_and_value(node, stage, region) }
}

/// # Safety
/// The node is in a block that was claimed.
unsafe fn validate_key_and_value<K: Validate, V: Validate>(
    node: NonNull<Node<K, V>>,
    stage: usize,
    region: &mut Validator<'_>,
) -> Result<(), Unsound> {
    // SAFETY: the places of key and value, which have the layout of what they may contain.
    unsafe {
        let key = NonNull::new_unchecked((&raw mut (*node.as_ptr()).key).cast::<K>());
        let value = NonNull::new_unchecked((&raw mut (*node.as_ptr()).value).cast::<V>());
        if stage & KEY != 0 {
            K::validate(key, region)?;
        }
        if stage & VALUE != 0 {
            V::validate(value, region)?;
        }
    }
    Ok(())
}
