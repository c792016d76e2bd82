//! Disturbances for a measurement: programs that spin, and a CPU quota.
//!
//! Neither outlives the benchmark. The kernel kills a spinning program as soon as the thread that started it has ended,
//! for any reason. A control group whose process was killed is empty, and the next benchmark removes it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use libc::c_int;

use super::process::Child;

/// Programs that spin until this is dropped.
pub(crate) struct Spinners {
    _children: Vec<Child>,
}

impl Spinners {
    /// Starts so many, on any processors that this thread may run on.
    pub(crate) fn start(count: u32) -> io::Result<Self> {
        let spin = || -> c_int {
            loop {
                std::hint::spin_loop();
            }
        };
        let children = (0..count).map(|_| Child::fork(spin));
        let _children = children.collect::<io::Result<_>>()?;
        Ok(Self { _children })
    }

    #[cfg(test)]
    pub(crate) fn ids(&self) -> Vec<i32> {
        self._children.iter().map(Child::id).collect()
    }
}

/// A control group that this process is in until this is dropped.
pub(crate) struct Quota {
    group: PathBuf,
    home: PathBuf,
}

const NAME: &str = "latchwork-bench-";
/// The kernel's usual period.
const PERIOD_US: u32 = 100_000;
/// How many times to try to remove a group, a millisecond apart.
const TRIES: u32 = 200;

impl Quota {
    /// Limits this process to so many per cent of one processor.
    ///
    /// # Errors
    /// There are no control groups for processors, or this user may not create one, or the rule of version 2 against
    /// processes in inner groups prevents it.
    pub(crate) fn enter(per_cent: u32) -> io::Result<Self> {
        let (home, is_first_version) = home()?;
        remove_leftovers(&home);
        let group = home.join(format!("{NAME}{}", std::process::id()));
        // It may still exist from the sample before.
        match fs::create_dir(&group) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        // From here on, the group is left and removed on drop.
        let quota = Self { group, home };
        let limit = PERIOD_US / 100 * per_cent;
        if is_first_version {
            fs::write(quota.group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(quota.group.join("cpu.cfs_quota_us"), limit.to_string())?;
        } else {
            fs::write(quota.group.join("cpu.max"), format!("{limit} {PERIOD_US}"))?;
        }
        move_to(&quota.group)?;
        Ok(quota)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let _ = move_to(&self.home);
        // Threads that are just ending stay in it for a moment.
        for _ in 0..TRIES {
            if fs::remove_dir(&self.group).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// All threads of this process.
fn move_to(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.procs"), std::process::id().to_string())
}

/// Removes the groups of benchmarks that were killed: these are empty, and no others can be removed.
fn remove_leftovers(home: &Path) {
    for entry in fs::read_dir(home).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NAME) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The group of this process, and whether it is of the first version.
fn home() -> io::Result<(PathBuf, bool)> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    find_home(&groups, &|path| path.join("cgroup.procs").exists())
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no control group of processors"))
}

fn find_home(groups: &str, is_there: &dyn Fn(&Path) -> bool) -> Option<(PathBuf, bool)> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.trim_start_matches('/');
        let is_first_version = controllers.split(',').any(|name| name == "cpu");
        let mount = match (is_first_version, controllers) {
            (true, _) => Path::new("/sys/fs/cgroup").join(controllers),
            (false, "") => PathBuf::from("/sys/fs/cgroup"),
            _ => return None,
        };
        // In a container the path may be the host's, and the mount itself the container's group.
        let own = [mount.join(path), mount]
            .into_iter()
            .find(|path| is_there(path))?;
        Some((own, is_first_version))
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    /// Whether a process is there, and has not ended.
    fn lives(process: i32) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        state.is_some_and(|state| state != 'Z' && state != 'X')
    }

    #[test]
    fn spinning_programs_end_with_their_owner() {
        let spinners = Spinners::start(2).unwrap();
        let ids = spinners.ids();
        assert!(ids.len() == 2 && ids.iter().all(|id| lives(*id)));
        drop(spinners);
        assert!(!ids.iter().any(|id| lives(*id)));
    }

    #[test]
    fn spinning_programs_end_when_the_benchmark_is_killed() {
        let (reader, mut writer) = io::pipe().unwrap();
        let benchmark = Child::fork(|| {
            let Ok(spinners) = Spinners::start(2) else {
                return 1;
            };
            let ids = spinners.ids();
            let _ = writer.write_all(format!("{} {}\n", ids[0], ids[1]).as_bytes());
            loop {
                thread::park();
            }
        });
        let benchmark = benchmark.unwrap();
        drop(writer);
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).unwrap();
        let ids: Vec<i32> = line
            .split_whitespace()
            .map(|id| id.parse().unwrap())
            .collect();
        assert_eq!(ids.len(), 2);
        // By SIGKILL.
        drop(benchmark);
        let _watchdog = latchwork_testkit::Watchdog::start(format!("they spin on: {ids:?}"));
        while ids.iter().any(|id| lives(*id)) {
            thread::yield_now();
        }
    }

    #[test]
    fn the_group_is_found_in_both_versions() {
        let everywhere = |_: &Path| true;
        let first = "9:name=systemd:/\n2:cpuacct:/a\n1:cpu,cpuset:/b/c\n0::/\n";
        let found = find_home(first, &everywhere);
        assert_eq!(
            found,
            Some((PathBuf::from("/sys/fs/cgroup/cpu,cpuset/b/c"), true))
        );
        let second = "0::/user.slice/session\n";
        let found = find_home(second, &everywhere);
        assert_eq!(
            found,
            Some((PathBuf::from("/sys/fs/cgroup/user.slice/session"), false))
        );
        let in_container = |path: &Path| path == Path::new("/sys/fs/cgroup");
        let found = find_home(second, &in_container);
        assert_eq!(found, Some((PathBuf::from("/sys/fs/cgroup"), false)));
        assert_eq!(find_home("4:memory:/\n", &everywhere), None);
    }

    /// In a separate process, so that other tests are not slowed down.
    #[test]
    fn a_quota_is_left_and_removed() {
        let entered = Child::fork(|| {
            let Ok((home, _)) = home() else { return 3 };
            let before = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            let Ok(quota) = Quota::enter(50) else {
                return 2;
            };
            let group = quota.group.clone();
            let inside = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            if inside == before || !group.starts_with(home) {
                return 1;
            }
            drop(quota);
            let after = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            i32::from(after != before || group.exists())
        });
        match super::super::process::wait_all(vec![entered.unwrap()]) {
            Ok(()) => {}
            Err(error)
                if error.to_string().contains("0x200") || error.to_string().contains("0x300") =>
            {
                eprintln!("skipped: no control group can be made here: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
