//! The word of a robust futex, for the models of mutexes that the kernel finds on a list.

#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Word {
    /// The number of a task, from 1; 0: none.
    pub owner: u8,
    pub waiters: bool,
    pub died: bool,
}

impl Word {
    /// What the kernel, or a task in its place, makes of the word of a dead owner.
    pub fn of_dead_owner(self) -> Self {
        Self {
            owner: 0,
            waiters: self.waiters,
            died: true,
        }
    }
}
