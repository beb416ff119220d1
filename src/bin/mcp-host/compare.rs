//! Compares two texts line by line.

/// Texts are compared line by line only up to this product of the numbers of lines that differ.
const MOST: usize = 1_000_000;

/// A line of the old or the new text, by its number from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A line of both; the number is that of the new text.
    Same(usize),
    Gone(usize),
    New(usize),
}

/// Returns how an old text becomes a new one.
pub(crate) fn steps<T: PartialEq>(before: &[T], now: &[T]) -> Vec<Step> {
    let ahead = before.iter().zip(now).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[ahead..], &now[ahead..]);
    let behind = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();
    let (old, new) = (&old[..old.len() - behind], &new[..new.len() - behind]);
    let mut steps: Vec<Step> = (0..ahead).map(Step::Same).collect();
    if old.len().saturating_mul(new.len()) > MOST {
        steps.extend((0..old.len()).map(|at| Step::Gone(ahead + at)));
        steps.extend((0..new.len()).map(|at| Step::New(ahead + at)));
    } else {
        middle(old, new, ahead, &mut steps);
    }
    steps.extend((now.len() - behind..now.len()).map(Step::Same));
    steps
}

/// Adds the steps between two parts that begin at the line `from` of their texts.
fn middle<T: PartialEq>(old: &[T], new: &[T], from: usize, steps: &mut Vec<Step>) {
    // For each pair of lines, the length of the longest common subsequence from that pair to the ends.
    let mut common = vec![vec![0usize; new.len() + 1]; old.len() + 1];
    for (i, before) in old.iter().enumerate().rev() {
        for (j, now) in new.iter().enumerate().rev() {
            common[i][j] =
                if before == now { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            steps.push(Step::Same(from + j));
            (i, j) = (i + 1, j + 1);
        } else if i < old.len() && (j == new.len() || common[i + 1][j] >= common[i][j + 1]) {
            steps.push(Step::Gone(from + i));
            i += 1;
        } else {
            steps.push(Step::New(from + j));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(before: &str, now: &str) -> String {
        let (before, now): (Vec<char>, Vec<char>) = (before.chars().collect(), now.chars().collect());
        let step = |step: &Step| match *step {
            Step::Same(at) => format!(" {}", now[at]),
            Step::Gone(at) => format!("-{}", before[at]),
            Step::New(at) => format!("+{}", now[at]),
        };
        steps(&before, &now).iter().map(step).collect()
    }

    #[test]
    fn a_difference_has_every_line() {
        assert_eq!(told("abc", "axc"), " a-b+x c");
        assert_eq!(
            (told("", "a"), told("a", ""), told("aa", "aa")),
            ("+a".to_owned(), "-a".to_owned(), " a a".to_owned())
        );
        assert_eq!(told("abcd", "bd"), "-a b-c d");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn both_texts_come_out_of_it(before in "[ab]{0,12}", now in "[abc]{0,12}") {
            let told: Vec<char> = told(&before, &now).chars().collect();
            let side = |sign: char| -> String {
                told.chunks(2).filter(|pair| pair[0] == ' ' || pair[0] == sign).map(|pair| pair[1]).collect()
            };
            prop_assert_eq!((side('-'), side('+')), (before, now));
        }
    }
}
