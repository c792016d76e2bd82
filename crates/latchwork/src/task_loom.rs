//! The calling thread in a model: see `model/mortal.rs`.

use crate::model::mortal;
use crate::sys::robust_list::Head;
use std::cell::Cell;

/// More locks than a model has.
const BUDGET: i32 = 8;

/// A task of a model.
pub(crate) struct Record {
    pub(crate) tid: u32,
    pub(crate) head: Head,
    /// Steps until the task dies.
    pub(crate) life: Cell<Option<usize>>,
    budget: Cell<i32>,
}

impl Record {
    pub(crate) fn new(tid: u32) -> Self {
        Self {
            tid,
            head: Head::default(),
            life: Cell::new(None),
            budget: Cell::new(BUDGET),
        }
    }

    pub(crate) fn begin(&self, life: Option<usize>) {
        self.head.clear();
        self.budget.set(BUDGET);
        self.life.set(life);
    }
}

/// Does not occur in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unavailable")]
pub enum TaskError {}

#[derive(Clone, Copy)]
pub struct Me {
    record: &'static Record,
}

impl Me {
    pub(crate) fn get() -> Result<Self, TaskError> {
        Ok(Self::whoever())
    }

    pub(crate) fn whoever() -> Self {
        Self {
            record: mortal::current(),
        }
    }

    pub(crate) fn tid(self) -> u32 {
        self.record.tid
    }

    pub(crate) fn head(self) -> &'static Head {
        &self.record.head
    }

    pub(crate) fn budget(self) -> i32 {
        self.record.budget.get()
    }

    pub(crate) fn spend(self) {
        self.record.budget.set(self.budget() - 1);
    }

    pub(crate) fn refund(self) {
        self.record.budget.set(self.budget() + 1);
    }

    pub(crate) fn end(self) -> usize {
        0
    }

    pub(crate) fn recount(self) -> i32 {
        self.record.budget.get()
    }

    pub(crate) fn anchor(self) -> usize {
        0
    }
}

pub(crate) fn after_owner_death(_: usize) {}
