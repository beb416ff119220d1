//! Converts bytes to hexadecimal digits, and back.

use std::fmt::Write as _;

/// Returns `bytes` as lowercase hexadecimal digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Fills `bytes` from digits of either case. Returns `None` if a character is no digit, or if there are not exactly two
/// digits for each byte.
pub(crate) fn decode(digits: &[u8], bytes: &mut [u8]) -> Option<()> {
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    let (pairs, _) = digits.as_chunks::<2>();
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(())
}

fn digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encode(&all);
        assert!(text.starts_with("000102") && text.ends_with("fdfeff"), "{text}");
        for text in [text.clone(), text.to_uppercase()] {
            let mut back = [0; 256];
            assert_eq!(decode(text.as_bytes(), &mut back), Some(()));
            assert_eq!(back[..], all);
        }
    }

    #[test]
    fn other_text_is_refused() {
        for text in ["", "0", "000", "00000", "0g00", "+100", "0 00", "0é0"] {
            assert_eq!(decode(text.as_bytes(), &mut [0; 2]), None, "{text}");
        }
        assert_eq!(decode(b"", &mut []), Some(()));
    }
}
