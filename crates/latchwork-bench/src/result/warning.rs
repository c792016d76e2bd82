//! Warnings about the reliability of the figures.

use serde::{Deserialize, Serialize};

/// A warning about the reliability of the figures. The text says what was observed and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Rounds of one contestant differ much.
    Noisy {
        /// What was observed, and what to do.
        text: String,
    },
    /// Other programs keep the CPUs busy.
    Load {
        /// What was observed, and what to do.
        text: String,
    },
    /// The CPU's clock may change while measuring.
    Frequency {
        /// What was observed, and what to do.
        text: String,
    },
    /// There are fewer CPUs than the scenario needs for all its cases.
    FewCpus {
        /// What was observed, and what to do.
        text: String,
    },
    /// A case was left out for lack of memory.
    Memory {
        /// What was left out, and what it needs.
        text: String,
    },
    /// A contestant is not available here.
    Skipped {
        /// The contestant, the reason, and what would provide it.
        text: String,
    },
    /// A contestant failed while it was measured.
    Failed {
        /// The contestant, and the failure.
        text: String,
    },
    /// The measuring code itself was built without optimisation.
    Unoptimised {
        /// What to do.
        text: String,
    },
}

impl Warning {
    /// What was observed, and what to do about it.
    pub fn text(&self) -> &str {
        match self {
            Self::Noisy { text }
            | Self::Load { text }
            | Self::Frequency { text }
            | Self::FewCpus { text }
            | Self::Memory { text }
            | Self::Skipped { text }
            | Self::Failed { text }
            | Self::Unoptimised { text } => text,
        }
    }
}
