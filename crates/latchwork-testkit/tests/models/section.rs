//! What the owner of a robust lock does with the data, for the models of such locks.

pub const TWO: &str = "two tasks have the lock";
pub const TORN: &str = "torn data is taken for whole";

/// What the owner is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Section {
    Repairs,
    MarksConsistent,
    Writes,
    Finishes,
}

/// Two words that are equal unless an owner is between its two writes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Data {
    torn: bool,
    /// A task saw torn data as whole.
    deceived: bool,
}

impl Data {
    /// A task has the lock; `reported`: with the report of a death.
    pub fn enter(&mut self, reported: bool) -> Section {
        self.deceived |= self.torn && !reported;
        if reported {
            Section::Repairs
        } else {
            Section::Writes
        }
    }

    /// The owner goes on; `None`: it is about to unlock.
    pub fn go(&mut self, at: Section) -> Option<Section> {
        match at {
            Section::Repairs => {
                self.torn = false;
                Some(Section::MarksConsistent)
            }
            Section::MarksConsistent => Some(Section::Writes),
            Section::Writes => {
                self.torn = true;
                Some(Section::Finishes)
            }
            Section::Finishes => {
                self.torn = false;
                None
            }
        }
    }

    pub fn trouble(&self) -> Option<&'static str> {
        self.deceived.then_some(TORN)
    }
}

/// What is wrong if so many tasks have the lock.
pub fn exclusion(owners: usize) -> Option<&'static str> {
    (owners > 1).then_some(TWO)
}
