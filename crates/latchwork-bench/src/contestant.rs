//! The contestants of a scenario.

use std::fmt;

/// A contestant and whether it is available here.
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) absent: Option<Absent>,
}

impl Contestant {
    /// A contestant that every machine has.
    pub(crate) fn ready(name: &'static str) -> Self {
        Self { name, absent: None }
    }
}

/// Why a contestant is not available.
#[derive(Debug, Clone)]
pub(crate) struct Absent {
    pub(crate) reason: String,
    /// The Debian package that provides it.
    pub(crate) package: Option<&'static str>,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match self.package {
            Some(package) => write!(f, "; the Debian package {package} provides it"),
            None => Ok(()),
        }
    }
}
