//! The work inside the critical sections of `futex-lock`, as an option names it.

use std::fmt;
use std::str::FromStr;

/// The work inside a critical section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// So many pause instructions, 1 to [`Load::MOST`].
    Pauses(u32),
    /// A sleep of a microsecond.
    Sleep,
}

impl Load {
    /// The most pauses: some milliseconds on most machines.
    pub const MOST: u32 = 100_000;
}

/// A word that names no [`Load`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a load is 'sleep', or a number of pauses from 1 to {}", Load::MOST)]
pub struct ParseLoadError;

/// Reads the word that [`Display`](fmt::Display) writes.
///
/// # Examples
/// ```
/// use latchwork_bench::Load;
///
/// assert_eq!("20".parse(), Ok(Load::Pauses(20)));
/// assert_eq!("sleep".parse(), Ok(Load::Sleep));
/// assert!("0".parse::<Load>().is_err());
/// ```
impl FromStr for Load {
    type Err = ParseLoadError;

    fn from_str(word: &str) -> Result<Self, ParseLoadError> {
        if word == "sleep" {
            return Ok(Self::Sleep);
        }
        let pauses = word.parse().map_err(|_| ParseLoadError)?;
        match pauses {
            1..=Self::MOST => Ok(Self::Pauses(pauses)),
            _ => Err(ParseLoadError),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pauses(pauses) => pauses.fmt(f),
            Self::Sleep => f.pad("sleep"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for load in [Load::Pauses(1), Load::Pauses(Load::MOST), Load::Sleep] {
            assert_eq!(load.to_string().parse(), Ok(load));
        }
        for wrong in ["", "0", "-1", "100001", "99999999999", "1.5", "Sleep"] {
            assert_eq!(wrong.parse::<Load>(), Err(ParseLoadError), "{wrong}");
        }
    }
}
