//! Finds the ends of JSON strings, and notes in the same pass whether their bytes are what JSON allows.
//!
//! A string is read 64 bytes at a time. Comparisons turn the quotes and the backslashes of a block into one bit each, and
//! arithmetic on these bits tells which quotes are escaped, so text full of escapes costs little more than plain text.
//! The comparisons are those of the `wide` crate: on text with three escapes per line they take a third of the
//! instructions that the same arithmetic takes on plain integers, and half of what a search for the next quote takes.

use wide::u8x16;

/// What the strings of a text have shown so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// A byte that is not ASCII. It may stand behind the string, so all of the text has to be checked.
    pub(super) beyond_ascii: bool,
    /// A control character in a string.
    pub(super) control: bool,
    /// An escape.
    pub(super) escape: bool,
    /// An escape that JSON does not have.
    pub(super) bad_escape: bool,
}

const BLOCK: usize = 64;
const LANE: usize = 16;

/// Returns the position behind the closing quote of the string whose text begins at `at`; `None` if it has no end.
#[inline]
pub(super) fn end(bytes: &[u8], at: usize, seen: &mut Seen) -> Option<usize> {
    // Most strings are names, and end here.
    if let Some(first) = bytes.get(at..).and_then(|rest| rest.first_chunk::<LANE>()) {
        let lane = u8x16::new(*first);
        let quotes = bits(lane.cmp_eq(u8x16::splat(b'"')));
        // The highest bit of a byte counts, too: such a byte is not ASCII.
        let special = bits(lane.cmp_eq(u8x16::splat(b'\\')) | is_control(lane) | lane);
        if quotes != 0 && special & before(quotes) == 0 {
            return Some(at + quotes.trailing_zeros() as usize + 1);
        }
    }
    long(bytes, at, seen)
}

/// Does the same as [`end`], for a string of any length and content.
fn long(bytes: &[u8], mut at: usize, seen: &mut Seen) -> Option<usize> {
    // Whether the first byte of the block is escaped, as a bit.
    let mut carried = 0;
    let mut all = u8x16::splat(0);
    let end = loop {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty());
        let Some(rest) = rest else { break None };
        let mut padded;
        let block = match rest.first_chunk::<BLOCK>() {
            Some(block) => block,
            None => {
                padded = [b' '; BLOCK];
                padded[..rest.len()].copy_from_slice(rest);
                &padded
            }
        };
        let lanes = lanes(block);
        let (quotes, slashes) = (lanes.map(|lane| lane.cmp_eq(u8x16::splat(b'"'))), lanes.map(is_slash));
        all |= either(lanes);
        let least = lanes[0].min(lanes[1]).min(lanes[2].min(lanes[3]));
        let controls = is_control(least);
        if bits(either(quotes) | either(slashes) | controls) | carried == 0 {
            at += BLOCK;
            continue;
        }
        let (mut quotes, slashes) = (joined(quotes), joined(slashes));
        let escaped = if slashes | carried == 0 { 0 } else { escaped(slashes, &mut carried) };
        quotes &= !escaped;
        let inside = before(quotes);
        if bits(controls) != 0 {
            seen.control |= joined(lanes.map(is_control)) & inside != 0;
        }
        if escaped & inside != 0 {
            seen.escape = true;
            seen.bad_escape |= !are_escapes(rest, block, escaped & inside);
        }
        if quotes != 0 {
            break Some(at + quotes.trailing_zeros() as usize + 1);
        }
        at += BLOCK;
    };
    seen.beyond_ascii |= bits(all) != 0;
    end
}

/// Returns the bits of the bytes that a backslash escapes. `carried` says whether the first byte is escaped, and from
/// then on whether the first of the next block is.
fn escaped(slashes: u64, carried: &mut u64) -> u64 {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    // A run of backslashes escapes every other one of them, and what follows it if their number is odd. The subtraction
    // carries through each run from its first backslash on.
    let first = slashes & !*carried;
    let runs = (first << 1 | ODD).wrapping_sub(first) ^ ODD;
    let escaped = runs ^ (slashes | *carried);
    *carried = (runs & slashes) >> 63;
    escaped
}

/// What a byte may be in an escape, by bits.
static KINDS: [u8; 256] = {
    let mut kinds = [NO_ESCAPE | NO_DIGIT; 256];
    let (known, mut at) = (b"\"\\/bfnrt", 0);
    while at < known.len() {
        kinds[known[at] as usize] &= !NO_ESCAPE;
        at += 1;
    }
    kinds[b'u' as usize] = UNIT | NO_DIGIT;
    let (digits, mut at) = (b"0123456789abcdefABCDEF", 0);
    while at < digits.len() {
        kinds[digits[at] as usize] &= !NO_DIGIT;
        at += 1;
    }
    kinds
};
/// Not the letter of an escape.
const NO_ESCAPE: u8 = 1;
/// The letter before four hexadecimal digits.
const UNIT: u8 = 2;
/// Not a hexadecimal digit.
const NO_DIGIT: u8 = 4;

