//! The calling thread's robust list: libc's own list, which this library uses and never replaces.
//!
//! Source: `Documentation/locking/robust-futexes.rst` of Linux; the node layouts of glibc and musl.
//!
//! The kernel keeps one list head per thread. When the thread dies (or calls `exec`), the kernel walks the
//! list, sets `OWNER_DIED` in each word that holds the thread's ID, and wakes one waiter of each. One offset
//! from list node to word serves the whole list, so all its users must lay out a node as libc lays out its
//! mutex. libc also follows `prev` and `next` of the neighbours when it unlinks its own nodes, so [`Node`] is a
//! true doubly-linked node of that shape.
//!
//! | field | glibc LP64 | musl LP64 |
//! | --- | --- | --- |
//! | word | +0 | +4 |
//! | type | +16 | +0 |
//! | prev, next | +24, +32 | +24, +32 |
//! | offset word − next | −32 | −28 |
//!
//! *musl's* `pthread_exit` walks the list itself, before the kernel: it marks each word, and wakes one waiter if the word
//! has `WAITERS`, by the kind of wake-up that the type names. It does not keep `WAITERS`, as the kernel does.
//!
//! Links point at `next` fields; bit 0 of a link marks a PI lock; glibc's head has a `prev` right before it,
//! musl's has none.
//!
//! *Tails* are nodes that stay behind all locks as long as they are on the list: once the kernel has marked a
//! tail's word, it has processed all other nodes. Locks are linked at the front (by libc), or behind a node
//! that is no tail (by this library), so no lock gets behind a tail. For the operations that link or unlink a
//! lock, the list *ends* at the first tail, or at the head if there is none. Like the head's, a tail's `prev`
//! is not maintained: unlinking a tail, which is rare, walks to it.
#![allow(unsafe_code)]

use super::errno::done;
use crate::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};
use core::ptr::{self, NonNull};

/// The part of libc's thread descriptor that the kernel walks.
///
/// Safe code cannot get a reference to one. A caller of `Me::head` or [`find`] guarantees that it uses the list in its own
/// thread, and that a node that it announces stays where it is until the announcement ends. So the methods that announce a
/// node, or walk the list, are safe.
#[repr(C)]
pub struct Head {
    /// Address of the first node's `next`, or of this field when the list is empty.
    next: AtomicUsize,
    /// Distance from a node's `next` to its word.
    word_offset: isize,
    /// The node being locked or unlocked, 0 if none.
    pending: AtomicUsize,
}

/// A head of this library's own, with the `prev` that libc keeps in front of it, for a child of a raw clone in
/// which no head of libc's is registered.
#[repr(C)]
pub struct OwnHead {
    prev: AtomicUsize,
    head: Head,
}

/// A lock as an element of the list: word, some space for its user, and the links.
#[repr(C, align(8))]
pub struct Node {
    #[cfg(target_env = "musl")]
    kind: AtomicU32,
    /// The owner's thread ID, `WAITERS`, `OWNER_DIED`.
    pub word: AtomicU32,
    /// For the lock's own use.
    pub state: AtomicU32,
    /// For its protocol: the queue in front of the word, if there is one.
    pub queue: AtomicU32,
    /// For its protocol: a ceiling, or a request.
    pub extra: AtomicU32,
    #[cfg(not(target_env = "musl"))]
    kind: AtomicU32,
    /// For its protocol: a number that never changes. (Neither libc uses these bytes in a mutex of this type.)
    pub setting: u32,
    prev: AtomicUsize,
    next: AtomicUsize,
}

const NEXT: usize = core::mem::offset_of!(Node, next);
const PREV_BEFORE_NEXT: usize = NEXT - core::mem::offset_of!(Node, prev);
const WORD_OFFSET: isize = core::mem::offset_of!(Node, word) as isize - NEXT as isize;

#[cfg(all(target_env = "gnu", target_pointer_width = "64"))]
const _: () = assert!(WORD_OFFSET == -32 && PREV_BEFORE_NEXT == 8 && size_of::<Node>() == 40);

