//! The memory of objects that have ended, for new objects of their kinds: the lists of spares of `names.rs`, under the
//! directory's lock.
//!
//! To make and to end an object takes the same time however many names there are:
//!
//! - While an object has a name, its link, which only the lists use, holds the number of its entry. The number is only a
//!   hint, since a kill may come before it is stored: the entry must name the object.
//! - An object may have ended and still have its name, if a task was killed in between. So a creation searches all names
//!   for such objects if the region has detected a death since the last search, if a release has failed or a creation has
//!   panicked since, and if the creation itself fails, for example for lack of names or memory. It then also looks at all
//!   spares, since some may have memory that a dead task left.
#![allow(unsafe_code)]

use super::Inner;
use super::names::{Entry, READY, SpareKind};
use super::objects::{Directory, Reused, reused_in};
use super::word::{commit, pointer, read};
use crate::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// An upper bound of the length of a list of spares, so that a walk ends even if an attacker made the list circular.
const MAX_SPARES: usize = 1 << 24;

impl Inner {
    /// Frees the name of an object that has ended. If that fails, the next creation of an object of the kind does it.
    pub fn release_name<T: Reused>(self: &Arc<Self>, object: *const T) {
        match Directory::lock(self) {
            Ok(directory) => directory.release(object),
            Err(_) => self.search_next_time(T::KIND),
        }
    }

    /// Has the next creation of an object of the kind search all names.
    pub(super) fn search_next_time(&self, kind: SpareKind) {
        let searched = &self.header().names_searched[kind.list];
        // Release: pairs with the swap of a search. If that comes later, it sees that the object has ended.
        searched.store(self.deaths().wrapping_sub(1), Ordering::Release);
    }
}

impl<'r> Directory<'r> {
    /// Searches all names for objects of the kind that have ended, if there may be some since the last search. Returns
    /// whether a search was due.
    pub(super) fn search_if_due<T: Reused>(&self) -> bool {
        let searched = &self.region.header().names_searched[T::KIND.list];
        let deaths = self.region.deaths();
        let is_due = searched.load(Ordering::Relaxed) != deaths;
        if is_due {
            // Before the search: what happens in it is due the next time. If this task is killed in it, its death is.
            // AcqRel: the search reads no object before, and sees what a task did before it asked for a search.
            searched.swap(deaths, Ordering::AcqRel);
            self.search_for_ended::<T>();
        }
        is_due
    }

    /// Frees the names of all objects of the kind that have ended.
    pub(super) fn search_for_ended<T: Reused>(&self) {
        for entry in self.region.entries() {
            self.return_if_ended::<T>(entry, |_| true);
        }
    }

    /// Frees the name of an object, if it has ended and has one.
    fn release<T: Reused>(&self, object: *const T) {
        let is_it = |other: &T| core::ptr::eq(other, object);
        let hinted = self.hinted_entry(object.addr(), T::KIND);
        if !hinted.is_some_and(|entry| self.return_if_ended(entry, is_it)) {
            for entry in self.region.entries() {
                if self.return_if_ended(entry, is_it) {
                    break;
                }
            }
        }
    }

    /// Frees an entry if it is that of an object of the kind which has ended, and for which `which` returns true. Returns
    /// whether it was.
    fn return_if_ended<T: Reused>(&self, entry: &Entry, which: impl Fn(&T) -> bool) -> bool {
        // Relaxed: the directory's lock is held.
        let is_of_kind = entry.state.load(Ordering::Relaxed) == READY
            && entry.fingerprint.load(Ordering::Relaxed) == T::FINGERPRINT;
        let block = is_of_kind.then(|| self.region.block(entry.object(), entry.bytes()));
        let object = block.flatten().and_then(|block| reused_in::<T>(block).ok());
        let ends = object.is_some_and(|object| which(object) && object.has_ended());
        if ends {
            self.return_ended(entry, T::KIND);
        }
        ends
    }

