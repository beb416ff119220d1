//! "Did you mean": finds the existing names that are most similar to one that does not exist.
//!
//! **Invariant:** pure; the same names give the same answer in the same order.

/// Returns up to three of `names`, the most similar first: those a few typos away from `wanted`, and those that contain
/// it or are contained in it.
#[must_use]
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted = wanted.to_lowercase();
    let limit = (wanted.chars().count() / 3).max(1);
    let mut found: Vec<(usize, &str)> = names
        .into_iter()
        .filter_map(|name| {
            let lower = name.to_lowercase();
            let distance = distance(&wanted, &lower);
            let part =
                wanted.len() >= PART && (lower.contains(&wanted) || wanted.contains(&lower) && lower.len() >= PART);
            (distance <= limit || part).then_some((distance, name))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found.truncate(3);
    found.into_iter().map(|(_, name)| name).collect()
}

/// Counts the steps that turn one word into another. A step adds, drops, or changes a letter, or swaps two neighbors.
pub(crate) fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut before = Vec::new();
    let mut above: Vec<usize> = (0..=to.len()).collect();
    let mut last = None;
    for (row, a) in from.chars().enumerate() {
        let mut here = vec![row + 1];
        for (column, &b) in to.iter().enumerate() {
            let mut best = (above[column] + usize::from(a != b)).min(above[column + 1] + 1).min(here[column] + 1);
            if column > 0 && Some(b) == last && a == to[column - 1] {
                let earlier: &Vec<usize> = &before;
                best = best.min(earlier[column - 1] + 1);
            }
            here.push(best);
        }
        last = Some(a);
        before = std::mem::replace(&mut above, here);
    }
    above[to.len()]
}

/// How many bytes the shorter of two names must have for "one contains the other" to count.
const PART: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_counted() {
        let pairs = [("", "abc"), ("echo", "echo"), ("ehco", "echo"), ("kitten", "sitting"), ("ab", "ba")];
        assert_eq!(pairs.map(|(from, to)| distance(from, to)), [3, 0, 1, 3, 1]);
    }

    #[test]
    fn near_names_come_nearest_first() {
        let names = ["files__read_file", "files__read_files", "files__write_file", "clock__now"];
        assert_eq!(nearest("files__raed_file", names), ["files__read_file", "files__read_files", "files__write_file"]);
        assert_eq!(nearest("read_file", names), ["files__read_file", "files__read_files"]);
        assert_eq!(nearest("GitHub", ["github"]), ["github"]);
        assert!(nearest("quux", names).is_empty());
    }
}
