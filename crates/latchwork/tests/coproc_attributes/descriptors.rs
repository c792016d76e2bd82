//! Descriptors that are passed or shared.

use super::coproc_support::{Copying as _, isolated, region};
use super::{counted, returned};
use latchwork::coproc::{Attributes, descriptors};
use latchwork::region::Region;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;

#[test]
fn chosen_descriptors_arrive_and_no_others() {
    fn entry(_: &Region, secret: i32) -> i32 {
        // SAFETY: asks whether the number is open.
        if unsafe { libc::fcntl(secret, libc::F_GETFD) } != -1 {
            return 1;
        }
        let mut passed: Vec<_> = descriptors().into_iter().map(std::fs::File::from).collect();
        if passed.len() != 2 || !descriptors().is_empty() {
            return 2;
        }
        let mut text = String::new();
        passed[0].read_to_string(&mut text).unwrap();
        passed[1].write_all(text.to_uppercase().as_bytes()).unwrap();
        let ours = passed.iter().map(AsRawFd::as_raw_fd);
        let ours: Vec<_> = ours
            .chain([0, 1, 2])
            .map(|number| number.to_string().into())
            .collect();
        for entry in std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter(|entry| !ours.contains(&entry.file_name()))
        {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let target = target.to_string_lossy();
            // The regions of the test program, and the directory itself.
            assert!(
                target.contains("latchwork") || target.starts_with("/proc/"),
                "{target}"
            );
        }
        7
    }
    isolated(|| {
        let secret = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: copies to a number that nobody uses.
        let secret = unsafe { libc::fcntl(secret.as_raw_fd(), libc::F_DUPFD, 200) };
        let region = region();
        let coprocs = crate::coproc_support::start(&region).unwrap();
        let (input, mut write) = std::io::pipe().unwrap();
        let (mut read, output) = std::io::pipe().unwrap();
        write.write_all(b"hello").unwrap();
        drop(write);
        let attributes = Attributes::new().descriptor(input).descriptor(output);
        assert_eq!(returned(&coprocs, entry, secret, &attributes), 7);
        drop(attributes);
        let mut text = String::new();
        // The end comes, for neither this process nor the zygote holds a copy.
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "HELLO");
    });
}

#[test]
fn a_snapshot_gets_descriptors_of_its_own() {
    fn entry(_: &Region, (): ()) -> i32 {
        let mut passed: Vec<_> = descriptors().into_iter().map(std::fs::File::from).collect();
        passed[0].write_all(b"x").unwrap();
        passed.len() as i32
    }
    let (_region, coprocs) = counted();
    let (mut read, write) = std::io::pipe().unwrap();
    let attributes = Attributes::new().descriptor(write).copying();
    assert_eq!(returned(&coprocs, entry, (), &attributes), 1);
    let mut byte = [0];
    read.read_exact(&mut byte).unwrap();
    assert_eq!(byte, *b"x");
}

#[test]
fn descriptors_are_shared_on_request() {
    fn open(_: &Region, number: i32) -> i32 {
        // SAFETY: copies standard error to a number that nobody uses.
        unsafe { libc::dup2(2, number) }
    }
    isolated(|| {
        let (_region, coprocs) = counted();
        // SAFETY: asks about a number, whatever it stands for.
        let is_open = |number| unsafe { libc::fcntl(number, libc::F_GETFD) } != -1;
        assert_eq!(returned(&coprocs, open, 300, &Attributes::new()), 300);
        assert!(!is_open(300));
        // SAFETY: `open` closes nothing, and uses nothing that the creator owns.
        let sharing = unsafe { Attributes::new().share_files().share_sysv_undo() };
        assert_eq!(returned(&coprocs, open, 300, &sharing), 300);
        assert!(is_open(300));
    });
}
