//! Reproducible random decisions.

use core::fmt;

/// The seed of a test's random decisions: `LATCHWORK_SEED`, or a new one in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u64);

impl Seed {
    /// The seed from the environment, or a new one.
    ///
    /// # Panics
    /// If `LATCHWORK_SEED` is set, but is not a number (decimal, or hexadecimal after `0x`).
    #[must_use]
    pub fn from_env() -> Self {
        let Ok(text) = std::env::var("LATCHWORK_SEED") else {
            return Self(fastrand::u64(..));
        };
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        Self(number.unwrap_or_else(|error| panic!("LATCHWORK_SEED={text} is no number: {error}")))
    }

    /// As [`Self::from_env`]; also prints the seed, so that a failure can be reproduced.
    ///
    /// # Panics
    /// As for [`Self::from_env`].
    #[must_use]
    pub fn announced() -> Self {
        let seed = Self::from_env();
        println!("LATCHWORK_SEED={seed}");
        seed
    }

    /// A generator; each `stream` of a seed gives different numbers.
    #[must_use]
    pub fn rng(self, stream: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.0 ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}
