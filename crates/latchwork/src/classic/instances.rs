//! The scheduler instances of a table: which processors belong to which.

use super::status::{Name, SCHEDULER_NAME};
use crate::sys::scheduling::{CpuMask, MAX_CPUS};

/// The most scheduler instances of a table.
pub const MAX_SCHEDULERS: usize = 32;

/// The instances; they never change once the table exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instances {
    count: u32,
    /// What was wrong with the instance `faulty`: an index of [`FAULTS`].
    fault: u32,
    faulty: Name,
    names: [Name; MAX_SCHEDULERS],
    /// For each processor its instance, counted from 1; 0: none.
    owners: [u8; MAX_CPUS],
}

/// What can be wrong with an instance.
const FAULTS: [&str; 6] = [
    "nothing is wrong",
    "0 is no name",
    "the name is used twice",
    "there are too many",
    "a processor belongs to an earlier one",
    "a processor's number is too large",
];

impl Instances {
    pub(super) const NONE: Self = Self {
        count: 0,
        fault: 0,
        faulty: 0,
        names: [0; MAX_SCHEDULERS],
        owners: [0; MAX_CPUS],
    };

    /// With one instance more.
    pub(super) const fn with(mut self, name: Name, processors: &[u32]) -> Self {
        let fault = self.add(name, processors);
        if fault != 0 && self.fault == 0 {
            self.fault = fault;
            self.faulty = name;
        }
        self
    }

    const fn add(&mut self, name: Name, processors: &[u32]) -> u32 {
        let count = self.count as usize;
        if name == 0 {
            return 1;
        }
        let mut index = 0;
        while index < count {
            if self.names[index] == name {
                return 2;
            }
            index += 1;
        }
        if count == MAX_SCHEDULERS {
            return 3;
        }
        self.names[count] = name;
        self.count += 1;
        let mut index = 0;
        while index < processors.len() {
            let processor = processors[index] as usize;
            if processor >= MAX_CPUS {
                return 5;
            }
            if self.owners[processor] != 0 && self.owners[processor] as u32 != self.count {
                return 4;
            }
            self.owners[processor] = self.count as u8;
            index += 1;
        }
        0
    }

    /// These instances, or the one of all processors if there are none; else the name of the wrong one, and what is
    /// wrong.
    pub(super) fn complete(self) -> Result<Self, (Name, &'static str)> {
        match self {
            Self { fault: 1.., .. } => Err((self.faulty, FAULTS[self.fault as usize])),
            Self { count: 0, .. } => {
                let mut whole = Self::NONE.with(SCHEDULER_NAME, &[]);
                whole.owners = [1; MAX_CPUS];
                Ok(whole)
            }
            _ => Ok(self),
        }
    }

    /// Whether another process can have stored this.
    pub(super) fn is_sound(&self) -> bool {
        let count = self.count as usize;
        (1..=MAX_SCHEDULERS).contains(&count)
            && self.fault == 0
            && self.owners.iter().all(|owner| usize::from(*owner) <= count)
    }

    pub(super) fn count(&self) -> usize {
        self.count as usize
    }

    /// The instance of a name.
    pub(super) fn named(&self, name: Name) -> Option<usize> {
        let names = &self.names[..self.count()];
        names
            .iter()
            .position(|known| *known == name)
            .filter(|_| name != 0)
    }

    /// The instance that has a processor.
    pub(super) fn owner_of(&self, processor: usize) -> Option<usize> {
        usize::from(*self.owners.get(processor)?).checked_sub(1)
    }

    /// The processors of an instance.
    pub(super) fn processors(&self, instance: usize) -> CpuMask {
        let mut mask = CpuMask::default();
        for (processor, owner) in self.owners.iter().enumerate() {
            if usize::from(*owner) == instance + 1 {
                mask[processor / 64] |= 1 << (processor % 64);
            }
        }
        mask
    }
}
