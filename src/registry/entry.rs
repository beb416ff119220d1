//! One definition as clients see it, made from what its server listed.
//!
//! A list is written straight from the servers' definitions (`listing.rs`). Only a definition that is needed by itself,
//! such as that of a called tool, is kept in this form.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use sha2::{Digest as _, Sha256};

#[cfg(any(feature = "validate", test))]
use super::compiled::{Schema, SchemaOf, Why, compile};
use super::edit::ArgumentEdit;
use super::header::{self, ParamHeader};
use super::hints;
use super::offer::{Definition, List};
use super::pin::Pin;
use super::ruled::Ruled;
use crate::config::Hints;
use crate::exposed::{UriMode, exposed_uri};
use crate::name::ServerName;
use crate::protocol::{Pointer, Raw, object};

/// One definition as clients see it. Cheap to clone.
///
/// ```
/// # fn show(tool: &mcp_host::Entry) {
/// println!("{} is {} of {}", tool.name(), tool.raw_name(), tool.server());
/// println!("{:?}", tool.definition().member("inputSchema"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Entry(Arc<Shown>);

#[derive(Debug)]
struct Shown {
    origin: Arc<Origin>,
    exposed: Arc<str>,
    list: Arc<List>,
    /// The index of its definition in `list`.
    at: u32,
    is_bare: bool,
    /// How arguments change on their way to the server, if the settings say so.
    edit: Option<Arc<ArgumentEdit>>,
    /// The rules that its calls are judged by, if there are any.
    rules: Option<Arc<Ruled>>,
    /// The definition with its exposed name, made on first use.
    definition: OnceLock<Raw>,
    /// The hash of what its server sent, computed when a call is first recorded.
    stated_pin: OnceLock<Pin>,
    /// Its schemas (of arguments, of results), compiled once a call needs them.
    #[cfg(any(feature = "validate", test))]
    schemas: [OnceLock<Option<Result<Schema, Why>>>; 2],
}

/// The server that an entry comes from.
#[derive(Debug)]
pub(super) struct Origin {
    /// The index that the caller uses for the server.
    pub(super) server: usize,
    pub(super) alias: ServerName,
    /// How its URIs are shown.
    pub(super) mode: UriMode,
}

/// A definition to show, and its name.
#[derive(Debug)]
pub(super) struct Named {
    /// The index of the definition in its server's list.
    pub(super) at: u32,
    pub(super) exposed: Arc<str>,
    /// Whether this is the name of a tool or prompt without a prefix.
    pub(super) is_bare: bool,
}

impl Entry {
    pub(super) fn new(origin: &Arc<Origin>, list: &Arc<List>, named: Named) -> Self {
        let Named { at, exposed, is_bare } = named;
        let (origin, list) = (Arc::clone(origin), Arc::clone(list));
        Self(Arc::new(Shown {
            origin,
            exposed,
            list,
            at,
            is_bare,
            edit: None,
            rules: None,
            definition: OnceLock::new(),
            stated_pin: OnceLock::new(),
            #[cfg(any(feature = "validate", test))]
            schemas: Default::default(),
        }))
    }

    /// Returns the same entry, judged by these rules.
    pub(super) fn ruled(&self, rules: Arc<Ruled>) -> Self {
        let named = Named { at: self.0.at, exposed: Arc::clone(&self.0.exposed), is_bare: self.0.is_bare };
        self.moved(&self.0.list, named, (self.0.edit.clone(), Some(rules)))
    }

    /// Returns the same entry with another definition, another edit of its arguments, and other rules.
    pub(super) fn moved(
        &self,
        list: &Arc<List>,
        named: Named,
        (edit, rules): (Option<Arc<ArgumentEdit>>, Option<Arc<Ruled>>),
    ) -> Self {
        let Named { at, exposed, is_bare } = named;
        let (origin, list) = (Arc::clone(&self.0.origin), Arc::clone(list));
        Self(Arc::new(Shown {
            origin,
            exposed,
            list,
            at,
            is_bare,
            edit,
            rules,
            definition: OnceLock::new(),
            stated_pin: OnceLock::new(),
            #[cfg(any(feature = "validate", test))]
            schemas: Default::default(),
        }))
    }