    /// The word at an offset in an object, if there is one.
    fn link(&self, object: usize, link: usize) -> Option<&'r AtomicUsize> {
        let end = link + size_of::<AtomicUsize>();
        let is_there = link.is_multiple_of(size_of::<usize>())
            && object.is_multiple_of(size_of::<usize>())
            && self.region.has_block_at(object, end);
        let word = is_there.then(|| pointer(object + link))?;
        // SAFETY: an aligned word in a block of the region.
        word.map(|word| unsafe { word.as_ref() })
    }

    /// Stores the number of the entry in the link of its object, which is in no list. The number is made odd: no link to a
    /// spare is.
    pub(super) fn leave_hint(&self, entry: &Entry, kind: SpareKind) {
        let distance = core::ptr::from_ref(entry).addr() - self.region.entries().as_ptr().addr();
        let number = distance / size_of::<Entry>();
        if let Some(link) = self.link(read(&entry.object), kind.link) {
            commit(link, number << 1 | 1);
        }
    }

    /// The entry that the link of an object names, if it names one.
    fn hinted_entry(&self, object: usize, kind: SpareKind) -> Option<&'r Entry> {
        let hint = read(self.link(object, kind.link)?);
        let number = (hint & 1 == 1).then_some(hint >> 1)?;
        self.region.entries().get(number)
    }

    /// The words that lead to the spares of a kind, each with the spare's address and the spare's link.
    fn spares(
        &self,
        kind: SpareKind,
    ) -> impl Iterator<Item = (&'r AtomicUsize, usize, &'r AtomicUsize)> {
        let mut place = &self.region.header().spares[kind.list];
        core::iter::from_fn(move || {
            let object = read(place);
            let link = self.link(object, kind.link)?;
            Some((core::mem::replace(&mut place, link), object, link))
        })
        .take(MAX_SPARES)
    }

    /// The addresses of the spares of a kind.
    pub(super) fn spares_of(&self, kind: SpareKind) -> impl Iterator<Item = usize> {
        self.spares(kind).map(|(_, object, _)| object)
    }

    /// Gives a claimed entry the first spare of its kind for which `is_usable` returns true. Returns whether there is
    /// one.
    pub(super) fn take_spare(
        &self,
        entry: &Entry,
        kind: SpareKind,
        is_usable: impl Fn(usize) -> bool,
    ) -> bool {
        entry.set_kind(kind);
        let usable = self.spares(kind).find(|(_, object, _)| is_usable(*object));
        let Some((place, object, link)) = usable else {
            return false;
        };
        entry.mark_moving();
        commit(&entry.object, object);
        commit(place, read(link));
        self.leave_hint(entry, kind);
        entry.mark_ready();
        true
    }

    /// Moves the object of an entry, which has ended, to the spares, and frees the entry.
    pub(super) fn return_ended(&self, entry: &Entry, kind: SpareKind) {
        // The list number in the file is not trusted.
        entry.set_kind(kind);
        entry.mark_moving();
        self.finish_move(entry, false);
    }

    /// Frees an entry that is `MOVING`; its object, if it has one, becomes a spare. `may_be_spare`: it may be one already.
    /// (No free entry has an object: a task that dies as it claims the entry would make it one of two.)
    pub(super) fn finish_move(&self, entry: &Entry, may_be_spare: bool) {
        let object = read(&entry.object);
        if let Some(kind) = entry.kind()
            && let Some(link) = self.link(object, kind.link)
            && !(may_be_spare && self.spares(kind).any(|(_, spare, _)| spare == object))
        {
            let first = &self.region.header().spares[kind.list];
            commit(link, read(first));
            commit(first, object);
        }
        commit(&entry.object, 0);
        entry.mark_free();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::{ObjectError, Region, RegionOptions};
    use core::cell::Cell;
    use core::mem::offset_of;
    use core::sync::atomic::AtomicBool;

    const NAMES: u32 = 8;

    /// An object that is there while `lives`.
    struct Object {
        lives: AtomicBool,
        in_use: AtomicBool,
        link: AtomicUsize,
    }

    impl Reused for Object {
        const FINGERPRINT: u64 = 0x5EED;
        const KIND: SpareKind = SpareKind {
            list: 2,
            link: offset_of!(Object, link),
        };

        fn new() -> Self {
            Self {
                lives: AtomicBool::new(false),
                in_use: AtomicBool::new(false),
                link: AtomicUsize::new(0),
            }
        }

        fn has_ended(&self) -> bool {
            !self.lives.load(Ordering::Relaxed)
        }

        fn can_be_reused(&self, _: &Region) -> bool {
            !self.in_use.load(Ordering::Relaxed)
        }
    }

    fn region() -> Region {
        RegionOptions::new()
            .max_names(NAMES)
            .create_anonymous()
            .unwrap()
    }

    fn make<'r>(region: &'r Region, name: &str) -> Result<&'r Object, ObjectError> {
        let open = |object: &'r Object| Ok((!object.has_ended()).then_some(object));
        region.reused(name, open, |object: &Object| {
            object.lives.store(true, Ordering::Relaxed);
            Ok(object)
        })
    }

    /// Ends an object, and frees its name unless the task dies first.
    fn end(region: &Region, object: &Object, dies: bool) {
        object.lives.store(false, Ordering::Relaxed);
        if !dies {
            region.inner().release_name(object);
        }
    }

    fn names(region: &Region) -> usize {
        let entries = region.inner().entries().iter();
        entries.filter(|entry| entry.is_in_use()).count()
    }

    #[test]
    fn an_object_leaves_its_name_and_the_next_one_gets_its_memory() {
        let region = region();
        let others = ["a", "b", "c"].map(|name| make(&region, name).unwrap());
        for number in 0..100 {
            let object = make(&region, &format!("object {number}")).unwrap();
            assert_eq!(names(&region), 4);
            end(&region, object, false);
            assert_eq!(names(&region), 3);
        }
        // All of them had the same memory: an object more, and no spare is left.
        let last = make(&region, "last").unwrap();
        assert!(others.iter().all(|other| !core::ptr::eq(*other, last)));
        assert_eq!(read(&region.inner().header().spares[2]), 0);
    }

    #[test]
    fn a_hint_that_names_another_entry_is_not_followed() {
        let region = region();
        let [first, second] = ["first", "second"].map(|name| make(&region, name).unwrap());
        for hint in [read(&first.link), 2 * NAMES as usize + 1, usize::MAX, 0] {
            second.link.store(hint, Ordering::Relaxed);
            end(&region, second, false);
            assert_eq!(names(&region), 1);
            assert!(!first.has_ended());
            assert!(core::ptr::eq(make(&region, "second").unwrap(), second));
        }
    }

    /// Objects that ended without a release, of which no death was detected.
    #[test]
    fn objects_that_have_ended_are_found_when_the_names_run_out() {
        let region = region();
        for round in 0..3 {
            for number in 0..NAMES {
                let object = make(&region, &format!("{round} {number}")).unwrap();
                end(&region, object, true);
            }
            assert_eq!(names(&region), NAMES as usize);
        }
    }

    #[test]
    fn objects_that_have_ended_are_found_after_a_death_and_after_a_failed_release() {
        let region = region();
        let header = region.inner().header();
        for tells in [&header.deaths, &header.names_searched[2]] {
            let object = make(&region, "ends").unwrap();
            end(&region, object, true);
            make(&region, "no reason to search").unwrap();
            assert_eq!(names(&region), 2);
            tells.fetch_add(1, Ordering::Relaxed);
            let next = make(&region, "next").unwrap();
            assert_eq!(names(&region), 2);
            for name in ["no reason to search", "next"] {
                end(&region, make(&region, name).unwrap(), false);
            }
            assert!(next.has_ended());
        }
    }

    /// A task has ended the object, and has not freed the name yet; another one uses the memory.
    #[test]
    fn an_object_of_the_same_name_does_not_begin_in_memory_that_is_in_use() {
        let region = region();
        let object = make(&region, "name").unwrap();
        object.in_use.store(true, Ordering::Relaxed);
        end(&region, object, true);
        let next = make(&region, "name").unwrap();
        assert!(!core::ptr::eq(next, object) && object.has_ended());
        // The first task frees the name now, which is no longer that of its object.
        region.inner().release_name(object);
        assert!(core::ptr::eq(make(&region, "name").unwrap(), next));
        object.in_use.store(false, Ordering::Relaxed);
        assert!(core::ptr::eq(make(&region, "other").unwrap(), object));
    }

    /// A task that dies as it claims an entry leaves it claimed, with the object that it had before: with none.
    #[test]
    fn a_free_entry_has_no_object() {
        let region = region();
        for name in ["a", "b"] {
            end(&region, make(&region, name).unwrap(), false);
        }
        let entries = region.inner().entries().iter();
        assert!(entries.clone().all(|entry| entry.object().is_none()));
        for entry in entries {
            entry
                .state
                .store(super::super::names::CLAIMED, Ordering::Relaxed);
        }
        let directory = Directory::lock(region.inner()).unwrap();
        directory.repair();
        drop(directory);
        assert_eq!(names(&region), 0);
    }

    /// An object that has ended and still has its name may have the memory that the creation lacks.
    #[test]
    fn a_creation_that_fails_is_tried_again_after_a_search() {
        let region = region();
        end(&region, make(&region, "ends").unwrap(), true);
        let tries = Cell::new(0);
        let made = region.reused(
            "new",
            |_| Ok(None),
            |object: &Object| {
                tries.set(tries.get() + 1);
                if names(&region) == 2 {
                    return Err(ObjectError::NotFound);
                }
                object.lives.store(true, Ordering::Relaxed);
                Ok(())
            },
        );
        made.unwrap();
        assert_eq!((tries.get(), names(&region)), (2, 1));
        let failed: Result<(), ObjectError> = region.reused(
            "fails",
            |_| Ok(None),
            |_: &Object| Err(ObjectError::NotFound),
        );
        failed.unwrap_err();
        assert_eq!(names(&region), 1);
    }

    /// Only a hostile task makes such a list of spares.
    #[test]
    fn a_spare_that_has_not_ended_is_not_used() {
        let region = region();
        let lives = make(&region, "ends").unwrap();
        end(&region, lives, false);
        lives.lives.store(true, Ordering::Relaxed);
        let other = make(&region, "new").unwrap();
        assert!(!core::ptr::eq(lives, other));
    }

    /// Another task ends the object while `open` runs. The name then gets a new object.
    #[test]
    fn an_object_that_ends_as_it_is_opened_is_not_opened() {
        let region = region();
        let first = make(&region, "name").unwrap();
        let open = |object: &Object| {
            end(&region, object, true);
            object.in_use.store(true, Ordering::Relaxed);
            Ok(None)
        };
        let second = region.reused("name", open, |object| {
            object.lives.store(true, Ordering::Relaxed);
            Ok::<_, ObjectError>(object)
        });
        assert!(!core::ptr::eq(first, second.unwrap()));
        assert_eq!(names(&region), 1);
    }
}