/// Whether the escaped bytes of a block are escapes of JSON; `rest` begins with the block.
fn are_escapes(rest: &[u8], block: &[u8; BLOCK], escaped: u64) -> bool {
    let mut kinds = 0;
    for at in ones(escaped) {
        kinds |= KINDS[usize::from(block[at])];
    }
    kinds & NO_ESCAPE == 0 && (kinds & UNIT == 0 || are_units(rest, block, escaped))
}

/// Whether four hexadecimal digits follow each escaped `u`.
fn are_units(rest: &[u8], block: &[u8; BLOCK], escaped: u64) -> bool {
    let mut kinds = 0;
    for at in ones(escaped).filter(|at| block[*at] == b'u') {
        kinds |= match rest.get(at + 1..).and_then(|rest| rest.first_chunk::<4>()) {
            Some(digits) => digits.iter().fold(0, |kinds, digit| kinds | KINDS[usize::from(*digit)]),
            None => NO_DIGIT,
        };
    }
    kinds & NO_DIGIT == 0
}

/// Returns the positions of the bits that are set.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (bits != 0).then(|| bits.trailing_zeros() as usize % BLOCK);
        bits &= bits.wrapping_sub(1);
        at
    })
}

/// Returns the bits before the first one that is set; all if there is none.
fn before(bits: u64) -> u64 {
    (bits & bits.wrapping_neg()).wrapping_sub(1)
}

fn lanes(block: &[u8; BLOCK]) -> [u8x16; 4] {
    let (lanes, _) = block.as_chunks::<LANE>();
    [0, 1, 2, 3].map(|at| u8x16::new(lanes[at]))
}

fn is_slash(lane: u8x16) -> u8x16 {
    lane.cmp_eq(u8x16::splat(b'\\'))
}

fn is_control(lane: u8x16) -> u8x16 {
    lane.min(u8x16::splat(0x1f)).cmp_eq(lane)
}

fn either(lanes: [u8x16; 4]) -> u8x16 {
    (lanes[0] | lanes[1]) | (lanes[2] | lanes[3])
}

/// Returns the highest bit of each byte.
fn bits(lane: u8x16) -> u64 {
    u64::from(lane.move_mask().cast_unsigned())
}

fn joined(lanes: [u8x16; 4]) -> u64 {
    bits(lanes[0]) | bits(lanes[1]) << 16 | bits(lanes[2]) << 32 | bits(lanes[3]) << 48
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads the string byte by byte.
    fn slowly(bytes: &[u8], mut at: usize, seen: &mut Seen) -> Option<usize> {
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            seen.beyond_ascii |= byte >= 0x80;
            seen.control |= byte < 0x20;
            match byte {
                b'"' => return Some(at),
                b'\\' => {
                    seen.escape = true;
                    let letter = *bytes.get(at)?;
                    seen.beyond_ascii |= letter >= 0x80;
                    seen.control |= letter < 0x20;
                    let digits = bytes.get(at + 1..at + 5);
                    seen.bad_escape |= match letter {
                        b'u' => !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
                        _ => !b"\"\\/bfnrt".contains(&letter),
                    };
                    at += 1;
                }
                _ => {}
            }
        }
    }

    proptest! {
        #[test]
        fn a_string_ends_where_a_slow_reader_finds_its_end(
            text in "([a-z]{0,40}|(\\\\){1,9}|\\\\[\"nu]|\\\\u00e9|\\\\u[0-9a-g]{0,4}|é|\u{1}|\"){0,12}",
            behind in "(\n|é|a){0,90}",
        ) {
            let bytes = [text.as_bytes(), behind.as_bytes()].concat();
            let (mut seen, mut slow) = (Seen::default(), Seen::default());
            let wanted = slowly(&bytes, 0, &mut slow);
            prop_assert_eq!(end(&bytes, 0, &mut seen), wanted, "{}", text);
            if wanted.is_some() {
                // What is not ASCII may stand behind the string.
                prop_assert!(seen.beyond_ascii || !slow.beyond_ascii, "{}", text);
                seen.beyond_ascii = slow.beyond_ascii;
                prop_assert_eq!(seen, slow, "{}", text);
            }
        }
    }

    #[test]
    fn escapes_are_told_wherever_a_block_ends() {
        for length in 0..140 {
            for slashes in 0..5 {
                for letter in ["n", "u00e9", "u00g9", "x", "\""] {
                    let text = format!("{}{}{letter}\" \"", "a".repeat(length), "\\".repeat(slashes));
                    let (mut seen, mut slow) = (Seen::default(), Seen::default());
                    let wanted = slowly(text.as_bytes(), 0, &mut slow);
                    assert_eq!((end(text.as_bytes(), 0, &mut seen), seen), (wanted, slow), "{text}");
                }
            }
        }
    }
}
