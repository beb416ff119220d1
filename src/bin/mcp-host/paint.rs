//! Colors: what each means, and whether a stream gets them.
//!
//! A color never carries meaning alone: the words say the same. **Invariant:** text is escaped before it is painted, so
//! the only escape sequences in the output are the ones made here.

use console::{Color, Style, Term};

/// When to use colors, as `--color` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum When {
    /// On a terminal that supports them, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// What a color means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// Works.
    Good,
    /// Does not work.
    Bad,
    /// Waits for a person, or may not last.
    Warn,
    /// Unimportant.
    Dim,
    /// A heading.
    Head,
    /// `error:`
    Error,
    /// `help:`
    Help,
}

impl Tone {
    /// Returns the tone for a server's state, given the state's name.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "connected" | "ok" => Self::Good,
            "failed" | "unusable" => Self::Bad,
            "unauthorized" | "reconnecting" | "not approved" => Self::Warn,
            _ if state.starts_with("disabled") => Self::Dim,
            "idle" | "disconnected" => Self::Dim,
            _ => Self::Plain,
        }
    }

    fn style(self) -> Style {
        let style = Style::new().force_styling(true);
        match self {
            Self::Plain => style,
            Self::Good => style.fg(Color::Green),
            Self::Bad => style.fg(Color::Red),
            Self::Warn => style.fg(Color::Yellow),
            Self::Dim => style.dim(),
            Self::Head => style.bold(),
            Self::Error => style.fg(Color::Red).bold(),
            Self::Help => style.fg(Color::Cyan).bold(),
        }
    }
}

/// Whether one stream gets colors: all of them, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Paint {
    pub(crate) on: bool,
}

impl Paint {
    /// Decides whether the stream behind this terminal gets colors.
    pub(crate) fn of(when: When, term: &Term) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
        let no = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let off = std::env::var_os("CLICOLOR").is_some_and(|value| value == "0");
        let wishes = Wishes { no: no || off, force: set("CLICOLOR_FORCE") };
        Self { on: decide(when, wishes, term.features().colors_supported()) }
    }

    /// Paints text, which must already be escaped.
    pub(crate) fn tone(self, tone: Tone, text: &str) -> String {
        if !self.on || text.is_empty() || tone == Tone::Plain {
            return text.to_owned();
        }
        tone.style().apply_to(text).to_string()
    }

    /// Paints the label at the start of one of our own sentences. The text must already be escaped.
    pub(crate) fn sentence(self, text: &str) -> String {
        let labels = [
            ("error:", Tone::Error),
            ("warning:", Tone::Warn),
            ("help:", Tone::Help),
            ("note:", Tone::Head),
            ("config:", Tone::Head),
        ];
        match labels.iter().find_map(|(label, tone)| Some((*label, *tone, text.strip_prefix(label)?))) {
            Some((label, tone, rest)) => format!("{}{rest}", self.tone(tone, label)),
            None => text.to_owned(),
        }
    }
}

/// What environment variables request about colors.
#[derive(Clone, Copy, Debug)]
struct Wishes {
    no: bool,
    force: bool,
}

fn decide(when: When, wishes: Wishes, supported: bool) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => !wishes.no && (wishes.force || supported),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_terminal() {
        let wish = |no, force| Wishes { no, force };
        for (when, wishes, supported, colored) in [
            (When::Auto, wish(false, false), true, true),
            (When::Auto, wish(false, false), false, false),
            (When::Auto, wish(true, false), true, false),
            (When::Auto, wish(false, true), false, true),
            (When::Auto, wish(true, true), true, false),
            (When::Always, wish(true, false), false, true),
            (When::Never, wish(false, true), true, false),
        ] {
            assert_eq!(decide(when, wishes, supported), colored, "{when:?} {wishes:?} {supported}");
        }
    }

    #[test]
    fn only_the_first_word_of_a_sentence_is_painted() {
        let (on, off) = (Paint { on: true }, Paint { on: false });
        assert_eq!(on.sentence("error: no error: here"), "\u{1b}[31m\u{1b}[1merror:\u{1b}[0m no error: here");
        assert_eq!(on.sentence("the error: stays"), "the error: stays");
        assert_eq!(off.sentence("error: none"), "error: none");
        assert_eq!(on.tone(Tone::Good, ""), "");
    }
}
