//! The errors that the pages list, and the places in the test programs that cite them.
//!
//! A program cites a reason of an error before it checks for this error:
//!
//! ```c
//! /* lw_region(3), EEXIST: A region of this name exists */
//! CHECK_IS(lw_region_create(&other, name, &options), EEXIST);
//! ```

use super::Page;
use std::path::Path;

/// One reason why functions of a page fail.
pub struct Reason {
    pub page: String,
    /// The errors, one of which a function then returns.
    pub errors: Vec<String>,
    /// What the page says of it, without the page's language.
    pub text: String,
}

impl Page {
    /// The reasons in the section ERRORS. Text after "Or" is another reason.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        let mut is_tag = false;
        for line in self.section("ERRORS") {
            let text = plain(line);
            if is_tag {
                reasons.push(Reason {
                    page: self.name.clone(),
                    errors: text.split(", ").map(str::to_owned).collect(),
                    text: String::new(),
                });
            } else if let (Some(last), false) = (reasons.last_mut(), text.is_empty()) {
                if matches!(text.as_str(), "Or" | "Or:") || text.starts_with("Or: ") {
                    let (page, errors) = (last.page.clone(), last.errors.clone());
                    let text = text.trim_start_matches("Or").trim_start_matches(": ");
                    reasons.push(Reason {
                        page,
                        errors,
                        text: format!("{text} "),
                    });
                } else {
                    last.text += &text;
                    last.text.push(' ');
                }
            }
            is_tag = line == ".TP";
        }
        // "Others" names no error.
        reasons.retain(|reason| reason.errors.iter().all(|error| is_error(error)));
        reasons
    }
}

fn is_error(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit();
    text.len() > 2 && text.starts_with('E') && text.chars().all(is_letter)
}

/// A line of a page, as it is read.
pub fn plain(line: &str) -> String {
    let text = match line.split_once(' ') {
        Some((".B" | ".I", rest)) => rest.to_owned(),
        // These alternate between two fonts.
        Some((".BR" | ".RB" | ".IR" | ".RI" | ".BI" | ".IB", rest)) => super::unquote(rest),
        _ if line.starts_with('.') => String::new(),
        _ => line.to_owned(),
    };
    text.replace("\\-", "-").replace("\\fR", "")
}

/// A place in a test program that says which reason it provokes.
pub struct Citation {
    /// The file and the line.
    pub place: String,
    pub page: String,
    pub error: String,
    pub quote: String,
    /// Whether the code after it names the error.
    pub is_checked: bool,
}

/// The programs of the tests: their names and lines.
pub fn lines_of_programs() -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let mut programs: Vec<_> = files
        .map(|file| {
            let text = std::fs::read_to_string(file.path()).unwrap();
            let name = file.file_name().into_string().unwrap();
            (name, text.lines().map(str::to_owned).collect())
        })
        .collect();
    programs.sort();
    programs
}

/// All citations in the programs of the tests.
pub fn citations() -> Vec<Citation> {
    let mut citations = Vec::new();
    for (file, lines) in lines_of_programs() {
        for (at, line) in lines.iter().enumerate() {
            let Some((page, error, quote)) = cited(line) else {
                continue;
            };
            let code = lines[at + 1..].iter().filter(|line| cited(line).is_none());
            citations.push(Citation {
                place: format!("{file}:{}", at + 1),
                page: page.to_owned(),
                error: error.to_owned(),
                quote: quote.to_owned(),
                is_checked: code.take(4).any(|line| names(line, error)),
            });
        }
    }
    citations
}

/// What a line cites: the page, the error and the words.
fn cited(line: &str) -> Option<(&str, &str, &str)> {
    let inside = line.trim().strip_prefix("/* ")?;
    let inside = inside.trim_end_matches([' ', '\\']).strip_suffix(" */")?;
    let (page, rest) = inside.split_once("(3), ")?;
    let (error, quote) = rest.split_once(": ")?;
    is_error(error).then_some((page, error, quote))
}

/// Whether a line contains the error's name as a word.
fn names(line: &str, error: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    line.split(|letter| !is_part(letter))
        .any(|word| word == error)
}

/// Reasons that no program provokes: pages, errors, and words of the reasons.
pub const NOT_PROVOKED: [(&str, &str, &str); 8] = [
    // hostile_region and region_files.rs, in Rust.
    (
        "lw_region",
        "EAGAIN",
        "or has had its file locked, for ten seconds",
    ),
    // They depend on what other threads, or a killer, do at that moment.
    ("coproc", "EAGAIN", "each time another thread held a lock"),
    ("coproc", "EAGAIN", "The new process died before"),
    ("coproc", "EAGAIN", "a new server process was needed"),
    // They need a kernel that is old, or was built without a part, or memory that nobody has.
    (
        "lw_mutex",
        "ENOMEM ENOSYS ENOTSUP",
        "The system does not provide",
    ),
    ("lw_rwlock", "ENOMEM ENOSYS ENOTSUP", "Robust locks only"),
    (
        "lw_once",
        "ENOMEM ENOSYS ENOTSUP",
        "contains a robust mutex",
    ),
    // It needs a damaged region.
    ("coproc", "EIO", "the shared memory cannot be used"),
];
