//! The same work by other means: a single loop, and threads.

use super::words;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Words with their counts.
pub(super) type Counts = HashMap<String, u64>;

/// Counts the words of whole files in a single loop: the reference for the index.
pub(super) fn alone(
    texts: impl Iterator<Item = std::io::Result<Vec<u8>>>,
) -> std::io::Result<Counts> {
    let mut all = Counts::new();
    for text in texts {
        merge(&mut all, words::counts(&text?));
    }
    Ok(all)
}

/// A piece of a file: path, offset, length.
pub(super) type PieceRange<'a> = (&'a PathBuf, u64, u64);

/// Counts the words of pieces with threads of this process, std's mutex and std's map.
pub(super) fn with_threads(pieces: &[PieceRange<'_>], workers: usize) -> std::io::Result<Counts> {
    let all = Mutex::new(Counts::new());
    let next = AtomicUsize::new(0);
    let work = || -> std::io::Result<()> {
        let mut text = Vec::new();
        while let Some((path, offset, length)) = pieces.get(next.fetch_add(1, Relaxed)) {
            words::read_piece(path, *offset, *length, &mut text)?;
            let counts = words::counts(&text);
            merge(
                &mut all
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner),
                counts,
            );
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })?;
    Ok(all
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn merge(all: &mut Counts, counts: Counts) {
    for (word, count) in counts {
        *all.entry(word).or_insert(0) += count;
    }
}
