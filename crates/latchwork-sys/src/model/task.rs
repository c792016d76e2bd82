//! The calling thread in a model: see `model/mortal.rs`.

use crate::model::mortal;
use crate::sys::robust_list::Head;
use std::cell::Cell;

/// More locks than a model has.
const BUDGET: i32 = 8;

/// A task of a model.
pub struct Record {
    pub tid: u32,
    pub head: Head,
    /// Steps until the task dies.
    pub life: Cell<Option<usize>>,
    budget: Cell<i32>,
}

impl Record {
    pub fn new(tid: u32) -> Self {
        Self {
            tid,
            head: Head::default(),
            life: Cell::new(None),
            budget: Cell::new(BUDGET),
        }
    }

    pub fn begin(&self, life: Option<usize>) {
        self.head.clear();
        self.budget.set(BUDGET);
        self.life.set(life);
    }
}

/// Does not occur in a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskError {}

impl core::fmt::Display for TaskError {
    fn fmt(&self, _: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {}
    }
}

impl core::error::Error for TaskError {}

#[derive(Clone, Copy)]
pub struct Me {
    record: &'static Record,
}

impl Me {
    pub fn get() -> Result<Self, TaskError> {
        Ok(Self::whoever())
    }

    pub fn whoever() -> Self {
        Self {
            record: mortal::current(),
        }
    }

    pub fn tid(self) -> u32 {
        self.record.tid
    }

    pub fn head(self) -> &'static Head {
        &self.record.head
    }

    pub fn budget(self) -> i32 {
        self.record.budget.get()
    }

    pub fn spend(self) {
        self.record.budget.set(self.budget() - 1);
    }

    pub fn refund(self) {
        self.record.budget.set(self.budget() + 1);
    }

    pub fn end(self) -> usize {
        0
    }

    pub fn recount(self) -> i32 {
        self.record.budget.get()
    }

    pub fn anchor(self) -> usize {
        0
    }
}

pub fn after_owner_death(_: usize) {}
