pub(crate) mod misuse;
pub(crate) mod place;
pub(crate) mod reinitialised;
