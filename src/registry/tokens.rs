//! How many tokens a text has, roughly: models cut texts in ways of their own.
//!
//! English and JSON have a token for about four characters; Chinese, Japanese and Korean have about three tokens for four.

use super::search::is_cjk;

/// Returns about how many tokens a text has.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "an estimate")]
pub(crate) fn estimate(text: &str) -> usize {
    let (mut ascii, mut wide, mut other) = (0_usize, 0_usize, 0_usize);
    for c in text.chars() {
        match c {
            c if c.is_ascii() => ascii += 1,
            c if is_cjk(c) => wide += 1,
            _ => other += 1,
        }
    }
    (ascii as f64 / 4.25 + wide as f64 * 0.75 + other as f64 * 0.6).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_script_counts_in_its_own_way() {
        assert_eq!((estimate(""), estimate(&"a".repeat(425)), estimate("文件搜索"), estimate("éé")), (0, 100, 3, 2));
    }
}
