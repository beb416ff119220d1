//! Applies the config's settings to a tool: makes the definition that clients see, and the arguments that the server
//! gets.
//!
//! In: the server's definition and the settings. Out: the edited definition, and an [`ArgumentEdit`] for its calls.
//! **Invariant:** a preset value appears in no definition, no error, and no hash of these; only the server gets it.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::quoted;
use crate::config::{Argument, Preset, ToolSettings};
use crate::protocol::value::twice;
use crate::protocol::{Raw, object};

/// A definition as clients see it.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) json: Raw,
    pub(super) arguments: Option<Arc<ArgumentEdit>>,
}

/// How the arguments of one tool change on their way to its server.
#[derive(Debug)]
pub(crate) struct ArgumentEdit {
    rules: Vec<Rule>,
    /// The names of all arguments that the tool lists, as clients know them.
    known: HashSet<String>,
}

/// How one argument changes on its way to the server.
#[derive(Debug)]
struct Rule {
    raw: String,
    /// The name that clients know; `None` if they do not know the argument.
    shown: Option<String>,
    preset: Sent,
}

/// The value that the server gets for an argument.
#[derive(Debug)]
enum Sent {
    /// What the client sends.
    AsGiven,
    /// What the client sends, or this value if it sends none.
    Default(Preset),
    /// This value, whatever the client sends.
    Always(Preset),
}

/// Members of a schema's root that may describe its properties in ways that an edit cannot change.
pub(super) const COMPOSED: [&str; 4] = ["$ref", "allOf", "anyOf", "oneOf"];

/// Applies settings to a definition; `None` if they change nothing.
///
/// # Errors
/// With the reason why the arguments of the tool cannot be edited.
pub(super) fn edited(definition: &Raw, settings: &ToolSettings) -> Result<Option<Edited>, String> {
    let mut json = definition.clone();
    for (member, text) in [("title", &settings.title), ("description", &settings.description)] {
        if let Some(text) = text {
            json = json.with_member(member, Raw::from_value(text).as_bytes());
        }
    }
    json = annotated(json, settings);
    let arguments = if settings.arguments.is_empty() { None } else { Some(arguments(&mut json, &settings.arguments)?) };
    let is_same = arguments.is_none() && json == *definition;
    Ok((!is_same).then(|| Edited { json, arguments: arguments.map(Arc::new) }))
}

fn annotated(json: Raw, settings: &ToolSettings) -> Raw {
    let hints = &settings.annotations;
    let before = json.member("annotations").filter(Raw::is_object);
    let mut annotations = before.clone().unwrap_or_else(Raw::empty_object);
    for (name, hint) in [
        ("readOnlyHint", hints.read_only_hint),
        ("destructiveHint", hints.destructive_hint),
        ("idempotentHint", hints.idempotent_hint),
        ("openWorldHint", hints.open_world_hint),
    ] {
        if let Some(hint) = hint {
            annotations = annotations.with_member(name, if hint { b"true" } else { b"false" });
        }
    }
    // Older clients show this title.
    if let Some(title) = settings.title.as_ref().filter(|_| annotations.member("title").is_some()) {
        annotations = annotations.with_member("title", Raw::from_value(title).as_bytes());
    }
    let is_same = before.as_ref().map_or(annotations == Raw::empty_object(), |before| *before == annotations);
    if is_same { json } else { json.with_member("annotations", annotations.as_bytes()) }
}