/// The type of a mutex without waiter bookkeeping in glibc, and of one that processes share in musl.
const KIND: u32 = if cfg!(target_env = "musl") { 128 } else { 16 };
/// Where a node's [`AtEnd`] begins in its type: in bits that no libc uses.
const AT_END: u32 = 10;
const AT_END_MASK: u32 = 7;
/// Bit 0 of a link: the node inherits priority, and the kernel leaves the wake-up to its PI state.
pub const PI: usize = 1;

/// Whether the head has a `prev` in front of it. What musl has there is the pointer to the values of the thread's keys.
const HAS_PREV: bool = cfg!(not(target_env = "musl"));

/// How many entries of a dead task's list the kernel walks (`ROBUST_LIST_LIMIT`).
pub const KERNEL_LIMIT: usize = 2048;

/// What becomes of a node that is on a thread's list when the thread ends in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AtEnd {
    /// The kernel hands it on, as after a death: libc's nodes, those of the C interface, life-words, tails.
    HandOn = 0,
    /// A lock that stays its process's.
    Keep = 1,
    /// A lock whose word only the kernel may pass on: it is lost.
    Lose = 2,
    /// A life-word that stays its process's: it goes to the front of a list.
    KeepLife = 3,
    /// A tail that stays its process's.
    KeepTail = 4,
}

/// An [`AtEnd`] as the type of a node contains it.
const fn kind_of(at_end: AtEnd) -> u32 {
    KIND | (at_end as u32) << AT_END
}

