//! Replacements in a text, and the style of the text around them: line ends, indentation, lines.
//!
//! **Invariant:** [`apply`] keeps every byte outside of the replaced ranges.

use std::ops::Range;

/// A range of a text, and its replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) at: Range<usize>,
    pub(super) with: String,
}

impl Splice {
    pub(super) fn insert(at: usize, with: impl Into<String>) -> Self {
        Self { at: at..at, with: with.into() }
    }

    pub(super) fn delete(at: Range<usize>) -> Self {
        Self { at, with: String::new() }
    }

    pub(super) fn replace(at: Range<usize>, with: impl Into<String>) -> Self {
        Self { at, with: with.into() }
    }
}

/// Applies replacements, which may come in any order. Returns `None` if two overlap or one does not fit the text.
pub(super) fn apply(text: &str, splices: &[Splice]) -> Option<String> {
    let mut sorted: Vec<&Splice> = splices.iter().collect();
    sorted.sort_by_key(|splice| (splice.at.start, splice.at.end));
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for Splice { at, with } in sorted {
        // An inverted or overlapping range gives `None` here.
        out.push_str(text.get(from..at.start)?);
        text.get(at.clone())?;
        out.push_str(with);
        from = at.end;
    }
    out.push_str(text.get(from..)?);
    Some(out)
}

/// How a text ends its lines and indents them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Style {
    pub(super) newline: &'static str,
    /// One step of indentation.
    pub(super) unit: String,
}

impl Style {
    pub(super) fn of(text: &str) -> Self {
        let newline = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let indented = text.lines().find_map(|line| {
            let rest = line.trim_start_matches([' ', '\t']);
            let is_code = !rest.trim_end().is_empty() && !rest.starts_with(['*', '#', '/']);
            (is_code && rest.len() < line.len()).then(|| &line[..line.len() - rest.len()])
        });
        // A deeper indentation is an alignment, not a step.
        let unit = match indented {
            Some(indent) if indent.starts_with('\t') => "\t",
            Some(indent) if indent.len() <= 8 => indent,
            _ => "  ",
        };
        Self { newline, unit: unit.to_owned() }
    }
}

/// Returns the start of the line that contains an offset.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// Returns the start of the next line.
pub(super) fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

/// Returns the blanks at the start of the line that contains an offset.
pub(super) fn indent(text: &str, at: usize) -> &str {
    let line = &text[line_start(text, at)..];
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Reports whether only blanks precede an offset on its line.
pub(super) fn begins_line(text: &str, at: usize) -> bool {
    text[line_start(text, at)..at].bytes().all(|byte| matches!(byte, b' ' | b'\t'))
}

/// Returns the number of blanks and tabs right after an offset.
pub(super) fn blanks(text: &str, at: usize) -> usize {
    text[at..].bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_replaced_stays() {
        let text = "abcdef";
        let splices = [Splice::insert(6, "!"), Splice::replace(1..3, "X"), Splice::delete(4..5)];
        assert_eq!(apply(text, &splices).as_deref(), Some("aXdf!"));
        assert_eq!(apply(text, &[Splice::delete(1..3), Splice::delete(2..4)]), None);
        assert_eq!(apply(text, &[Splice::insert(7, "")]), None);
        assert_eq!(apply("ä", &[Splice::insert(1, "x")]), None, "inside of a character");
    }

    #[test]
    fn the_style_is_that_of_the_first_lines() {
        let style = |text: &str| {
            let Style { newline, unit } = Style::of(text);
            (newline, unit)
        };
        assert_eq!(style("{\r\n\t\"a\": 1\r\n}"), ("\r\n", "\t".to_owned()));
        assert_eq!(style("/*\n * a\n */\n{\n    \"a\": 1\n}"), ("\n", "    ".to_owned()));
        assert_eq!(style("{}"), ("\n", "  ".to_owned()));
    }
}