/// Edits the input schema, and returns how arguments change.
fn arguments(json: &mut Raw, settings: &BTreeMap<String, Argument>) -> Result<ArgumentEdit, String> {
    let schema = json.member("inputSchema").unwrap_or_else(Raw::empty_object);
    if let Some(composed) = COMPOSED.iter().find(|name| schema.member(name).is_some()) {
        return Err(format!("its arguments cannot be edited: its `inputSchema` has `{composed}`"));
    }
    let properties = schema.member("properties").unwrap_or_else(Raw::empty_object);
    let members = object(properties.as_value()).unwrap_or_default();
    if let Some(name) = twice(&members) {
        return Err(format!("its arguments cannot be edited: it lists {} twice", quoted(name)));
    }
    let listed: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
    let rules: Vec<Rule> =
        settings.iter().filter_map(|(raw, argument)| Rule::of(raw, argument, listed.contains(raw.as_str()))).collect();
    let mut known = HashSet::new();
    let mut kept: Vec<String> = Vec::with_capacity(members.len());
    for (raw, value) in &members {
        let rule = rules.iter().find(|rule| rule.raw == **raw);
        let Some(shown) = rule.map_or(Some(&**raw), |rule| rule.shown.as_deref()) else { continue };
        if !known.insert(shown.to_owned()) {
            return Err(format!("its arguments cannot be edited: two would be called {}", quoted(shown)));
        }
        let property = Raw::trusted(bytes::Bytes::copy_from_slice(value.get().as_bytes()));
        let described = settings.get(&**raw).and_then(|argument| argument.description.as_ref());
        let property = match described.filter(|_| property.is_object()) {
            Some(text) => property.with_member("description", Raw::from_value(text).as_bytes()),
            None => property,
        };
        kept.push(format!("{}:{property}", Raw::from_value(shown)));
    }
    let mut edited = schema.clone();
    if !members.is_empty() {
        edited = edited.with_member("properties", format!("{{{}}}", kept.join(",")).as_bytes());
    }
    if let Some(required) = schema.member("required").and_then(|required| required.read::<Vec<String>>().ok()) {
        let needed: Vec<&str> = required.iter().filter_map(|raw| needed(raw, &rules)).collect();
        edited = if needed.is_empty() {
            edited.without_member("required")
        } else {
            edited.with_member("required", Raw::from_value(&needed).as_bytes())
        };
    }
    if edited != schema {
        *json = json.with_member("inputSchema", edited.as_bytes());
    }
    Ok(ArgumentEdit { rules, known })
}

/// Returns the name under which clients must send a required argument; `None` if they need not send it.
fn needed<'a>(raw: &'a str, rules: &'a [Rule]) -> Option<&'a str> {
    match rules.iter().find(|rule| rule.raw == raw) {
        None => Some(raw),
        Some(Rule { shown, preset: Sent::AsGiven, .. }) => shown.as_deref(),
        Some(_) => None,
    }
}

impl Rule {
    /// Makes the rule for one argument; `None` if calls do not change it. An argument that the tool does not list is
    /// not sent, and a client may not send it in place of one that is hidden or preset.
    fn of(raw: &str, argument: &Argument, is_listed: bool) -> Option<Self> {
        let is_hidden = argument.hide == Some(true) || (!is_listed && argument.value.is_some());
        let preset = match (&argument.value, &argument.default) {
            (Some(value), _) if is_listed => Sent::Always(value.clone()),
            (None, Some(default)) if is_listed => Sent::Default(default.clone()),
            _ => Sent::AsGiven,
        };
        if !is_listed && !is_hidden {
            return None;
        }
        let shown = (!is_hidden).then(|| argument.name.clone().unwrap_or_else(|| raw.to_owned()));
        Some(Self { raw: raw.to_owned(), shown, preset })
    }
}

