//! The vDSO: code of the kernel's that a task executes without a system call, to read a clock.
//!
//! It reads a counter, the clock's data, and the counter again, and starts again if the counter has changed. Each tick
//! of the kernel's changes it. A task that is stepped executes a few instructions in a tick, so it starts again and
//! again: on a slow machine, for ever. A tracer lets it run to the end of such a call, as it does in a system call.
//! Nothing is lost by that: the call writes only what it returns, so a kill in it has the effect of a kill before it.

use crate::Task;
use core::cell::OnceCell;
use core::ops::Range;

/// Where a task has the vDSO, once it is asked for.
#[derive(Debug, Default)]
pub(crate) struct Vdso(OnceCell<Range<u64>>);

impl Vdso {
    /// Where the task returns to, if it is at the beginning of a call into the vDSO. `address` is that of its next
    /// instruction.
    pub(crate) fn return_from(&self, task: Task, address: u64) -> std::io::Result<Option<u64>> {
        if !self.has(task, address) {
            return Ok(None);
        }
        // On aarch64 a signal handler returns through the vDSO, where nothing has called it.
        let back = task.return_address()?;
        Ok((!self.has(task, back)).then_some(back))
    }

    /// Whether an address of the task is in the vDSO's code.
    pub(crate) fn has(&self, task: Task, address: u64) -> bool {
        self.0.get_or_init(|| find(task)).contains(&address)
    }
}

/// Empty if there is none, or the task's map cannot be read.
fn find(task: Task) -> Range<u64> {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", task.0)).unwrap_or_default();
    in_maps(&maps).unwrap_or(0..0)
}

fn in_maps(maps: &str) -> Option<Range<u64>> {
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use super::in_maps;

    #[test]
    fn it_is_found_in_a_map() {
        let maps = "ffffacf80000-ffffacf82000 r--p 00000000 00:00 0                          [vvar]\n\
                    ffffacf82000-ffffacf84000 r-xp 00000000 00:00 0                          [vdso]\n\
                    fffffa123000-fffffa144000 rw-p 00000000 00:00 0                          [stack]\n";
        assert_eq!(in_maps(maps), Some(0xffff_acf8_2000..0xffff_acf8_4000));
        assert_eq!(in_maps(""), None);
    }
}
