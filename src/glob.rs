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

/// Reports whether the glob could match a text that begins with `prefix`.
pub(crate) fn may_match_after(glob: &str, prefix: &str) -> bool {
    let glob: Vec<char> = glob.chars().collect();
    // The positions in the glob that matching the characters so far may have reached. A star may match nothing or more.
    let mut at = vec![false; glob.len() + 1];
    at[0] = true;
    let pass_stars = |at: &mut [bool]| {
        for place in 0..glob.len() {
            if at[place] && glob[place] == '*' {
                at[place + 1] = true;
            }
        }
    };
    pass_stars(&mut at);
    for letter in prefix.chars() {
        let mut next = vec![false; glob.len() + 1];
        for place in (0..glob.len()).filter(|place| at[*place]) {
            match glob[place] {
                '*' => next[place] = true,
                wanted if wanted == '?' || wanted == letter => next[place + 1] = true,
                _ => {}
            }
        }
        pass_stars(&mut next);
        at = next;
    }
    at.contains(&true)
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
        fn a_glob_that_matches_may_match_after_each_beginning(glob in "[ab*?]{0,6}", text in "[ab]{0,6}", end in 0_usize..7) {
            let prefix = &text[..end.min(text.len())];
            prop_assert!(!is_match(&glob, &text) || may_match_after(&glob, prefix));
            // If no match can begin with this text, no longer text matches.
            let longer = format!("{text}ab");
            prop_assert!(may_match_after(&glob, &text) || !is_match(&glob, &longer));
        }

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