impl ArgumentEdit {
    /// Returns the arguments for the server.
    ///
    /// # Errors
    /// With the reason why a client may not send these arguments. Servers differ in how they read keys that occur twice
    /// or in another case (`docs/hazards.md` H37), so the arguments checked here must be the ones that servers read.
    pub(crate) fn apply(&self, given: Option<&Raw>) -> Result<Raw, String> {
        let none = Raw::empty_object();
        let given = given.filter(|given| given.is_object()).unwrap_or(&none);
        let members = object(given.as_value()).unwrap_or_default();
        if let Some(name) = twice(&members) {
            return Err(format!("{} is given twice", quoted(name)));
        }
        let mut out: Vec<String> = Vec::with_capacity(members.len() + self.rules.len());
        let mut sent: HashSet<&str> = HashSet::new();
        for (key, value) in &members {
            let raw = match self.rules.iter().find(|rule| rule.shown.as_deref() == Some(&**key)) {
                Some(Rule { preset: Sent::Always(_), .. }) => continue,
                Some(rule) => &*rule.raw,
                None => self.plain(key)?,
            };
            sent.insert(raw);
            out.push(format!("{}:{}", Raw::from_value(raw), value.get()));
        }
        for Rule { raw, preset, .. } in &self.rules {
            let preset = match preset {
                Sent::AsGiven => continue,
                Sent::Default(_) if sent.contains(raw.as_str()) => continue,
                Sent::Default(preset) | Sent::Always(preset) => preset,
            };
            out.push(format!("{}:{}", Raw::from_value(raw), preset.json()));
        }
        Ok(Raw::trusted(format!("{{{}}}", out.join(",")).into()))
    }

    /// Returns arguments for the server in a form that people may see: without those that are hidden from clients.
    pub(crate) fn without_hidden(&self, sent: &Raw) -> Raw {
        let hidden = self.rules.iter().filter(|rule| rule.shown.is_none());
        hidden.fold(sent.clone(), |sent, rule| sent.without_member(&rule.raw))
    }

    fn plain<'a>(&self, key: &'a str) -> Result<&'a str, String> {
        if self.rules.iter().any(|rule| rule.raw == key) {
            return Err(format!("it takes no {}", quoted(key)));
        }
        let is_known = |name: &str| name != key && folds_equal(name, key);
        if !self.known.contains(key)
            && (self.known.iter().any(|name| is_known(name)) || self.rules.iter().any(|rule| is_known(&rule.raw)))
        {
            return Err(format!(
                "{} and another argument of the tool differ only in upper and lower case",
                quoted(key)
            ));
        }
        Ok(key)
    }
}

/// Reports whether two names are equal except for case, as servers match them that ignore case.
fn folds_equal(one: &str, other: &str) -> bool {
    one.chars().map(folded).eq(other.chars().map(folded))
}