    /// Returns how arguments change on their way to the server; `None` if they do not.
    pub(crate) fn edit(&self) -> Option<&Arc<ArgumentEdit>> {
        self.0.edit.as_ref()
    }

    /// Returns the rules that its calls are judged by, if there are any.
    pub(crate) fn rules(&self) -> Option<&Arc<Ruled>> {
        self.0.rules.as_ref()
    }

    /// Returns the name, URI, or URI template that clients use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.exposed
    }

    /// Returns the server's own name for it.
    #[must_use]
    pub fn raw_name(&self) -> &str {
        self.raw()
    }

    /// Returns the server that it comes from.
    #[must_use]
    pub fn server(&self) -> &ServerName {
        &self.0.origin.alias
    }

    /// Returns the definition with its exposed name.
    #[must_use]
    pub fn definition(&self) -> &Raw {
        self.0.definition.get_or_init(|| {
            let mut text = Vec::with_capacity(self.length());
            self.write(&mut text);
            Raw::trusted(text.into())
        })
    }

    /// Reports whether both entries are the same tool of the same server.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        self.server() == other.server() && self.raw_name() == other.raw_name()
    }

    /// Reports whether results of another tool can replace those of this tool. A client may check them against the
    /// output schema of this tool.
    pub(crate) fn can_be_replaced_by(&self, other: Option<&Self>) -> bool {
        let schema = |entry: &Self| entry.definition().member("outputSchema").map(|schema| Pin::of(&schema, &[]));
        schema(self).is_none_or(|own| other.and_then(schema) == Some(own))
    }

    /// Reports whether a schema of it is compiled.
    #[cfg(any(feature = "validate", test))]
    pub(crate) fn is_compiled(&self, which: SchemaOf) -> bool {
        self.0.schemas[which as usize].get().is_some()
    }

    /// Returns a schema of it as clients see it, or why it cannot be used; `None` if it has none. Compiles it first,
    /// which may take milliseconds, so this must not run on a thread that others wait on.
    #[cfg(any(feature = "validate", test))]
    pub(crate) fn schema(&self, which: SchemaOf) -> Option<&Result<Schema, Why>> {
        let compiled = || Some(compile(&self.definition().member(which.member())?));
        self.0.schemas[which as usize].get_or_init(compiled).as_ref()
    }

    /// Returns the names of the arguments that the tool lists, as clients know them.
    pub(crate) fn argument_names(&self) -> BTreeSet<String> {
        let properties = self.definition().member("inputSchema").and_then(|schema| schema.member("properties"));
        let names = properties.as_ref().and_then(|properties| object(properties.as_value())).unwrap_or_default();
        names.into_iter().map(|(name, _)| name.into_owned()).collect()
    }

    /// Returns the definition with the server's own name for it. Nothing has to be made for this.
    pub(crate) fn source_text(&self) -> &str {
        self.source().json.as_str()
    }

    /// Returns the definition as its server wrote it.
    pub(crate) fn source_json(&self) -> &Raw {
        &self.source().json
    }

    /// Returns a member of the definition.
    pub(crate) fn source_member(&self, name: &str) -> Option<Raw> {
        self.source().json.member(name)
    }

    /// Returns the hash of its definition as clients see it.
    pub(crate) fn pin(&self) -> Pin {
        Pin::of(self.definition(), &[])
    }

    /// Returns the hash of its definition as its server sent it, without what `ignore` names. This hash is what a user
    /// approves. `ignore` must be the same each time.
    pub(crate) fn stated_pin(&self, ignore: &[Pointer]) -> Pin {
        *self.0.stated_pin.get_or_init(|| Pin::of(self.source().as_said(), ignore))
    }

    /// Returns the annotations that apply: those of its server, but no more than was approved if that is known.
    pub(crate) fn hints(&self) -> Hints {
        self.source().counts.as_deref().copied().unwrap_or_else(|| hints::said(&self.source().json))
    }

    /// Returns the annotations that apply, if they claim less than its server does.
    pub(crate) fn lesser_hints(&self) -> Option<Hints> {
        self.source().counts.as_deref().copied()
    }

    /// Returns the headers in which clients that see this definition repeat arguments.
    pub(crate) fn param_headers(&self) -> Vec<ParamHeader> {
        header::shown(self.definition())
    }

    pub(super) fn exposed(&self) -> &Arc<str> {
        &self.0.exposed
    }

    pub(super) fn raw(&self) -> &Arc<str> {
        &self.source().name
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.0.origin
    }

    /// Reports whether this is the name of a tool or prompt without a prefix.
    pub(super) fn is_bare(&self) -> bool {
        self.0.is_bare
    }

    /// Reports whether the entry shows the same definition of the same list under the same name.
    pub(super) fn is(&self, named: &Named) -> bool {
        (self.0.at, self.0.is_bare) == (named.at, named.is_bare) && self.0.exposed == named.exposed
    }

    /// Reports whether both are one value, not only equal ones.
    #[cfg(test)]
    pub(crate) fn is_one_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reports whether the definition's index in its server's list is among these.
    pub(super) fn is_among(&self, sorted: &[u32]) -> bool {
        sorted.binary_search(&self.0.at).is_ok()
    }

    /// Returns the list of the server that it comes from.
    pub(super) fn list(&self) -> &List {
        &self.0.list
    }

    /// Reports whether the definition links to this user interface.
    pub(super) fn links_to(&self, uri: &str) -> bool {
        let Origin { alias, mode, .. } = &*self.0.origin;
        self.source().links.iter().any(|(_, link)| exposed_uri(alias, link, *mode) == uri)
    }

    /// Adds all that clients see of it to a hash.
    pub(super) fn add_to(&self, hash: &mut Sha256) {
        let Origin { alias, mode, .. } = &*self.0.origin;
        hash.update(alias.as_str());
        hash.update([0, u8::from(*mode == UriMode::Prefix)]);
        hash.update(&*self.0.exposed);
        hash.update([0]);
        hash.update(self.source().hash.to_be_bytes());
    }

    /// Writes the definition with its exposed name and exposed links.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        self.parts(|part| out.extend_from_slice(part));
    }

    /// Returns how many bytes the definition has with its exposed name.
    pub(super) fn length(&self) -> usize {
        let mut length = 0;
        self.parts(|part| length += part.len());
        length
    }

    /// Reports whether it links to the user interface that its server calls `raw`.
    pub(super) fn links_to_raw(&self, raw: &str) -> bool {
        self.source().links.iter().any(|(_, link)| link == raw)
    }

    pub(super) fn source(&self) -> &Definition {
        &self.0.list.definitions[self.0.at as usize]
    }

    /// Passes the definition, with its exposed name and exposed links, to `part` piece by piece.
    fn parts(&self, mut part: impl FnMut(&[u8])) {
        let definition = self.source();
        let Origin { alias, mode, .. } = &*self.0.origin;
        let json = definition.json.as_bytes();
        let mut at = 0;
        let mut put = |range: &Range<u32>, text: &str| {
            let (start, end) = (range.start as usize, range.end as usize);
            if let (Some(before), true) = (json.get(at..start), end <= json.len()) {
                part(before);
                string(text, &mut part);
                at = end;
            }
        };
        let is_before = |link: &&(Range<u32>, String)| link.0.start < definition.name_at.start;
        for (range, link) in definition.links.iter().filter(|link| is_before(link)) {
            put(range, &exposed_uri(alias, link, *mode));
        }
        put(&definition.name_at, &self.0.exposed);
        for (range, link) in definition.links.iter().filter(|link| !is_before(link)) {
            put(range, &exposed_uri(alias, link, *mode));
        }
        part(&json[at.min(json.len())..]);
    }
}

/// Passes a text to `part` as a JSON string. Nearly every name consists of letters that need no escape.
fn string(text: &str, part: &mut impl FnMut(&[u8])) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        part(b"\"");
        part(text.as_bytes());
        part(b"\"");
    } else {
        part(Raw::from_value(text).as_bytes());
    }
}
