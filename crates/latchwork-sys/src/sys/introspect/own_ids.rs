//! Whether `/proc` shows the IDs that this process knows.

use super::path::{Path, each_line};
use crate::sys::confine::may_open;

/// Whether the numbers in `/proc` are those of this process's PID namespace. They are its parent's in a namespace for which
/// nobody has mounted another `/proc`. False, too, if this process cannot read it.
pub fn shows_own_ids() -> bool {
    let mut is_own = false;
    if may_open()
        && let Ok(path) = Path::new(format_args!("/proc/self/status"))
    {
        each_line(&path, |line| {
            let found = has_one_id(line);
            is_own = found == Some(true);
            found.is_some()
        });
    }
    is_own
}

/// The line of the IDs has one for each namespace, from that of `/proc` down to the process's. `None`: it is another line.
fn has_one_id(line: &str) -> Option<bool> {
    let ids = line.strip_prefix("NSpid:")?;
    Some(ids.split_ascii_whitespace().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_of_an_outer_namespace_is_recognised() {
        assert_eq!(has_one_id("NSpid:\t7"), Some(true));
        assert_eq!(has_one_id("NSpid:\t4711\t7"), Some(false));
        assert_eq!(has_one_id("Pid:\t7"), None);
        assert!(shows_own_ids());
    }
}