impl Node {
    /// An unlocked node that is on no list.
    pub const fn new(extra: u32, at_end: AtEnd) -> Self {
        Self {
            word: AtomicU32::new(0),
            state: AtomicU32::new(0),
            queue: AtomicU32::new(0),
            extra: AtomicU32::new(extra),
            kind: AtomicU32::new(kind_of(at_end)),
            setting: 0,
            prev: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Whether another lock follows this one on the list that ends at `end`.
    #[inline(always)]
    pub fn is_followed_on(&self, end: usize) -> bool {
        self.next.load(Ordering::Relaxed) != end
    }

    /// The address of this node in the list.
    #[inline]
    pub fn link(&self) -> usize {
        ptr::from_ref(self).addr() + NEXT
    }

    /// Sets what becomes of the node when its thread ends in good order.
    pub fn set_at_end(&self, at_end: AtEnd) {
        // Relaxed: for the thread that holds the node, here and in `at_end_of`.
        self.kind.store(kind_of(at_end), Ordering::Relaxed);
    }
}

/// What becomes of the node at a link of the calling thread's list when the thread ends in good order.
///
/// # Safety
/// The link is on the list, and the node, which may be libc's, stays in memory meanwhile.
unsafe fn at_end_of(link: usize) -> AtEnd {
    let kind = link - NEXT + core::mem::offset_of!(Node, kind);
    // SAFETY: a node of any library has its type there: that is a part of the layout that they share.
    let kind = unsafe { &*ptr::with_exposed_provenance::<AtomicU32>(kind) };
    match kind.load(Ordering::Relaxed) >> AT_END & AT_END_MASK {
        1 => AtEnd::Keep,
        2 => AtEnd::Lose,
        3 => AtEnd::KeepLife,
        4 => AtEnd::KeepTail,
        _ => AtEnd::HandOn,
    }
}

impl OwnHead {
    fn head(&mut self) -> NonNull<Head> {
        self.head.word_offset = WORD_OFFSET;
        NonNull::from(&mut self.head)
    }
}

/// Why a thread cannot own robust locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The kernel or a sandbox refuses `get_robust_list` or `set_robust_list`.
    Refused(rustix::io::Errno),
    /// This libc lays out its mutexes in a way that this build does not know.
    ForeignLayout(isize),
}

/// Finds the calling thread's list head.
///
/// `known` is the head that this thread had before it became another process. After a raw clone the kernel has
/// none registered: libc's head is then emptied (its entries are the parent's) and registered again, as libc's
/// own `fork` does. `own` is used if that head is not known, either.
///
/// # Safety
/// `known` was registered for this thread, and lives as long as the thread. So does `own`, if it becomes the head.
pub unsafe fn find(
    known: Option<NonNull<Head>>,
    own: &mut OwnHead,
) -> Result<NonNull<Head>, Unavailable> {
    let head = head_of(0).map_err(Unavailable::Refused)?;
    let head = match (NonNull::new(head), known) {
        (Some(head), _) => head,
        (None, Some(known)) => register(known)?,
        (None, None) => match NonNull::new(registered_by_library()) {
            Some(head) => head,
            None => register(own.head())?,
        },
    };
    // SAFETY: the head registered for this thread stays valid for the thread's life.
    let word_offset = unsafe { (*head.as_ptr()).word_offset };
    if word_offset != WORD_OFFSET {
        return Err(Unavailable::ForeignLayout(word_offset));
    }
    Ok(head)
}

/// The head that is registered for a thread, if there is one; 0 is the calling thread.
pub(super) fn head_of(thread: i32) -> Result<*mut Head, rustix::io::Errno> {
    let (call, mut head, mut length) = (libc::SYS_get_robust_list, ptr::null_mut(), 0usize);
    // SAFETY: the kernel writes only the two variables.
    done(unsafe { libc::syscall(call, thread, &raw mut head, &raw mut length) }).map(|()| head)
}

/// The head that the C library registers when it is made to; null: it registers none.
///
/// glibc registers its head when a thread begins. musl does so when the thread acquires its first process-shared mutex that
/// has an owner; if another head was registered by then, the kernel would lose that, and the locks on it. So here the thread
/// acquires such a mutex. (In the child of a fork musl's head still has the parent's nodes. The caller empties it if it is
/// known. It is not if the parent has used musl's mutexes only: then this does what any lock of musl's does in such a
/// child.)
#[cfg(target_env = "musl")]
fn registered_by_library() -> *mut Head {
    use core::mem::MaybeUninit;
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let mut mutex = MaybeUninit::<libc::pthread_mutex_t>::uninit();
    let (attributes, mutex) = (attributes.as_mut_ptr(), mutex.as_mut_ptr());
    // SAFETY: both are initialised before they are used; the mutex is this thread's alone, and free at the end. Neither
    // holds anything that must be destroyed.
    unsafe {
        libc::pthread_mutexattr_init(attributes);
        libc::pthread_mutexattr_settype(attributes, libc::PTHREAD_MUTEX_ERRORCHECK);
        libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutex_init(mutex, attributes);
        if libc::pthread_mutex_trylock(mutex) == 0 {
            libc::pthread_mutex_unlock(mutex);
        }
    }
    head_of(0).unwrap_or(ptr::null_mut())
}

/// See above: glibc registers its head when a thread begins.
#[cfg(not(target_env = "musl"))]
fn registered_by_library() -> *mut Head {
    ptr::null_mut()
}

fn register(head: NonNull<Head>) -> Result<NonNull<Head>, Unavailable> {
    let front = head.addr().get();
    // SAFETY: the head belongs to this thread; its entries name locks of the parent process.
    unsafe {
        // musl's `fork` clears it: it takes 0 to mean that the head is not registered.
        if head.as_ref().word_offset == 0 {
            (*head.as_ptr()).word_offset = WORD_OFFSET;
        }
        head.as_ref().next.store(front, Ordering::Relaxed);
        head.as_ref().pending.store(0, Ordering::Relaxed);
        if HAS_PREV {
            *prev_of(front) = front;
        }
    }
    let (call, bytes) = (libc::SYS_set_robust_list, size_of::<Head>());
    // SAFETY: the head is valid and lives as long as the thread.
    let registered = done(unsafe { libc::syscall(call, head.as_ptr(), bytes) });
    registered.map(|()| head).map_err(Unavailable::Refused)
}

/// The `prev` field that belongs to the `next` field at `link`.
unsafe fn prev_of(link: usize) -> *mut usize {
    ptr::with_exposed_provenance_mut((link & !PI) - PREV_BEFORE_NEXT)
}

/// All methods below are for the thread that owns the head. The kernel reads the list only when that thread is
/// dead, and the thread stops at an instruction boundary. So only the order of the stores in the program
/// matters: hence compiler fences and relaxed stores.
///
/// *Signal handlers* may link and unlink nodes of their own between any two of these stores. A handler links
/// its node H behind the anchor (libc: behind the head). After H's unlinking everything is as before its
/// linking, except for one `prev`: that of the node to which the *forward* link in front of H leads. It becomes
/// the node behind which H was linked. So no `prev` may be ahead of the forward links:
/// - Linking N between P and Q stores P's link first, then Q's `prev`. A handler in between finds N behind P,
///   and leaves N's `prev` at P. (In the other order it would find Q behind P, and set Q's `prev` from N back
///   to P: the unlinking of Q would then remove N from the list, too.)
/// - Unlinking N between P and Q: in between, either P's link still leads to N, and the handler leaves N's
///   `prev` at P, its old value; or it leads to Q, and Q's `prev` becomes P, its new value.
/// - Unlinking the last node is one store.
///
/// P, N and Q stay the same nodes throughout: a handler releases all that it acquired, and nothing else.
impl Head {
    /// Announces that `node` is about to be locked or unlocked. Returns the previous announcement, which is not
    /// 0 if this is a signal handler that interrupted such an operation. `mark` is 0 or [`PI`].
    #[inline]
    pub fn announce(&self, node: &Node, mark: usize) -> usize {
        let before = self.pending.load(Ordering::Relaxed);
        self.pending.store(node.link() | mark, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        before
    }

    /// # Safety
    /// `next` is a link of this thread's list, or the head's.
    #[inline(always)]
    unsafe fn set_prev(&self, next: usize, prev: usize) {
        if HAS_PREV || next & !PI != self.front() {
            // SAFETY: by the caller's contract.
            unsafe { *prev_of(next) = prev };
        }
    }

    /// Ends the announcement.
    #[inline]
    pub fn settle(&self, before: usize) {
        compiler_fence(Ordering::SeqCst);
        self.pending.store(before, Ordering::Relaxed);
    }

    /// The anchor in front of all nodes, for [`Self::link`].
    #[inline]
    pub fn front(&self) -> usize {
        ptr::from_ref(self).expose_provenance()
    }

    /// Links a locked node behind the one whose link is `behind`; `mark` is 0 or [`PI`]. Returns whether
    /// another node follows it before the `end`.
    ///
    /// The `prev` of the node at the end is not changed: libc has that of the head so that it can write there,
    /// and never reads it. (If the caller passes a wrong end, one `prev` is written needlessly.)
    ///
    /// # Safety
    /// The head is the calling thread's; `behind` is its [`front`](Self::front) or the link of a node on it,
    /// but not of a tail; `node` is locked by this thread and announced, or no other thread uses it and its word does not
    /// hold this thread's ID yet; it is on no list, and stays where it is until it is unlinked or the thread has ended.
    #[inline(always)]
    pub unsafe fn link(&self, node: &Node, mark: usize, behind: usize, end: usize) -> bool {
        let behind_link: *mut usize = ptr::with_exposed_provenance_mut(behind);
        // SAFETY: `behind` is a link of this thread's list; it holds the address of the next one.
        let next = unsafe { *behind_link };
        node.next.store(next, Ordering::Relaxed);
        node.prev.store(behind, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: `behind` is a link of this thread's list. From this store on the kernel finds the node.
        unsafe { *behind_link = ptr::from_ref(&node.next).expose_provenance() | mark };
        compiler_fence(Ordering::SeqCst);
        let is_followed = next != end;
        if is_followed {
            // Last: until here the next node's `prev` is still `behind`, and a handler's lock restores that value.
            // SAFETY: `next` is a node of this thread's list, or the head, if that has a `prev`.
            unsafe { self.set_prev(next, node.link()) };
        }
        is_followed
    }

    /// Unlinks a node that is no tail. Returns whether another node followed it before the `end`.
    ///
    /// # Safety
    /// The head is the calling thread's and the node is on its list, and announced or without the thread's ID in its word.
    #[inline(always)]
    pub unsafe fn unlink(&self, node: &Node, end: usize) -> bool {
        let next = node.next.load(Ordering::Relaxed);
        let prev = node.prev.load(Ordering::Relaxed);
        let was_followed = next != end;
        // SAFETY: both are nodes of this thread's list, or its head.
        unsafe {
            if was_followed {
                self.set_prev(next, prev);
            }
            *ptr::with_exposed_provenance_mut::<usize>(prev & !PI) = next;
        }
        compiler_fence(Ordering::SeqCst);
        was_followed
    }

    /// [`Self::unlink`] for a node right before the `end`.
    ///
    /// # Safety
    /// As for [`Self::unlink`].
    #[inline(always)]
    pub unsafe fn unlink_last(&self, node: &Node, end: usize) {
        let prev = node.prev.load(Ordering::Relaxed);
        // SAFETY: `prev` is a node of this thread's list, or its head.
        unsafe { *ptr::with_exposed_provenance_mut::<usize>(prev & !PI) = end };
        compiler_fence(Ordering::SeqCst);
    }

    /// Links a node behind all others, as a tail.
    ///
    /// # Safety
    /// As for [`Self::link`].
    pub unsafe fn link_tail(&self, tail: &Node) {
        // If the list is longer than the kernel walks, the tail is linked before the last node; the kernel does
        // not reach it either.
        let last = self.links().last().unwrap_or(self.front());
        // SAFETY: by the caller's contract; the last node is on the list.
        unsafe { self.link(tail, 0, last, self.front()) };
    }

    /// Unlinks a tail.
    ///
    /// # Safety
    /// As for [`Self::unlink`].
    pub unsafe fn unlink_tail(&self, tail: &Node) {
        let next = tail.next.load(Ordering::Relaxed);
        let mut at = self.front();
        loop {
            let link: *mut usize = ptr::with_exposed_provenance_mut(at);
            // SAFETY: the head, or a node of this thread's list; it holds the address of the next one.
            let there = unsafe { *link } & !PI;
            if there == tail.link() {
                // SAFETY: `link` is the head's or a node's of this thread's list. From this store on the kernel
                // does not find the tail.
                unsafe { *link = next };
                return compiler_fence(Ordering::SeqCst);
            }
            if there == self.front() || there == 0 {
                return;
            }
            at = there;
        }
    }

    /// The nodes of the list that are to be treated so at the thread's end, front to back, among those that the kernel
    /// walks. The list must not change meanwhile.
    ///
    /// # Safety
    /// The head is the calling thread's, and all nodes on its list stay where they are as long as the references are used.
    pub unsafe fn nodes<'a>(&self, at_end: AtEnd) -> impl Iterator<Item = &'a Node> {
        self.links()
            // SAFETY: the link is on the list.
            .filter(move |link| unsafe { at_end_of(*link) } == at_end)
            // SAFETY: only this library marks nodes, and these are of its type; by the caller's contract they stay.
            .map(|link| unsafe { &*ptr::with_exposed_provenance(link - NEXT) })
    }

    /// Whether the list has a node that is to be treated in one of these ways at the thread's end.
    pub fn has_any(&self, of: &[AtEnd]) -> bool {
        // SAFETY: the link is on the list of the calling thread, so the node is in memory.
        self.links()
            .any(|link| of.contains(&unsafe { at_end_of(link) }))
    }

    /// The links on the list, front to back; at most as many as the kernel walks.
    pub fn links(&self) -> impl Iterator<Item = usize> {
        let front = self.front();
        let mut link = self.next.load(Ordering::Relaxed) & !PI;
        (0..KERNEL_LIMIT).map_while(move |_| {
            let this = link;
            if this == front || this == 0 {
                return None;
            }
            // SAFETY: `this` is a node of this thread's list; it holds the address of the next one.
            link = unsafe { *ptr::with_exposed_provenance::<usize>(this) } & !PI;
            Some(this)
        })
    }
}
