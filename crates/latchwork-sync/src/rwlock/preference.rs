//! Which side a reader/writer lock prefers: a type parameter of the lock.

use core::time::Duration;

/// Which side a reader/writer lock prefers, and for how long. A program may implement its own:
///
/// ```
/// use core::time::Duration;
/// use latchwork::rwlock::{Preference, RwLock};
/// use latchwork::sharing::Private;
///
/// struct Patient;
/// impl Preference for Patient {
///     const READERS_FIRST: bool = true;
///     const STARVES_AFTER: Duration = Duration::from_millis(50);
/// }
/// static LOCK: RwLock<u32, Private, Patient> = RwLock::new_in(0);
/// ```
pub trait Preference: 'static {
    /// Whether readers that come while a writer waits enter before that writer.
    const READERS_FIRST: bool;
    /// How long others may pass a waiter. Much shorter values cost throughput when there are more tasks than
    /// CPUs: the time in which a task waits for its CPU counts as waiting.
    const STARVES_AFTER: Duration = Duration::from_millis(5);
}

/// A reader that comes while a writer waits has to wait, too.
#[derive(Debug)]
pub struct WritersFirst;

/// A writer waits until no reader holds the lock.
#[derive(Debug)]
pub struct ReadersFirst;

impl Preference for WritersFirst {
    const READERS_FIRST: bool = false;
}

impl Preference for ReadersFirst {
    const READERS_FIRST: bool = true;
}
