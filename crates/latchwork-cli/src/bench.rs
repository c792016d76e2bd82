//! `latchwork bench`: the experiments, which are in a crate of their own.

use crate::failure::Failure;
use std::process::ExitCode;

/// Measures and prints, or lists.
pub(crate) fn run(args: &latchwork_bench::Args) -> Result<ExitCode, Failure> {
    latchwork_bench::run(args)?;
    Ok(ExitCode::SUCCESS)
}
