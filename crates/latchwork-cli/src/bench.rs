//! `latchwork bench`: the experiments, which are in a crate of their own.

use crate::failure::Failure;
use latchwork_bench::Ended;
use std::process::ExitCode;

/// Measures and prints, lists, or compares.
pub(crate) fn run(args: &latchwork_bench::Args) -> Result<ExitCode, Failure> {
    Ok(match latchwork_bench::run(args)? {
        Ended::Well => ExitCode::SUCCESS,
        Ended::Regressed => ExitCode::FAILURE,
    })
}
