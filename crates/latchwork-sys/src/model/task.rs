//! The calling thread in a model: its ID, its robust list, its budget.
#![allow(unsafe_code)]

use super::step::{TASKS, number};
use crate::sys::robust_list::Head;
use std::cell::Cell;

/// More locks than a model has.
const BUDGET: i32 = 8;

/// A task of a model.
pub struct Record {
    pub tid: u32,
    pub head: Head,
    budget: Cell<i32>,
}

impl Record {
    pub fn new(tid: u32) -> Self {
        Self {
            tid,
            head: Head::default(),
            budget: Cell::new(BUDGET),
        }
    }

    pub fn begin(&self) {
        self.head.clear();
        self.budget.set(BUDGET);
    }
}

std::thread_local! {
    // Never freed: users of a `Head` expect it to live for ever. One set for each test.
    static RECORDS: &'static [Record; TASKS] =
        Box::leak(Box::new(core::array::from_fn(|index| Record::new(index as u32 + 1))));
}

/// The calling task's record.
pub fn current() -> &'static Record {
    RECORDS.with(|records| &records[number()])
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
        Ok(Self::current_or_none())
    }

    /// Each thread of a model is a task: the twins of `CurrentOrNone`'s methods are this type's own.
    pub fn current_or_none() -> Self {
        Self { record: current() }
    }

    pub fn task_with_budget(self) -> Option<Self> {
        (self.budget() > 0).then_some(self)
    }

    /// # Safety
    /// None is needed here.
    pub unsafe fn task_unchecked(self) -> Self {
        self
    }

    pub fn tid(self) -> u32 {
        self.record.tid
    }

    /// A model has one process.
    pub fn stamp(self) -> u32 {
        self.record.tid
    }

    /// # Safety
    /// As for the `Me` that this one models.
    pub unsafe fn head(self) -> &'static Head {
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

pub fn after_marked_death(_: usize) {}
