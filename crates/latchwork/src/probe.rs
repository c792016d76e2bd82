//! What this kernel, and this process on it, can do: the answers that `latchwork doctor` prints.
//!
//! The library asks the system for each feature once per process, by calls that change nothing (see
//! [`Features::probe`]). It does not infer features from the kernel's version, since distributions backport and sandboxes
//! forbid. (There is one exception: whether a call is free of kernel bugs that cannot be tested safely.)
//!
//! ```
//! use latchwork::probe::{Feature, Features, Status};
//!
//! let features = Features::probe();
//! let list = features.find(Feature::RobustList);
//! assert_eq!((list.since, list.status), (Some((2, 6)), Status::Available));
//! ```

mod ask;
mod feature;

pub use feature::{Feature, Finding, Group, Status};

use crate::sys::{memory, probe as sys};
use std::sync::OnceLock;

/// What this kernel, and this process on it, can do: see the [module](self).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Features {
    /// The kernel's release.
    pub kernel: String,
    /// The C library and its version.
    pub libc: String,
    /// CPUs that the probing thread may run on.
    pub cpus: u32,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// One for each [`Feature`], by group.
    pub findings: Vec<Finding>,
}

impl Features {
    /// Asks the system at the first call; later calls return the same result.
    ///
    /// The calls have no lasting effect: most are made so that the kernel refuses them. One thread is started that ends
    /// at once (it tries a real-time policy), and one empty file exists under a hidden name in `/dev/shm` for a moment.
    pub fn probe() -> &'static Self {
        static FEATURES: OnceLock<Features> = OnceLock::new();
        FEATURES.get_or_init(|| Self {
            kernel: sys::kernel_release(),
            libc: sys::libc_name(),
            cpus: sys::cpus().unwrap_or(1),
            page_bytes: memory::page_bytes(),
            findings: feature::findings(ask::ask),
        })
    }

    /// The finding for one feature.
    ///
    /// # Panics
    /// Never: there is a finding for every feature.
    #[must_use]
    pub fn find(&self, feature: Feature) -> &Finding {
        self.findings
            .iter()
            .find(|finding| finding.feature == feature)
            .expect("a row for every feature")
    }

    /// Whether a feature is available and permitted.
    #[must_use]
    pub fn has(&self, feature: Feature) -> bool {
        self.find(feature).status == Status::Available
    }

    /// The findings of a group.
    pub fn of(&self, group: Group) -> impl Iterator<Item = &Finding> {
        let findings = self.findings.iter();
        findings.filter(move |finding| finding.group == group)
    }

    /// The required features that are missing: if there is any, regions and robust locks do not work.
    pub fn obstacles(&self) -> impl Iterator<Item = &Finding> {
        self.of(Group::Required)
            .filter(|finding| matches!(finding.status, Status::Missing | Status::NotPermitted))
    }
}

#[cfg(test)]
mod tests {
    use super::ask::bytes;
    use super::*;
    use std::path::Path;

    #[test]
    fn every_feature_has_one_row_and_an_answer() {
        let features = Features::probe();
        for finding in &features.findings {
            let same = features
                .findings
                .iter()
                .filter(|other| other.feature == finding.feature || other.name == finding.name);
            assert_eq!(same.count(), 1, "{}", finding.name);
            assert!(!finding.consequence().is_empty(), "{}", finding.name);
        }
        assert!(std::ptr::eq(features, Features::probe()));
    }

    #[test]
    fn features_that_the_tests_need_are_found() {
        let features = Features::probe();
        let obstacles: Vec<_> = features.obstacles().map(|finding| finding.name).collect();
        assert!(obstacles.is_empty(), "{obstacles:?}");
        assert!(features.cpus >= 1 && features.page_bytes >= 4096);
    }

    #[test]
    fn probing_leaves_no_trace() {
        let scheduling = || std::fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
        let policy = |text: String| {
            text.lines()
                .find(|line| line.starts_with("policy"))
                .map(str::to_owned)
        };
        let own = format!(".latchwork-probe-{}-", crate::sys::thread::thread_id());
        // (An earlier thread of this ID may have been killed at it.)
        let files = || {
            let all = crate::sys::inspect::names(Path::new(crate::region::inspect::DIRECTORY));
            let mut own: Vec<_> = all
                .unwrap_or_default()
                .into_iter()
                .filter(|name| name.to_string_lossy().starts_with(&own))
                .collect();
            own.sort();
            own
        };
        let before = (policy(scheduling()), files());
        feature::findings(ask::ask);
        assert_eq!((policy(scheduling()), files()), before);
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(bytes(1023), "1023 bytes");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(24 << 30), "24.0 GiB");
        assert_eq!(bytes(u64::MAX), "16777216.0 TiB");
    }
}
