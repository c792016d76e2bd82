//! The work of the tour: text files, cut into pieces, and their words counted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The length of a piece, which then extends to the end of its last word.
const PIECE_BYTES: usize = 16 << 10;
/// Longer runs of letters and digits, in characters, are data rather than words.
const MAX_WORD: usize = 40;
/// The most different words of a piece: each has at least one byte, and a separator. (The part beyond a piece's nominal
/// length belongs to one character or word.)
pub(super) const MAX_WORDS: usize = PIECE_BYTES / 2 + 2;

/// The text files below a directory, in a stable order, up to a total size.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) files: Vec<PathBuf>,
    pub(super) bytes: u64,
    /// Files omitted because of the limit.
    pub(super) left_out: usize,
}

/// Finds the text files below `root`: regular and readable files without a NUL byte at their beginning, except those in
/// hidden directories or in cargo's build directory.
pub(super) fn find(root: &Path, limit: u64) -> io::Result<Sources> {
    let mut sources = Sources::default();
    std::fs::metadata(root)?;
    let visible = |entry: &walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.depth() == 0
            || !(name.starts_with('.') || entry.file_type().is_dir() && name.starts_with("target"))
    };
    for entry in walkdir::WalkDir::new(root)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(visible)
    {
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_file() || !is_text(entry.path()) {
            continue;
        }
        let Ok(bytes) = entry.metadata().map(|metadata| metadata.len()) else {
            continue;
        };
        if sources.bytes.saturating_add(bytes) > limit {
            sources.left_out += 1;
            continue;
        }
        sources.bytes += bytes;
        sources.files.push(entry.into_path());
    }
    Ok(sources)
}

fn is_text(path: &Path) -> bool {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4096).read_to_end(&mut start));
    read.is_ok_and(|count| count > 0) && !start.contains(&0)
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The words of a text as written. Invalid UTF-8 separates words.
fn words(text: &[u8]) -> impl Iterator<Item = &str> {
    let valid = text.utf8_chunks().map(|chunk| chunk.valid());
    let runs = valid.flat_map(|text| text.split(|letter| !is_word(letter)));
    runs.filter(|run| !run.is_empty() && run.chars().nth(MAX_WORD).is_none())
}

/// Whether a text has any word.
pub(super) fn has_any(text: &[u8]) -> bool {
    words(text).next().is_some()
}

/// Counts the words of a text, in lower case.
pub(super) fn count(text: &[u8], mut word: impl FnMut(&str)) {
    let mut lower = String::new();
    for written in words(text) {
        lower.clear();
        lower.extend(written.chars().flat_map(char::to_lowercase));
        word(&lower);
    }
}

/// The words of a text with their counts.
pub(super) fn counts(text: &[u8]) -> HashMap<String, u64> {
    let mut counts = HashMap::new();
    count(text, |word| match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.to_owned(), 1);
        }
    });
    counts
}

/// Where a file is divided: offset and length of each piece; no word is in two of them.
pub(super) fn pieces(text: &[u8]) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = whole(text, start + PIECE_BYTES);
        pieces.push((start as u64, (end - start) as u64));
        start = end;
    }
    pieces
}

/// The first position from `at` on at which a cut divides neither a character nor a word.
fn whole(text: &[u8], mut at: usize) -> usize {
    const CONTINUES: core::ops::Range<u8> = 0x80..0xc0;
    while text.get(at).is_some_and(|byte| CONTINUES.contains(byte)) {
        at += 1;
    }
    if at >= text.len() {
        return text.len();
    }
    // A character has at most 4 bytes.
    let before = text[at.saturating_sub(4)..at].utf8_chunks().last();
    let before = before.filter(|chunk| chunk.invalid().is_empty());
    if before.is_none_or(|chunk| !chunk.valid().ends_with(is_word)) {
        return at;
    }
    let next = |at: usize| {
        let next = text[at..].get(..4).unwrap_or(&text[at..]);
        let letter = next.utf8_chunks().next()?.valid().chars().next()?;
        is_word(letter).then_some(letter)
    };
    while let Some(letter) = next(at) {
        at += letter.len_utf8();
    }
    at
}

/// Reads a piece of a file.
pub(super) fn read_piece(
    path: &Path,
    offset: u64,
    length: u64,
    text: &mut Vec<u8>,
) -> io::Result<()> {
    text.resize(length as usize, 0);
    File::open(path)?.read_exact_at(text, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_is_cut() {
        let long = "x".repeat(3 * PIECE_BYTES);
        for text in [
            "",
            "a",
            "one two",
            &"ab ".repeat(20_000),
            &format!("{} {long} end", "word ".repeat(4000)),
            &"你好，世界。".repeat(3000),
            &format!("x{}", "Straße ÄÖÜ ".repeat(5000)),
        ]
        .map(str::as_bytes)
        .into_iter()
        .chain([&*b"\x80\xe4\xf6 l\xe4tin1 \xff".repeat(4000)])
        {
            let whole = counts(text);
            let mut parts = HashMap::new();
            let mut next = 0;
            for (offset, length) in pieces(text) {
                assert_eq!(offset, next);
                next += length;
                let piece = counts(&text[offset as usize..][..length as usize]);
                assert!(piece.len() <= MAX_WORDS);
                for (word, count) in piece {
                    *parts.entry(word).or_insert(0) += count;
                }
            }
            assert_eq!(next, text.len() as u64);
            assert_eq!(parts, whole);
        }
    }

    #[test]
    fn words_are_folded_and_data_is_left_out() {
        let counts = counts(format!("The the THE, x_1 {}", "f".repeat(41)).as_bytes());
        assert_eq!(
            counts,
            HashMap::from([("the".into(), 3), ("x_1".into(), 1)])
        );
    }

    #[test]
    fn words_are_those_of_any_script() {
        let counts = counts("你好，世界。Ärger ÄRGER".as_bytes());
        assert_eq!(
            counts,
            HashMap::from([("你好".into(), 1), ("世界".into(), 1), ("ärger".into(), 2)])
        );
        assert!(has_any("世".as_bytes()));
        assert!(!has_any(b"-----\n=====\xff\xfe"));
        assert!(!has_any("x".repeat(41).as_bytes()));
    }
}
