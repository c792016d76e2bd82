//! Source locations and names as texts on the board, where other processes can read them.

use super::board;
use super::own::Own;
use crate::hook::Site;
use core::cell::Cell;

/// The key of a name: its hash, made even and not 0.
pub(crate) fn key_of(name: &str) -> u64 {
    hash(name.as_bytes()) << 1 | 2
}

/// FNV-1a: names and sites are short.
pub(crate) const fn hash(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

impl Own {
    /// Whether a site is on the board, as far as this thread remembers.
    #[inline]
    pub(crate) fn knows_site(&self, site: Site) -> bool {
        !site.is_location() || self.seen(site).get() == site.raw()
    }

    /// Ensures that a source location is on the board, where other processes can read it.
    #[inline]
    pub(crate) fn know_site(&self, site: Site) {
        if !self.knows_site(site) {
            self.seen(site).set(site.raw());
            enter_site(site);
        }
    }

    #[inline]
    fn seen(&self, site: Site) -> &Cell<u64> {
        &self.sites[(site.raw() >> 3) as usize % self.sites.len()]
    }
}

#[cold]
fn enter_site(site: Site) {
    // SAFETY: only `from_location` makes a site of this kind, and only in this process.
    if let Some(location) = unsafe { site.location() } {
        let (line, column) = (location.line(), location.column());
        let file = tail(location.file());
        enter_text(site.raw(), format_args!("{file}:{line}:{column}"));
    }
}

/// Enters a text, if there is none under its key.
pub(crate) fn enter_text(key: u64, text: core::fmt::Arguments<'_>) {
    if let Some(board) = board::board()
        && board.text_of(key).is_none()
    {
        board::alone(|_| board.enter_text(key, text));
    }
}

/// The site of a line of a source file, which is put on the board.
pub(crate) fn site_of_line(own: &Own, file: &str, line: u32) -> Site {
    let key = hash(file.as_bytes()).wrapping_mul(31);
    let site = Site::of_text(key.wrapping_add(line.into()));
    if own.seen(site).replace(site.raw()) != site.raw() {
        enter_text(site.raw(), format_args!("{}:{line}", tail(file)));
    }
    site
}

/// The last part of a path that is too long for a text.
pub(crate) fn tail(path: &str) -> &str {
    let mut from = path.len().saturating_sub(96);
    while !path.is_char_boundary(from) {
        from += 1;
    }
    &path[from..]
}
