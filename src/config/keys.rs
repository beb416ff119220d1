//! Tables of config keys. [`keys!`] builds a struct from lines that each give a key's doc, its reader, and its default.
//!
//! A key needs no more than this one line; without a doc it does not compile. The tests below check the key against its
//! line in `config/mcp-host.toml`. The tables are `Server` and `Restart` in `mod.rs`, and `Limits` in `host/limits.rs`.

/// Declares a struct whose fields are config keys, each given by its doc, field, reader, type and default. The key is
/// the field's name in camel case; after the field name, other clients' names for the key follow, separated by bars. A
/// reader is a method of `Field`, or `nested` for a nested table.
///
/// An unknown key is noted; in a `strict struct` it is refused. Before its `keys`, a struct may have other fields, which are
/// initialized from the arguments after the struct's name.
macro_rules! keys {
    (@read nested, $value:expr, $field:ident, $report:ident) => {
        $value.read(&$field, $report)
    };
    (@read $read:ident, $value:expr, $field:ident, $report:ident) => {
        if let Some(value) = $field.$read($report) {
            $value = value;
        }
    };
    (@words word, $kind:ty) => {
        <$kind as $crate::config::keys::Words>::WORDS.iter().map(|(word, _)| *word).collect()
    };
    (@words $read:ident, $kind:ty) => {
        Vec::new()
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($keys:tt)+ }
    ) => {
        $crate::config::keys::keys! { @read_by $crate::config::fields::Fields::finish, $(#[$meta])* $name { $($keys)+ } }
    };
    (
        $(#[$meta:meta])*
        pub strict struct $name:ident { $($keys:tt)+ }
    ) => {
        $crate::config::keys::keys! { @read_by $crate::config::fields::refuse_rest, $(#[$meta])* $name { $($keys)+ } }
    };
    (@read_by $rest:path, $(#[$meta:meta])* $name:ident { $($keys:tt)+ }) => {
        $crate::config::keys::keys! { $(#[$meta])* pub struct $name() {} keys { $($keys)+ } }

        impl Default for $name {
            fn default() -> Self {
                Self::with_defaults()
            }
        }

        impl $name {
            /// Reads the object in this field, and replaces the current values by those that it gives.
            pub(in crate::config) fn read(
                &mut self,
                field: &$crate::config::fields::Field<'_>,
                report: &mut $crate::config::report::Report,
            ) {
                let Some(mut fields) = field.fields(report) else { return };
                self.fill(&mut fields, report);
                let keys = Self::keys();
                $rest(fields, &keys.iter().map(String::as_str).collect::<Vec<_>>(), report);
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident($($given:ident: $given_kind:ty),*) {
            $($(#[doc = $own_doc:literal])+ $own:ident: $own_kind:ty = $own_value:expr,)*
        }
        keys {
            $($(#[doc = $doc:literal])+ $field:ident $(| $other:literal)*: $read:ident -> $kind:ty = $default:expr,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $own_doc])+ pub $own: $own_kind,)*
            $($(#[doc = $doc])+ pub $field: $kind,)+
        }

        impl $name {
            fn with_defaults($($given: $given_kind),*) -> Self {
                Self { $($own: $own_value,)* $($field: $default,)+ }
            }

            /// Returns the keys.
            pub(in crate::config) fn keys() -> Vec<String> {
                vec![$($crate::config::keys::camel_case(stringify!($field)),)+]
            }

            /// Reads the keys that are given, in the order of the table, and replaces the current values by theirs.
            pub(in crate::config) fn fill(
                &mut self,
                fields: &mut $crate::config::fields::Fields<'_>,
                report: &mut $crate::config::report::Report,
            ) {
                $(
                    let key = $crate::config::keys::camel_case(stringify!($field));
                    if let Some(field) = fields.take(&[key.as_str(), $($other),*], report) {
                        $crate::config::keys::keys!(@read $read, self.$field, field, report);
                    }
                )+
            }

            /// Returns the keys, each with the words that it accepts.
            #[cfg(test)]
            #[allow(dead_code, reason = "not every table has lines of its own in the config with every key")]
            pub(in crate::config) fn table() -> Vec<(String, Vec<&'static str>)> {
                let words: Vec<Vec<&'static str>> = vec![$($crate::config::keys::keys!(@words $read, $kind),)+];
                Self::keys().into_iter().zip(words).collect()
            }
        }
    };
}

/// Declares an enum for a setting that accepts a few words, each given by the doc and name of its variant, and the
/// word.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$about:meta])+ $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name {
            $($(#[$about])+ $variant,)+
        }

        impl $crate::config::keys::Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant),)+];
        }
    };
}

pub(in crate::config) use {keys, words};

/// A setting that accepts a few words.
pub(crate) trait Words: Copy + PartialEq + 'static {
    /// The words, in the order in which messages list them.
    const WORDS: &'static [(&'static str, Self)];

    /// Returns the word for this value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, value)| *value == self).map_or("", |(word, _)| *word)
    }
}

/// Converts `MAX_LENGTH` and `max_length` to `maxLength`.
pub(super) fn camel_case(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c.to_ascii_lowercase()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Limits, Remote, Restart, Server, Syntax, Transport, Vars, parse_str, transport};
    use super::*;

    /// Returns the parts of the file with every key that are about servers and about limits.
    fn shown() -> (String, String) {
        let text = std::fs::read_to_string("config/mcp-host.toml").unwrap();
        let (servers, host) = text.split_once("\n[host]\n").unwrap();
        let (_, limits) = host.split_once("\n[host.limits]\n").unwrap();
        (servers.to_owned(), limits.to_owned())
    }

    /// Returns the line of a key, commented out or not, and its comment, which may continue below.
    fn line(part: &str, key: &str) -> Option<(String, String)> {
        let is_line = |line: &str| line.trim_start_matches("# ").starts_with(&format!("{key} = "));
        let mut lines = part.lines().skip_while(|line| !is_line(line));
        let line = lines.next()?.trim_start_matches("# ");
        let (code, comment) = line.split_once(" #").unwrap_or((line, ""));
        let goes_on =
            |line: &&str| line.starts_with("#   ") || line.starts_with("  ") && line.trim_start().starts_with('#');
        Some((code.trim().to_owned(), lines.take_while(goes_on).fold(comment.to_owned(), |all, line| all + line)))
    }

    fn read(text: &str) -> Config {
        let mut config =
            parse_str(text, Syntax::Toml, "f.toml", &Vars::default()).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.notes, [], "{text}");
        // The hash of an entry differs with its text.
        config.servers.iter_mut().for_each(|server| server.entry = None);
        config
    }

    #[test]
    fn every_key_of_a_server_is_shown_at_its_default_with_its_words() {
        let (servers, _) = shown();
        let plain = read("[s]\ncommand = 'c'").servers;
        for (key, words) in Server::table() {
            let (code, comment) = line(&servers, &key).unwrap_or_else(|| panic!("{key} has no line"));
            assert!(comment.len() > 8, "{key} has no comment");
            for word in words {
                assert!(comment.contains(word), "{key}: {word} is not told of");
            }
            // These keys have no default to show.
            if !["description", "validate"].contains(&&*key) {
                assert_eq!(read(&format!("[s]\ncommand = 'c'\n{code}")).servers, plain, "{key}");
            }
        }
        let (restart, _) = line(&servers, "restart").unwrap();
        for (key, _) in Restart::table() {
            assert!(restart.contains(&format!(" {key} = ")), "restart.{key} is not shown");
        }
    }

    #[test]
    fn every_key_by_which_a_server_is_reached_is_shown() {
        let (servers, _) = shown();
        let lines: Vec<_> = transport::KEYS.into_iter().filter(|key| line(&servers, key).is_none()).collect();
        assert!(lines.is_empty(), "{lines:?} have no line");
        let of_urls = ["insecureHttp", "tls"].map(|key| line(&servers, key).unwrap().0).join("\n");
        let config = read(&format!("[s]\nurl = 'https://example.com/'\n{of_urls}"));
        let plain = Transport::Auto(Remote::new("https://example.com/".parse().unwrap()));
        assert_eq!(config.servers[0].transport, plain);
        let of_programs = line(&servers, "inheritEnv").unwrap().0;
        assert_eq!(read(&format!("[s]\ncommand = 'c'\n{of_programs}")).servers, read("[s]\ncommand = 'c'").servers);
    }

    #[test]
    fn every_limit_is_shown_at_its_default() {
        let (_, limits) = shown();
        for (key, _) in Limits::table() {
            let (code, _) = line(&limits, &key).unwrap_or_else(|| panic!("{key} has no line"));
            let config = read(&format!("[mcpServers]\n[host.limits]\n{code}"));
            assert_eq!(config.host.limits, Limits::default(), "{key}");
        }
    }

    #[test]
    fn a_key_is_its_field_in_camel_case() {
        assert_eq!(["idle_stop", "MAX_LENGTH", "era"].map(camel_case), ["idleStop", "maxLength", "era"]);
        assert!(Server::keys().contains(&"trustAnnotations".to_owned()));
        assert_eq!(Restart::keys(), ["maxRetries", "minDelay", "maxDelay"]);
    }
}
