//! Keys from the bytes that a terminal sends for them.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The most bytes of a sequence: longer ones are invalid.
const LONGEST: usize = 32;
const ESCAPE: u8 = 0x1b;

/// The key that suspends a program.
pub(crate) fn suspends(key: &KeyEvent) -> bool {
    *key == KeyEvent::new(KeyCode::Char('z'), KeyModifiers::CONTROL)
}

/// The key that ends a program in every view.
pub(crate) fn interrupts(key: &KeyEvent) -> bool {
    *key == KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)
}

/// The line that a key leads to; drawing corrects a line that is too far.
pub(crate) fn moved(code: KeyCode, now: usize, page: usize) -> Option<usize> {
    let page = page.max(1);
    Some(match code {
        KeyCode::Down | KeyCode::Char('j') => now.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => now.saturating_sub(1),
        KeyCode::PageDown => now.saturating_add(page),
        KeyCode::PageUp => now.saturating_sub(page),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => return None,
    })
}

/// The first key, if it is a known one, and its length in bytes; `None` if bytes are missing.
pub(crate) fn first(bytes: &[u8]) -> Option<(Option<KeyEvent>, usize)> {
    let key = |code: KeyCode| Some(KeyEvent::from(code));
    Some(match *bytes {
        [] => return None,
        // A single escape is the key; the bytes of a sequence arrive together.
        [ESCAPE] => (key(KeyCode::Esc), 1),
        [ESCAPE, b'[' | b'O', ..] => return sequence(bytes),
        [ESCAPE, ..] => (key(KeyCode::Esc), 1),
        [b'\r' | b'\n', ..] => (key(KeyCode::Enter), 1),
        [b'\t', ..] => (key(KeyCode::Tab), 1),
        [0x08 | 0x7f, ..] => (key(KeyCode::Backspace), 1),
        [control @ 1..=26, ..] => {
            let letter = KeyCode::Char(char::from(control - 1 + b'a'));
            (Some(KeyEvent::new(letter, KeyModifiers::CONTROL)), 1)
        }
        [0..=0x1f, ..] => (None, 1),
        _ => return character(bytes),
    })
}

fn character(bytes: &[u8]) -> Option<(Option<KeyEvent>, usize)> {
    let chunk = bytes.utf8_chunks().next()?;
    if let Some(character) = chunk.valid().chars().next() {
        let key = KeyEvent::from(KeyCode::Char(character));
        return Some((Some(key), character.len_utf8()));
    }
    let wrong = chunk.invalid();
    // The beginning of a character, whose rest may follow.
    let is_cut = wrong.len() == bytes.len()
        && str::from_utf8(wrong).is_err_and(|error| error.error_len().is_none());
    (!is_cut).then_some((None, wrong.len().max(1)))
}

/// `ESC [` or `ESC O`, numbers, and a final byte.
fn sequence(bytes: &[u8]) -> Option<(Option<KeyEvent>, usize)> {
    let is_end = |byte: &u8| !matches!(byte, 0x20..=0x3f);
    let Some(end) = bytes.iter().skip(2).position(is_end).map(|end| end + 2) else {
        // Two bytes without a successor are keys of their own.
        return match bytes.len() {
            LONGEST.. => Some((None, bytes.len())),
            _ => None,
        };
    };
    // The Linux console's function keys have another letter after that.
    if bytes[1..=end] == *b"[[" {
        let letter = bytes.get(end + 1)?;
        let help = (*letter == b'A').then(|| KeyCode::F(1).into());
        return Some((help, end + 2));
    }
    let number = bytes[2..end].split(|byte| *byte == b';').next();
    let code = match (bytes[end], number.unwrap_or_default()) {
        (b'A', _) => KeyCode::Up,
        (b'B', _) => KeyCode::Down,
        (b'C', _) => KeyCode::Right,
        (b'D', _) => KeyCode::Left,
        (b'H', _) | (b'~', b"1" | b"7") => KeyCode::Home,
        (b'F', _) | (b'~', b"4" | b"8") => KeyCode::End,
        (b'~', b"5") => KeyCode::PageUp,
        (b'~', b"6") => KeyCode::PageDown,
        (b'P', _) | (b'~', b"11") => KeyCode::F(1),
        (b'Z', _) => KeyCode::BackTab,
        _ => return Some((None, end + 1)),
    };
    Some((Some(code.into()), end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork_testkit::Seed;

    fn all(mut bytes: &[u8]) -> (Vec<KeyCode>, usize) {
        let mut keys = Vec::new();
        while let Some((key, length)) = first(bytes) {
            keys.extend(key.map(|key| key.code));
            bytes = &bytes[length..];
        }
        (keys, bytes.len())
    }

    #[test]
    fn keys_are_distinguished() {
        use KeyCode::{BackTab, Backspace, Char, Down, Enter, Esc, F, Home, PageDown, Up};
        let typed = "\x1b[A\x1bOB\x1b[1;5H\x1b[6~\x1b[Z\x1bOP\x1b[[Aqä\r\x7f\x1b";
        let keys = [
            Up,
            Down,
            Home,
            PageDown,
            BackTab,
            F(1),
            F(1),
            Char('q'),
            Char('ä'),
            Enter,
            Backspace,
            Esc,
        ];
        assert_eq!(all(typed.as_bytes()), (keys.to_vec(), 0));
        let (control, _) = first(b"\x03").unwrap();
        let control = control.unwrap();
        assert_eq!(control.code, Char('c'));
        assert_eq!(control.modifiers, KeyModifiers::CONTROL);
    }

    #[test]
    fn parts_of_keys_wait_for_the_rest() {
        assert_eq!(all(b"a\xc3"), (vec![KeyCode::Char('a')], 1));
        assert_eq!(all(b"\x1b["), (vec![], 2));
        assert_eq!(all(b"\x1b[1;"), (vec![], 4));
        assert_eq!(all(b"\xffb"), (vec![KeyCode::Char('b')], 0));
    }

    #[test]
    fn parsing_any_bytes_ends() {
        let mut random = Seed::announced().rng(0);
        for _ in 0..20_000 {
            let some = b"\x1b[O1;~A\xc3\xa4\xe2\xff\x00q";
            let bytes: Vec<u8> = (0..random.usize(..80))
                .map(|_| match random.bool() {
                    true => some[random.usize(..some.len())],
                    false => random.u8(..),
                })
                .collect();
            assert!(all(&bytes).1 < LONGEST);
        }
    }
}
