//! The machine that measures: its properties, and what disturbs a measurement on it.

use std::fs;

use rustix::thread::CpuSet;

use crate::peers::{libc_name, scheduler_class};
use crate::result::{Machine, Run, Warning, today};

/// Describes this machine.
pub fn describe() -> Machine {
    Machine {
        cpu: cpu_name(),
        cpus: u32::try_from(cpus().len()).unwrap_or(u32::MAX),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        libc: libc_name(),
    }
}

/// Describes a run of this process that measures by `command`.
pub(crate) fn describe_run(command: String, quick: bool) -> Run {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let mut flags = processors.lines().filter(|line| line.starts_with("flags"));
    Run {
        date: today(),
        command,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        class: scheduler_class().to_owned(),
        quick,
        virtual_machine: flags.any(|line| line.split_whitespace().any(|flag| flag == "hypervisor")),
        seconds: None,
    }
}

/// The CPUs that this process may run on.
pub(crate) fn cpus() -> Vec<usize> {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| {
        let mut first = CpuSet::new();
        first.set(0);
        first
    });
    (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect()
}

/// Memory that is still available to a process, in MiB: the machine's or the control group's, whichever is less.
pub(crate) fn available_mib() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemAvailable:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        })
        .map_or(0, |kib| kib / 1024);
    machine.min(group_available_mib().unwrap_or(u64::MAX))
}

/// The memory left in this process's control group, if that sets a limit.
fn group_available_mib() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |file: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup{path}/{file}"))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?) >> 20)
}

/// What disturbs each measurement on this machine, or by this build.
pub(crate) fn warnings() -> Vec<Warning> {
    let mut warnings = Vec::new();
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    if let Ok(governor) = governor
        && governor.trim() != "performance"
    {
        warnings.push(Warning::Frequency {
            text: format!(
                "the CPU frequency governor is '{}': the clock may change while measuring; \
                 `cpupower frequency-set -g performance` holds it",
                governor.trim()
            ),
        });
    }
    if cfg!(debug_assertions) {
        warnings.push(Warning::Unoptimised {
            text: "built without optimisation, so that inlined contestants look slow; build with \
                   --release"
                .into(),
        });
    }
    warnings
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // aarch64 kernels print no model name.
    text.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, name)| name.trim())
        .to_owned()
}
