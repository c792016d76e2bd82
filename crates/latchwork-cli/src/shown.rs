//! What the command shows of one region's file, whoever has written into it: for the fuzz target `shown`. Nothing else uses
//! this module.

use crate::live::{Observer, Symbols};
use crate::{locks, ps, top};
use latchwork::region::AttachError;
use latchwork::region::inspect::inspect_path;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Instant;

/// Shows a file as `ps` and `locks` do, as text and as JSON, and one pane of `top`.
///
/// # Errors
/// As for [`inspect_path`].
///
/// # Panics
/// If what is shown could confuse a terminal, or is no JSON.
pub fn show(file: &Path, pane: u8) -> Result<Shown, AttachError> {
    let begun = Instant::now();
    let report = inspect_path(file)?;
    let has_contents = report.contents.is_ok();
    let mut picture = Observer::default().view_of(vec![report]);
    Symbols::default().name_all(&mut picture);
    let text = |print: &dyn Fn(&mut Vec<u8>) -> io::Result<()>| {
        let mut plain = anstream::StripStream::new(Vec::new());
        let mut styled = Vec::new();
        print(&mut styled).expect("memory takes everything");
        plain.write_all(&styled).expect("memory takes everything");
        String::from_utf8(plain.into_inner()).expect("UTF-8")
    };
    let tables = [
        text(&|out| ps::print(&picture, &ps::Args::default(), out)),
        text(&|out| locks::text::print(&picture, out)),
    ];
    for table in &tables {
        let odd = table
            .chars()
            .find(|sign| sign.is_control() && *sign != '\n');
        assert_eq!(odd, None, "{table:?}");
    }
    let as_json = ps::Args {
        json: true,
        ..Default::default()
    };
    for json in [
        text(&|out| ps::print(&picture, &as_json, out)),
        text(&|out| locks::json::print_line(&picture, out)),
    ] {
        let _: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    }
    let shown = Shown {
        has_contents,
        tasks: picture.tasks.len(),
        locks: picture.locks.len(),
    };
    for screen in top::screens(picture, begun, pane) {
        let odd = screen
            .chars()
            .find(|sign| sign.is_control() && *sign != '\n');
        assert_eq!(odd, None, "{screen:?}");
    }
    Ok(shown)
}

/// How much was shown.
#[derive(Debug)]
pub struct Shown {
    /// Whether the file has contents that can be read.
    pub has_contents: bool,
    /// Tasks of the region.
    pub tasks: usize,
    /// Locks, queues and other objects that tasks own or wait for.
    pub locks: usize,
}
