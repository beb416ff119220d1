//! What a client calls itself: its name and version, as it said them.

/// The name; after a NUL, the version.
#[derive(Debug, Default)]
pub(crate) struct Named(Box<str>);

/// Characters of each that are kept.
const LONGEST: usize = 200;
/// Stands between them.
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

    /// The name and the version, where the client said one.
    pub(super) fn parts(&self) -> (Option<&str>, Option<&str>) {
        let said = |text| Some(text).filter(|text: &&str| !text.is_empty());
        let (name, version) = self.0.split_once(BETWEEN).unwrap_or((&self.0, ""));
        (said(name), said(version))
    }
}
