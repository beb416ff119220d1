//! "Did you mean", as a question to the user.

pub(crate) use mcp_host::nearest::nearest;

/// Formats `did you mean a, b or c?`; `None` without names.
pub(crate) fn question(names: &[&str]) -> Option<String> {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{}`", crate::text::line(name))).collect();
    match quoted.split_last()? {
        (last, []) => Some(format!("did you mean {last}?")),
        (last, rest) => Some(format!("did you mean {} or {last}?", rest.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_reads_well() {
        assert_eq!(question(&[]), None);
        assert_eq!(question(&["a"]).unwrap(), "did you mean `a`?");
        assert_eq!(question(&["a", "b", "c"]).unwrap(), "did you mean `a`, `b` or `c`?");
    }
}
