//! A death in the reserve that the kernel does not mark.

use crate::region::RegionOptions;
use crate::region::sweep::Swept;
use crate::task::Me;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// In the process that dies in the reserve, the region's name.
const NAME: &str = "LATCHWORK_TEST_RESERVE";

#[test]
fn a_sweep_marks_a_death_in_the_reserve_that_the_kernel_did_not_mark() {
    let options = RegionOptions::new().max_bytes(1 << 20).max_tasks(1);
    if let Ok(name) = std::env::var(NAME) {
        // This thread is not its process's first one. It joins as one that found the table full, and does not leave.
        let region = options.attach(&name).unwrap();
        let (inner, me) = (&region.inner, Me::get().unwrap());
        let reserve = &inner.slots()[inner.max_tasks()..];
        let thread = inner.claimant(me).unwrap();
        let index = inner.claim_in_reserve(reserve, thread).unwrap();
        inner.begin(me, inner.max_tasks() + index, &mut Swept::default());
        panic!("{}", Command::new("true").exec());
    }
    let name = format!("reserve-{}", std::process::id());
    let region = options.unlink_at_last_detach(true);
    let region = region.create_named(&name).unwrap();
    region.join("only task").unwrap();
    let this =
        "region::task::tests::a_sweep_marks_a_death_in_the_reserve_that_the_kernel_did_not_mark";
    let mut command = Command::new(std::env::current_exe().unwrap());
    let died = command.args(["--exact", this]).env(NAME, &name).output();
    let died = died.unwrap();
    assert!(died.status.success(), "{died:?}");
    let reserve = &region.inner.slots()[1..];
    let lives = || reserve.iter().filter(|slot| slot.is_alive()).count();
    assert_eq!(lives(), 1);
    region.sweep().unwrap();
    assert_eq!(lives(), 0);
}
