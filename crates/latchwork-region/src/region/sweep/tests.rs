//! A sweeper whose death the kernel does not mark.

use crate::region::RegionOptions;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// In the process that sweeps, the region's name.
const NAME: &str = "LATCHWORK_TEST_SWEEPER";

#[test]
fn a_sweeper_that_called_exec_keeps_nobody_from_sweeping() {
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(8);
    if let Ok(name) = std::env::var(NAME) {
        // This thread is not its process's first one.
        let region = options.attach(&name).unwrap();
        region.join("sweeper").unwrap();
        let lock = &region.inner.header().sweep_lock;
        lock.lock_raw_with_naps().unwrap();
        panic!("{}", Command::new("true").exec());
    }
    let name = format!("sweeper-{}", std::process::id());
    let region = options.unlink_at_last_detach(true);
    let region = region.create_named(&name).unwrap();
    let this = "region::sweep::tests::a_sweeper_that_called_exec_keeps_nobody_from_sweeping";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let sweeper = command.args(["--exact", this]).env(NAME, &name).output();
    let sweeper = sweeper.unwrap();
    assert!(sweeper.status.success(), "{sweeper:?}");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(region.sweep().unwrap().dead));
    let dead = receiver.recv_timeout(Duration::from_secs(100));
    assert_eq!(dead.expect("the sweep ends"), ["sweeper"]);
}
