//! `package`: which package a server's command starts, and the lock of everything that the package needs.
//!
//! The member is beside `command`, so that other programs can start the same server by its runner. If it has a
//! `digest`, mcp-host starts the locked tree in the store instead (`trees`), and nothing else.

use super::fields::{Field, Fields, refuse_rest};
use super::report::Report;
use super::syntax::{Node, Writer};

/// The package of a server.
///
/// ```
/// use mcp_host::config::{Package, PackageKind};
///
/// let package = Package::new(PackageKind::Npm, "@ada/files", "1.2.3");
/// assert_eq!(package.spec(), "@ada/files@1.2.3");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// The kind of registry that the package is in.
    pub kind: PackageKind,
    /// Its name in that registry.
    pub name: String,
    /// Its exact version.
    pub version: String,
    /// The SHA-256 of the lock of its tree, `sha256:` and 64 hexadecimal digits; `None` if its tree is not locked.
    pub digest: Option<String>,
    /// The name of the server in a registry of MCP servers.
    pub registry: Option<String>,
}

/// The kind of a package.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackageKind {
    /// A package of npm.
    Npm,
    /// A package of PyPI.
    Pypi,
    /// A container image.
    Oci,
    /// A package of NuGet.
    Nuget,
    /// An MCP bundle (`.mcpb`).
    Mcpb,
}

/// The members of `package`.
const KEYS: [&str; 5] = ["type", "name", "version", "digest", "registry"];
/// The longest name or version.
const LONGEST: usize = 300;

impl PackageKind {
    const ALL: [Self; 5] = [Self::Npm, Self::Pypi, Self::Oci, Self::Nuget, Self::Mcpb];

    /// Returns the word for the kind.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pypi => "pypi",
            Self::Oci => "oci",
            Self::Nuget => "nuget",
            Self::Mcpb => "mcpb",
        }
    }

    /// Returns the kind with this word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl Package {
    /// Returns a package whose tree is not locked.
    #[must_use]
    pub fn new(kind: PackageKind, name: impl Into<String>, version: impl Into<String>) -> Self {
        Self { kind, name: name.into(), version: version.into(), digest: None, registry: None }
    }

    /// Returns the package with its version, in the notation of its runner.
    #[must_use]
    pub fn spec(&self) -> String {
        let between = match self.kind {
            PackageKind::Pypi => "==",
            PackageKind::Oci => ":",
            PackageKind::Npm | PackageKind::Nuget | PackageKind::Mcpb => "@",
        };
        format!("{}{between}{}", self.name, self.version)
    }

    /// Reads the member of an entry.
    pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Option<Self> {
        let mut fields = field.fields(report)?;
        let kind = required(&mut fields, field, "type", report);
        let kind = kind.and_then(|(word, place)| {
            let kind = PackageKind::of(&word);
            if kind.is_none() {
                let problem = report.problem(place.at, &place.path, "is no kind of package");
                problem.help("write \"npm\", \"pypi\", \"oci\", \"nuget\" or \"mcpb\"");
            }
            kind
        });
        let name = required(&mut fields, field, "name", report);
        let version = required(&mut fields, field, "version", report);
        let digest = fields.take(&["digest"], report).and_then(|digest| {
            let text = digest.text(report)?;
            if !is_digest(text) {
                let problem = report.problem(digest.at, &digest.path, "expected `sha256:` and 64 hexadecimal digits");
                problem.help("`mcp-host install` writes it; without it, the runner is started");
                return None;
            }
            Some(text.to_owned())
        });
        let registry = fields.take(&["registry"], report).and_then(|name| name.text(report).map(str::to_owned));
        refuse_rest(fields, &KEYS, report);
        Some(Self { kind: kind?, name: name?.0, version: version?.0, digest, registry })
    }

    /// Writes the member of an entry.
    pub(super) fn node(&self) -> Node {
        let mut node = Writer::default();
        node.text("type", self.kind.word());
        node.text("name", &self.name);
        node.text("version", &self.version);
        if let Some(digest) = &self.digest {
            node.text("digest", digest);
        }
        if let Some(registry) = &self.registry {
            node.text("registry", registry);
        }
        node.done()
    }
}

/// Reports whether a text has the form of a digest.
fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Reads a required text.
fn required<'a>(
    fields: &mut Fields<'a>,
    outer: &Field<'_>,
    key: &str,
    report: &mut Report,
) -> Option<(String, Field<'a>)> {
    let Some(field) = fields.take(&[key], report) else {
        report.problem(outer.at, &format!("{}.{key}", outer.path), "is missing");
        return None;
    };
    let text = field.text(report)?.to_owned();
    if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        report.problem(field.at, &field.path, "is empty, too long, or holds a control character");
        return None;
    }
    Some((text, field))
}
