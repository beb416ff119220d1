//! Matches names against globs: `*` matches any text, `?` one character.

/// Reports whether the glob matches the whole text. Only the last star is ever tried at another position, so the number
/// of steps is at most the product of both lengths.
pub(crate) fn is_match(glob: &str, text: &str) -> bool {
    if glob == "*" {
        return true;
    }
    let (mut glob, mut text) = (glob.chars(), text.chars());
    let mut star = None;
    loop {
        let before = text.clone();
        match (glob.next(), text.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                text = before;
                star = Some((glob.clone(), text.clone()));
                continue;
            }
            (Some('?'), Some(_)) => continue,
            (Some(wanted), Some(found)) if wanted == found => continue,
            _ => {}
        }
        let Some((after_star, from)) = &mut star else { return false };
        if from.next().is_none() {
            return false;
        }
        (glob, text) = (after_star.clone(), from.clone());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs() {
        let table = [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("a*", "ba", false),
            ("*a*b", "xaybzb", true),
            ("*a*b", "xayb.", false),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("?", "", false),
            ("**x", "x", true),
            ("get_*", "get_me", true),
            ("[a]", "a", false),
        ];
        for (glob, text, expected) in table {
            assert_eq!(is_match(glob, text), expected, "{glob} {text}");
        }
        assert!(!is_match(&"*a".repeat(50), &"a".repeat(49)));
        assert!(is_match(&"*a".repeat(50), &"a".repeat(5000)));
    }

    proptest! {
        #[test]
        fn globs_agree_with_the_definition(glob in "[ab*?]{0,8}", text in "[ab]{0,8}") {
            fn naive(glob: &[u8], text: &[u8]) -> bool {
                match (glob, text) {
                    ([], []) => true,
                    ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| naive(rest, &text[skip..])),
                    ([wanted, glob @ ..], [found, text @ ..]) => (*wanted == b'?' || wanted == found) && naive(glob, text),
                    _ => false,
                }
            }
            prop_assert_eq!(is_match(&glob, &text), naive(glob.as_bytes(), text.as_bytes()));
        }
    }
}
