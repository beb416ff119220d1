//! A client's own name and version, as it said them.

/// The name, then a NUL and the version if there is one.
#[derive(Debug, Default)]
pub(crate) struct Named(Box<str>);

/// How many characters of each are kept.
const LONGEST: usize = 200;
/// Separates name and version.
const BETWEEN: char = '\0';

impl Named {
    pub(crate) fn new(name: &str, version: Option<&str>) -> Self {
        let mut both: String =
            name.chars().take(LONGEST).map(|c| if c == BETWEEN { char::REPLACEMENT_CHARACTER } else { c }).collect();
        if let Some(version) = version {
            both.push(BETWEEN);
            both.extend(version.chars().take(LONGEST));
        }
        Self(both.into())
    }

    /// Returns the name and the version, where the client said them.
    pub(super) fn parts(&self) -> (Option<&str>, Option<&str>) {
        let said = |text| Some(text).filter(|text: &&str| !text.is_empty());
        let (name, version) = self.0.split_once(BETWEEN).unwrap_or((&self.0, ""));
        (said(name), said(version))
    }
}
