//! Makes the text of servers harmless for people: one line, without escape sequences, control characters, and invisible
//! ones.

use crate::protocol::escape;

/// Formats server text for a log or an error: escaped, one line, at most `limit` bytes.
pub(crate) fn excerpt(bytes: &[u8], limit: usize) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(limit * 4)]);
    let mut out = String::new();
    for c in text.trim().chars() {
        let before = out.len();
        // Writing to a string cannot fail.
        let _ = escape(&mut out, c);
        if out.len() > limit {
            out.truncate(before);
            break;
        }
    }
    out
}

/// Removes the escape sequences that set colors and move the cursor. Escaped, they would hide the words.
pub(crate) fn plain(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (0x1b, [b'[', sequence @ ..]) => match sequence.iter().position(|byte| matches!(byte, 0x40..=0x7e)) {
                Some(end) => rest = &sequence[end + 1..],
                None => out.push(byte),
            },
            _ => out.push(byte),
        }
    }
    out
}
