//! Estimates how many tokens a text has. Each model counts in its own way.
//!
//! English and JSON have a token for about four characters, and one for a run of spaces; Chinese, Japanese and Korean have
//! about three tokens for four. `tests/retrieval/tokens` compares this with a tokenizer of OpenAI (o200k).

use super::search::is_cjk;

/// Returns about how many tokens a text has.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn estimate(text: &str) -> usize {
    let (mut ascii, mut wide, mut other, mut before) = (0_usize, 0_usize, 0_usize, '\0');
    for c in text.chars() {
        match c {
            ' ' if before == ' ' => {}
            c if c.is_ascii() => ascii += 1,
            c if is_cjk(c) => wide += 1,
            _ => other += 1,
        }
        before = c;
    }
    (ascii as f64 / 4.25 + wide as f64 * 0.75 + other as f64 * 0.6).ceil() as usize
}

/// Returns about how many tokens a text of this many bytes has. A character that is not ASCII has more bytes than an
/// ASCII one, and more tokens in about the same proportion.
pub(crate) fn of_bytes(bytes: u64) -> usize {
    usize::try_from(bytes.saturating_mul(4).div_ceil(17)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_counts_in_its_own_way() {
        assert_eq!((estimate(""), estimate(&"a".repeat(425)), estimate("文件搜索"), estimate("éé")), (0, 100, 3, 2));
        assert_eq!(estimate("a                                b"), 1, "a run of spaces is one token");
        assert_eq!([0, 1, 425, "文件搜索".len() as u64, u64::MAX].map(of_bytes)[..4], [0, 1, 100, 3]);
    }
}
