//! Text in fields of a fixed size.

/// The longest prefix of `text` that is whole characters and at most `max` bytes.
pub fn whole_characters(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
