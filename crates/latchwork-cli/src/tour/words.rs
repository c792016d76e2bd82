//! The work of the tour: text files, cut into pieces, and their words counted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A piece is this long, and then goes on to the end of its last word.
const PIECE_BYTES: usize = 16 << 10;
/// Longer runs of letters and digits are data, not words.
const MAX_WORD: usize = 40;
/// The most different words that a piece can have: they are at least one byte each and separated.
/// (Where a piece goes on beyond its length, it is in one and the same word.)
pub(super) const MAX_WORDS: usize = PIECE_BYTES / 2 + 2;

/// The text files below a directory, in a stable order, up to a total size.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pub(super) files: Vec<PathBuf>,
    pub(super) bytes: u64,
    /// Files left out since the limit was reached.
    pub(super) left_out: usize,
}

/// Finds the text files below `root`: regular, readable, without a NUL byte at their beginning; not
/// those in hidden directories or in cargo's build directory.
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
        if sources.bytes + bytes > limit {
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

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Counts the words of a text, in lower case.
pub(super) fn count(text: &[u8], mut word: impl FnMut(&str)) {
    let mut lower = [0; MAX_WORD];
    for run in text.split(|byte| !is_word(*byte)) {
        if run.is_empty() || run.len() > MAX_WORD {
            continue;
        }
        let lower = &mut lower[..run.len()];
        lower.copy_from_slice(run);
        lower.make_ascii_lowercase();
        // ASCII by `is_word`.
        word(std::str::from_utf8(lower).unwrap_or_default());
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

/// Where a file is cut: offset and length of each piece, no word in two of them.
pub(super) fn pieces(text: &[u8]) -> Vec<(u64, u64)> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let mut end = (start + PIECE_BYTES).min(text.len());
        while end < text.len() && is_word(text[end]) && is_word(text[end - 1]) {
            end += 1;
        }
        pieces.push((start as u64, (end - start) as u64));
        start = end;
    }
    pieces
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
        ] {
            let whole = counts(text.as_bytes());
            let mut parts = HashMap::new();
            let mut next = 0;
            for (offset, length) in pieces(text.as_bytes()) {
                assert_eq!(offset, next);
                next += length;
                let piece = counts(&text.as_bytes()[offset as usize..][..length as usize]);
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
}