/// Returns the letter that represents all cases of a letter (Unicode's simple folding).
fn folded(letter: char) -> char {
    let single = |mut letters: Box<dyn Iterator<Item = char>>, or| match (letters.next(), letters.next()) {
        (Some(one), None) => one,
        _ => or,
    };
    let upper = single(Box::new(letter.to_uppercase()), letter);
    single(Box::new(upper.to_lowercase()), upper)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn settings(value: &Value) -> ToolSettings {
        let config = json!({ "mcpServers": { "a": { "command": "x", "tools": { "t": value } } } }).to_string();
        let vars = crate::config::Vars::from_iter([("ORG", "canary-value")]);
        let config = crate::config::parse_str(&config, crate::config::Syntax::Json, "f.json", &vars);
        config.unwrap_or_else(|error| panic!("{error}")).servers[0].tools.of("t").unwrap()
    }

    fn tool() -> Raw {
        Raw::from_value(&json!({
            "name": "t", "description": "old", "annotations": { "title": "Old", "readOnlyHint": false },
            "inputSchema": { "type": "object", "required": ["org", "q"], "properties": {
                "org": { "type": "string" }, "q": { "type": "string" }, "n": { "type": "integer" } } },
        }))
    }

    fn edit(value: &Value) -> Edited {
        edited(&tool(), &settings(value)).unwrap().unwrap()
    }

    fn apply(edit: &Edited, arguments: &str) -> Result<String, String> {
        let given = Raw::parse(&arguments.to_owned().into()).unwrap();
        edit.arguments.as_ref().unwrap().apply(Some(&given)).map(|raw| raw.to_string())
    }

    #[test]
    fn a_definition_shows_what_the_settings_say() {
        let edit = edit(&json!({ "title": "New", "description": "new", "annotations": { "readOnlyHint": true },
            "arguments": { "org": { "value": "${ORG}", "hide": true }, "q": { "name": "query", "description": "What" },
                           "n": { "default": 5 } } }));
        let expected = json!({
            "name": "t", "description": "new", "title": "New", "annotations": { "title": "New", "readOnlyHint": true },
            "inputSchema": { "type": "object", "required": ["query"], "properties": {
                "query": { "type": "string", "description": "What" }, "n": { "type": "integer" } } },
        });
        assert_eq!(edit.json.read::<Value>().unwrap(), expected);
        assert!(!format!("{edit:?}").contains("canary"));
    }

    #[test]
    fn what_says_nothing_new_leaves_every_byte() {
        assert!(edited(&tool(), &ToolSettings::default()).unwrap().is_none());
        assert!(edited(&tool(), &settings(&json!({ "description": "old", "tags": ["x"] }))).unwrap().is_none());
    }

    #[test]
    fn the_server_gets_its_own_names_and_the_presets() {
        let edit = edit(&json!({ "arguments": { "org": { "value": "${ORG}", "hide": true }, "q": { "name": "query" },
            "n": { "default": 5 }, "gone": { "value": 1 } } }));
        let full = r#"{"q":"x","more":[1.0],"n":7,"org":"canary-value"}"#;
        assert_eq!(apply(&edit, r#"{"query":"x","more":[1.0],"n":7}"#).as_deref(), Ok(full));
        assert_eq!(apply(&edit, "{}").as_deref(), Ok(r#"{"n":5,"org":"canary-value"}"#));
        for (given, why) in [
            (r#"{"org":"mine"}"#, r#"it takes no "org""#),
            (r#"{"q":"x"}"#, r#"it takes no "q""#),
            (r#"{"gone":1}"#, r#"it takes no "gone""#),
            (r#"{"ORG":"mine"}"#, r#""ORG" and another argument of the tool differ only in upper and lower case"#),
            (r#"{"\u006frg":"mine"}"#, r#"it takes no "org""#),
            (r#"{"Query":1}"#, r#""Query" and another argument of the tool differ only in upper and lower case"#),
            (r#"{"query":1,"quer\u0079":2}"#, r#""query" is given twice"#),
        ] {
            assert_eq!(apply(&edit, given), Err(why.to_owned()), "{given}");
        }
    }

    #[test]
    fn names_can_change_places_and_a_value_wins_over_the_client() {
        let edit =
            edit(&json!({ "arguments": { "q": { "name": "org" }, "org": { "name": "q" }, "n": { "value": 1 } } }));
        assert_eq!(apply(&edit, r#"{"org":"1","q":"2","n":3}"#).as_deref(), Ok(r#"{"q":"1","org":"2","n":1}"#));
    }

    #[test]
    fn letters_fold_as_go_folds_them() {
        for (one, other) in [("org", "ORG"), ("kelvin", "\u{212a}elvin"), ("test", "te\u{17f}t"), ("σ", "ς")] {
            assert!(folds_equal(one, other), "{one} {other}");
        }
        assert!(!folds_equal("org", "orgs") && !folds_equal("o", "ö"));
    }

    #[test]
    fn a_composed_schema_is_not_edited() {
        let settings = settings(&json!({ "arguments": { "org": { "hide": true } } }));
        for composed in COMPOSED {
            let tool = Raw::from_value(&json!({ "name": "t", "inputSchema": { "type": "object", composed: [] } }));
            assert!(edited(&tool, &settings).unwrap_err().contains(composed));
        }
        let clash = settings_of_clash();
        assert!(edited(&tool(), &clash).unwrap_err().contains("two would be called \"n\""));
    }

    fn settings_of_clash() -> ToolSettings {
        settings(&json!({ "arguments": { "org": { "name": "n" } } }))
    }
}
