//! The executions of an operation's instructions.

use std::collections::HashMap;

/// One execution of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many instructions were executed before.
    pub at: u64,
    /// The instruction's address.
    pub address: u64,
    /// How many times this instruction was executed before.
    pub(crate) visit: u32,
    /// How many times it has repeated itself in this execution.
    pub(crate) round: u32,
}

/// What an operation executes.
#[derive(Debug)]
pub struct Recording {
    /// How many instructions it has executed.
    pub instructions: u64,
    /// The executions that are places.
    pub places: Vec<Place>,
    limit: u32,
    visits: HashMap<u64, u32>,
    last: Option<Place>,
}

impl Recording {
    /// Of each instruction, the first `limit` executions are places, and in each of these as many of its repetitions of
    /// itself (as string instructions make).
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            instructions: 0,
            places: Vec::new(),
            limit,
            visits: HashMap::new(),
            last: None,
        }
    }

    /// The instruction at this address is executed next.
    pub fn add(&mut self, address: u64) {
        let at = self.instructions;
        self.instructions += 1;
        let place = match self.last {
            // A string instruction repeats itself; a breakpoint stops it only once.
            Some(last) if last.address == address => Place {
                at,
                round: last.round.saturating_add(1),
                ..last
            },
            _ => {
                let visits = self.visits.entry(address).or_default();
                *visits = visits.saturating_add(1);
                Place {
                    at,
                    address,
                    visit: *visits - 1,
                    round: 0,
                }
            }
        };
        self.last = Some(place);
        if place.visit < self.limit && place.round < self.limit {
            self.places.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_executions_of_each_instruction_are_places() {
        let mut recording = Recording::new(2);
        for address in [10, 11, 11, 11, 12, 10, 11, 12, 10, 11] {
            recording.add(address);
        }
        assert_eq!(recording.instructions, 10);
        let places = recording.places.iter();
        let places: Vec<_> = places
            .map(|place| (place.at, place.address, place.visit, place.round))
            .collect();
        assert_eq!(
            places,
            [
                (0, 10, 0, 0),
                (1, 11, 0, 0),
                (2, 11, 0, 1),
                (4, 12, 0, 0),
                (5, 10, 1, 0),
                (6, 11, 1, 0),
                (7, 12, 1, 0)
            ]
        );
    }
}
