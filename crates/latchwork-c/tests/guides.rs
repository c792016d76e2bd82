//! The whole files in C and C++ that README and the guides show compile. (Excerpts are those of programs in `examples`,
//! which `programs.rs` compiles and runs: a rule test of `latchwork-testkit` compares them.)

mod support;

use latchwork as _;
use latchwork_c as _;
use latchwork_testkit::guides;
use support::{How, by, compiler, finish, scratch};

const C: [How; 2] = [by("gcc", &["-std=c11"]), by("clang", &["-std=c11"])];
const CPP: [How; 2] = [by("g++", &["-std=c++17"]), by("clang++", &["-std=c++20"])];

#[test]
fn each_file_that_a_guide_shows_compiles() {
    let mut count = 0;
    for document in guides::documents() {
        for block in guides::blocks(&document.text) {
            let hows = match block.language() {
                "c" => C,
                "cpp" => CPP,
                _ => continue,
            };
            if !block.text.starts_with("#include") || block.not_run.is_some() {
                continue;
            }
            count += 1;
            let file = scratch().join(format!("block-{count}.{}", block.language()));
            std::fs::write(&file, &block.text).unwrap();
            for how in hows.into_iter().filter(How::is_there) {
                let mut command = compiler(how);
                // An example may define what it does not use.
                command.args(["-fsyntax-only", "-Wno-unused"]).arg(&file);
                let output = finish(&mut command);
                let said = String::from_utf8_lossy(&output.stderr);
                let place = format!("{}:{}", document.name, block.line);
                assert!(output.status.success(), "{place}: {said}");
            }
        }
    }
    assert!(count >= 2, "only {count} blocks were found");
}
