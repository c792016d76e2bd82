//! The calling task of a model as a task of a region.

use super::mortal;

pub use super::task::after_marked_death;

/// Does not occur in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotATask {}

impl core::fmt::Display for NotATask {
    fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {}
    }
}

impl core::error::Error for NotATask {}

/// The twin of `CurrentOrNone`, as far as region locks use it.
#[derive(Clone, Copy)]
pub struct Me;

impl Me {
    pub fn current_or_none() -> Self {
        Self
    }

    pub fn first_identity_at(self, _: usize) -> Option<u64> {
        Some(mortal::identity())
    }

    pub fn first_held(self) -> u64 {
        1
    }

    pub fn set_first_held(self, _: u64) {}

    pub fn member_at(self, _: usize) -> Option<Member> {
        Some(Member)
    }
}

/// The twin of the task of a region.
#[derive(Clone, Copy)]
pub struct Member;

impl Member {
    pub fn at(_: usize) -> Result<Self, NotATask> {
        Ok(Self)
    }

    pub fn identity(self) -> u64 {
        mortal::identity()
    }

    pub fn is_in_first_region(self) -> bool {
        true
    }

    pub fn acquired(self) {}

    pub fn released(self) {}

    pub fn is_gone(self, identity: u64) -> bool {
        mortal::is_gone(identity)
    }

    /// In a model each death is marked.
    pub fn has_vanished(self, _: u64, _: usize) -> bool {
        false
    }

    pub fn thread_of(self, _: u64) -> Option<u32> {
        None
    }
}
