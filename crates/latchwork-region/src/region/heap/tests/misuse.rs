//! Misuse ends the process, with one line on standard error.

use super::*;

/// Runs `f` in a child process, which must abort with a line that has `message`.
fn assert_misuse(test: &str, message: &str, f: impl FnOnce()) {
    const CHILD: &str = "LATCHWORK_HEAP_MISUSE";
    if std::env::var_os(CHILD).is_some() {
        f();
        std::process::exit(0);
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "not noticed");
    assert!(text.contains(message), "{text}");
}

/// The full name of a test in this module.
macro_rules! test_path {
    ($name:ident) => {
        concat!(module_path!(), "::", stringify!($name))
            .split_once("::")
            .unwrap()
            .1
    };
}

#[test]
fn double_free_aborts() {
    assert_misuse(
        test_path!(double_free_aborts),
        "latchwork: double free of 0x",
        || {
            let region = Region::new(1);
            let keep = region.alloc(owner(1), 64);
            let block = region.alloc(owner(1), 64);
            region.free(owner(1), block);
            assert!(region.is_live(keep));
            region.free(owner(1), block);
        },
    );
}

#[test]
fn double_free_across_tasks_aborts() {
    let name = test_path!(double_free_across_tasks_aborts);
    assert_misuse(name, "latchwork: double free of 0x", || {
        let region = Region::new(1);
        let block = region.alloc(owner(1), 64);
        region.free(owner(2), block);
        region.free(owner(1), block);
    });
}

#[test]
fn double_free_of_a_large_block_aborts() {
    let name = test_path!(double_free_of_a_large_block_aborts);
    assert_misuse(name, "latchwork: double free of 0x", || {
        let region = Region::new(4);
        let block = region.alloc(owner(1), 100_000);
        region.free(owner(1), block);
        region.free(owner(1), block);
    });
}

#[test]
fn free_of_an_interior_pointer_aborts() {
    let name = test_path!(free_of_an_interior_pointer_aborts);
    assert_misuse(name, "latchwork: free of a pointer into 0x", || {
        let region = Region::new(1);
        let block = region.alloc(owner(1), 64);
        // SAFETY: the offset is within the block.
        region.free(owner(1), unsafe { block.add(16) });
    });
}

#[test]
fn free_of_a_foreign_pointer_aborts() {
    let name = test_path!(free_of_a_foreign_pointer_aborts);
    assert_misuse(name, "latchwork: free of a foreign pointer 0x", || {
        let region = Region::new(1);
        region.free(owner(1), NonNull::from(&mut 0u8));
    });
}
