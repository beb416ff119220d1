//! Finds the ends of JSON strings, and notes in the same pass whether their bytes are what JSON allows.
//!
//! A string is read 64 bytes at a time. Comparisons turn the quotes and the backslashes of a block into one bit each, and
//! arithmetic on these bits tells which quotes are escaped, so text full of escapes costs little more than plain text.
//! The comparisons are those of the `wide` crate: on text with three escapes per line they take a third of the
//! instructions that the same arithmetic takes on plain integers.

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

/// Like [`end`], for a string of any length and content.
fn long(bytes: &[u8], mut at: usize, seen: &mut Seen) -> Option<usize> {
    let mut carried = Carried::default();
    let (mut all, mut plain) = (u8x16::splat(0), 0);
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
        let (quotes, slashes) = (equal(lanes, b'"'), equal(lanes, b'\\'));
        all |= either(lanes);
        let controls = is_control(lanes[0].min(lanes[1]).min(lanes[2].min(lanes[3])));
        if bits(either(quotes) | either(slashes) | controls) | carried.escape | carried.digits == 0 {
            at += BLOCK;
            plain += 1;
            if plain % PLAIN == 0 {
                at += bytes.get(at..).map_or(0, |rest| stride(rest, seen));
            }
            continue;
        }
        let (mut quotes, slashes) = (joined(quotes), joined(slashes));
        let escaped = if slashes | carried.escape == 0 { 0 } else { escaped(slashes, &mut carried.escape) };
        quotes &= !escaped;
        let inside = before(quotes);
        if bits(controls) != 0 {
            seen.control |= joined(lanes.map(is_control)) & inside != 0;
        }
        if escaped & inside | carried.digits != 0 {
            seen.escape = true;
            seen.bad_escape |= !are_escapes(block, escaped & inside, &mut carried.digits);
        }
        if quotes != 0 {
            break Some(at + quotes.trailing_zeros() as usize + 1);
        }
        at += BLOCK;
    };
    seen.beyond_ascii |= bits(all) != 0;
    end
}

/// What one block says about the first bytes of the next.
#[derive(Default)]
struct Carried {
    /// Whether the first byte is escaped, as a bit.
    escape: u64,
    /// The bytes that must be hexadecimal digits.
    digits: u64,
}

/// After every fourth block without anything special, the next special byte is searched for, which is faster in long
/// plain text.
const PLAIN: u32 = 4;

/// Returns how many bytes come before the next quote or backslash; searches at most `AHEAD` bytes.
#[inline(never)]
fn stride(rest: &[u8], seen: &mut Seen) -> usize {
    /// The bytes that were searched are then still in the nearest cache when they are checked.
    const AHEAD: usize = 16 * 1024;
    let ahead = &rest[..rest.len().min(AHEAD)];
    let length = memchr::memchr2(b'"', b'\\', ahead).unwrap_or(ahead.len());
    // Without a branch inside, the loop is vectorized.
    let (low, high) = ahead[..length].iter().fold((u8::MAX, 0), |(low, high), byte| (low.min(*byte), high | *byte));
    seen.control |= low < 0x20;
    seen.beyond_ascii |= high >= 0x80;
    length
}

/// Returns the bits of the bytes that a backslash escapes. `carried` says whether the first byte is escaped; it becomes
/// whether the first byte of the next block is.
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

/// Classifies the letter of an escape: valid, invalid, or `u`, which four hexadecimal digits must follow.
static LETTERS: [u8; 256] = {
    let mut letters = [BAD; 256];
    let (known, mut at) = (b"\"\\/bfnrt", 0);
    while at < known.len() {
        letters[known[at] as usize] = 0;
        at += 1;
    }
    letters[b'u' as usize] = UNIT;
    letters
};
const BAD: u8 = 1;
const UNIT: u8 = 2;

/// Whether the escaped bytes of a block are valid escapes. `digits` are the bits of the bytes that must be hexadecimal
/// digits; it becomes those of the next block.
fn are_escapes(block: &[u8; BLOCK], escaped: u64, digits: &mut u64) -> bool {
    // Text with one `\u` escape often has no other kind, so the escapes are not checked one by one here.
    if *digits != 0 || block[escaped.trailing_zeros() as usize % BLOCK] == b'u' {
        return with_units(block, escaped, digits);
    }
    match letters(block, escaped) {
        0 => true,
        kinds => kinds & BAD == 0 && with_units(block, escaped, digits),
    }
}

/// Like [`are_escapes`], for a block that may have units: `\u` escapes with four hexadecimal digits.
#[inline(never)]
fn with_units(block: &[u8; BLOCK], escaped: u64, digits: &mut u64) -> bool {
    let lanes = lanes(block);
    let units = joined(equal(lanes, b'u')) & escaped;
    let wanted = *digits | units << 1 | units << 2 | units << 3 | units << 4;
    *digits = units >> 63 | units >> 62 | units >> 61 | units >> 60;
    letters(block, escaped & !units) == 0 && wanted & !joined(lanes.map(is_digit)) == 0
}

/// Returns the kinds of the escaped bytes, as bits.
fn letters(block: &[u8; BLOCK], escaped: u64) -> u8 {
    ones(escaped).fold(0, |kinds, at| kinds | LETTERS[usize::from(block[at])])
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

fn equal(lanes: [u8x16; 4], byte: u8) -> [u8x16; 4] {
    lanes.map(|lane| lane.cmp_eq(u8x16::splat(byte)))
}

/// Whether the bytes are hexadecimal digits.
fn is_digit(lane: u8x16) -> u8x16 {
    let is_within = |lane: u8x16, first: u8, last: u8| {
        let from_first = lane - u8x16::splat(first);
        from_first.min(u8x16::splat(last - first)).cmp_eq(from_first)
    };
    is_within(lane, b'0', b'9') | is_within(lane | u8x16::splat(0x20), b'a', b'f')
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
