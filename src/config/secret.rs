//! A value that must not be shown.

use std::fmt;

use zeroize::Zeroizing;

/// A text that is never printed: `Debug` hides it, and it implements neither `Display` nor `Serialize`. Its memory is
/// wiped on drop.
///
/// ```
/// let secret = mcp_host::config::Secret::new("hunter2");
/// assert_eq!(format!("{secret:?}"), "[secret]");
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// Returns the value itself, for the code that sends it to where it belongs.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self(Zeroizing::new(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h92_a_secret_is_wiped_and_not_shown() {
        fn is_wiped<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        let secret = Secret::new("planted");
        is_wiped(&secret.0);
        assert_eq!((secret.expose(), format!("{secret:?}")), ("planted", "[secret]".to_owned()));
    }
}
