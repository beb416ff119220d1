//! Converts bytes to hexadecimal digits, and back.

const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// The value of each digit, of either case; `NONE` for characters that are no digits.
const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut value = 0;
    while value < 16 {
        let digit = DIGITS[value];
        values[digit as usize] = value as u8;
        values[digit.to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    values
};
const NONE: u8 = 0xff;

/// Returns `bytes` as lowercase hexadecimal digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(DIGITS[usize::from(value & 0xf)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(*byte));
    }
    text
}

/// Fills `bytes` from digits of either case. Returns `None` if a character is no digit, or if there are not exactly two
/// digits for each byte.
pub(crate) fn decode(digits: &[u8], bytes: &mut [u8]) -> Option<()> {
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    let (pairs, _) = digits.as_chunks::<2>();
    let mut seen = 0;
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        let (high, low) = (VALUES[usize::from(*high)], VALUES[usize::from(*low)]);
        seen |= high | low;
        *byte = high << 4 | low;
    }
    // A value of 16 or more is `NONE`.
    (seen < 16).then_some(())
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
