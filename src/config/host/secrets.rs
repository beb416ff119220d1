//! `host.secrets`: where to store the OAuth tokens for servers, and the key with which files of tokens are encrypted.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

use crate::config::Secret;
use crate::config::contents::others_may_read;
use crate::config::fields::Field;
use crate::config::place::quoted;
use crate::config::report::{Place, Report};
use crate::config::vars::Vars;
use crate::hex;

/// Where to store the OAuth tokens for servers.
///
/// ```
/// use mcp_host::config::{HostSettings, Secrets, StoreKind};
///
/// let mut secrets = Secrets::default();
/// secrets.store = StoreKind::Memory;
/// let settings = HostSettings::default().secrets(secrets);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Secrets {
    /// The kind of store.
    pub store: StoreKind,
    /// The key with which files are encrypted, if the config or the environment gives one.
    pub key: Option<SecretKey>,
    /// The file in which to look for the key if none is given: the user's default key file, which need not exist yet.
    pub key_file: Option<PathBuf>,
}

/// The kind of store for OAuth tokens.
///
/// ```
/// use mcp_host::config::StoreKind;
///
/// assert_eq!(StoreKind::default(), StoreKind::Auto);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreKind {
    /// The system keyring; if there is none, encrypted files; if there is no key for these either, memory.
    #[default]
    Auto,
    /// Only the system keyring; without it nothing is stored.
    Keyring,
    /// Encrypted files.
    File,
    /// Memory: tokens are lost when the program ends.
    Memory,
}

/// The key of 32 bytes that encrypts tokens. `Debug` hides it.
///
/// ```
/// use mcp_host::config::SecretKey;
///
/// assert!(SecretKey::parse(&"ab".repeat(SecretKey::LENGTH)).is_some());
/// assert!(SecretKey::parse("a word").is_none());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey {
    bytes: Zeroizing<[u8; Self::LENGTH]>,
    written: Secret,
}

impl SecretKey {
    /// The length of a key in bytes.
    pub const LENGTH: usize = 32;

    /// Parses a key: 64 hexadecimal digits, or base64. Returns `None` if the text is not a key of 32 bytes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut bytes = Zeroizing::new([0; Self::LENGTH]);
        if text.len() == 2 * Self::LENGTH {
            hex::decode(text.as_bytes(), &mut *bytes)?;
        } else {
            *bytes = base64(text)?.as_slice().try_into().ok()?;
        }
        Some(Self { bytes, written: Secret::new(text) })
    }

    /// Reads the key in a file. Returns `None` if the file does not exist or is empty.
    ///
    /// # Errors
    /// Fails if the file exists but cannot be read, or holds something other than a key.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, String> {
        // Reading a pipe would block.
        match std::fs::metadata(path) {
            Ok(found) if !found.is_file() => return Err("is no file".to_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            _ => {}
        }
        let text = text(path).map_err(|error| format!("cannot be read: {error}"))?;
        if text.trim().is_empty() {
            return Ok(None);
        }
        Self::parse(&text).map(Some).ok_or_else(|| NO_KEY.to_owned())
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub fn expose(&self) -> &[u8; Self::LENGTH] {
        &self.bytes
    }

    /// Returns the key as written, so that it can be scrubbed from output.
    pub(crate) fn written(&self) -> &Secret {
        &self.written
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

fn base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    STANDARD_NO_PAD.decode(text.trim_end_matches('=')).ok().map(Zeroizing::new)
}

/// The environment variable that may hold the key.
const VARIABLE: &str = "MCP_HOST_SECRET_KEY";
/// The name of the systemd credential that may hold the key (`LoadCredential=`).
const CREDENTIAL: &str = "mcp-host-secret-key";
/// How many bytes of a key file are read at most.
const FILE_BYTES: u64 = 1024;
/// The path of the default key file, below the folder of the user's settings.
const WELL_KNOWN: &str = "mcp-host/secret.key";
const NO_KEY: &str = "holds no key: expected 32 bytes in base64 or hexadecimal";
const MAKE: &str = "make one with: openssl rand -base64 32";

/// Reads `host.secrets`, and the key from the variable, file or credential that gives it.
pub(super) fn read(field: Option<&Field<'_>>, vars: &Vars, report: &mut Report) -> Secrets {
    let mut secrets = Secrets::default();
    let mut file = None;
    let mut asked = None;
    if let Some(mut fields) = field.and_then(|field| field.fields(report)) {
        if let Some(store) = fields.take(&["store"], report) {
            let choices = [
                ("auto", StoreKind::Auto),
                ("keyring", StoreKind::Keyring),
                ("file", StoreKind::File),
                ("memory", StoreKind::Memory),
            ];
            secrets.store = store.choice(&choices, report).unwrap_or_default();
            asked = Some(store);
        }
        file = fields.take(&["keyFile"], report);
        fields.finish(&["keyFile", "store"], report);
    }
    let before = report.problems();
    secrets.key = key(file.as_ref(), vars, report);
    let mut has_key = secrets.key.is_some();
    if !has_key && file.is_none() && matches!(secrets.store, StoreKind::Auto | StoreKind::File) {
        secrets.key_file = vars.config_home().map(|folder| folder.join(WELL_KNOWN));
        has_key = secrets.key_file.as_deref().is_some_and(|path| is_key(path, report));
    }
    let Some(asked) = asked.filter(|_| report.problems() == before) else { return secrets };
    if secrets.store == StoreKind::File && !has_key {
        let problem = report.problem(asked.at, &asked.path, "the encrypted file has no key");
        problem.help(format!("set {VARIABLE}, or `host.secrets.keyFile` to a file with it; {MAKE}"));
    }
    if secrets.store == StoreKind::Keyring && !cfg!(feature = "keyring") {
        let problem = report.problem(asked.at, &asked.path, "this build has no keyring");
        problem.help("write \"auto\", \"file\" or \"memory\"");
    }
    secrets
}

/// Reports whether the default key file holds a key. If it holds something else, the config is still accepted, and the
/// user is told: without a key, logins are kept in memory.
fn is_key(path: &Path, report: &mut Report) -> bool {
    let read = SecretKey::read(path);
    let wrong = match &read {
        Ok(Some(_)) if others_may_read(path) => "other users can read this key".to_owned(),
        Ok(key) => return key.is_some(),
        Err(wrong) => wrong.clone(),
    };
    let at = Place { file: report.add_file(path), ..Place::default() };
    let help = match read {
        Ok(_) => format!("chmod 600 {}", path.display()),
        Err(_) => format!("move it away; then: {}", make_command(path)),
    };
    report.note(at, "", wrong).help(help);
    read.is_ok()
}

/// Reads the key from the variable, else from the file that the config names, else from the systemd credential.
fn key(file: Option<&Field<'_>>, vars: &Vars, report: &mut Report) -> Option<SecretKey> {
    if let Some(text) = vars.get(VARIABLE).filter(|text| !text.is_empty()) {
        let key = SecretKey::parse(text);
        if key.is_none() {
            let at = report.add_file(Path::new(&format!("environment variable {VARIABLE}")));
            let at = Place { file: at, ..Place::default() };
            report.problem(at, "", "this is not a key: expected 32 bytes in base64 or hexadecimal").help(MAKE);
        }
        return key;
    }
    if let Some(field) = file {
        let folder = report.file(field.at.file).parent().map(PathBuf::from).unwrap_or_default();
        return from_file(field, &folder.join(field.text(report)?), report);
    }
    let path = Path::new(vars.get("CREDENTIALS_DIRECTORY")?).join(CREDENTIAL);
    let text = text(&path).ok()?;
    let key = SecretKey::parse(&text);
    if key.is_none() {
        let at = report.add_file(&path);
        let at = Place { file: at, ..Place::default() };
        report.problem(at, "", "this is not a key: expected 32 bytes in base64 or hexadecimal").help(MAKE);
    }
    key
}

fn from_file(field: &Field<'_>, path: &Path, report: &mut Report) -> Option<SecretKey> {
    let text = match text(path) {
        Ok(text) => text,
        Err(error) => {
            let problem = report.problem(field.at, &field.path, format!("{} cannot be read: {error}", path.display()));
            problem.help(make_command(path));
            return None;
        }
    };
    let key = SecretKey::parse(&text);
    if key.is_none() {
        let message = format!("{} {NO_KEY}", path.display());
        report.problem(field.at, &field.path, message).help(MAKE);
    } else if others_may_read(path) {
        let note = report.note(field.at, &field.path, format!("other users can read {}", path.display()));
        note.help(format!("chmod 600 {}", quoted(&path.to_string_lossy())));
    }
    key
}

/// Returns the shell command that creates a key file, readable by its user alone. It does not replace an existing file.
fn make_command(path: &Path) -> String {
    format!("(umask 077; set -C; openssl rand -base64 32 > {})", quoted(&path.to_string_lossy()))
}

fn text(path: &Path) -> std::io::Result<Zeroizing<String>> {
    use std::io::Read as _;
    let mut text = Zeroizing::new(String::new());
    std::fs::File::open(path)?.take(FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Syntax, parse_str};

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_key_is_32_bytes_in_either_spelling_and_is_not_shown() {
        let key = SecretKey::parse(HEX).unwrap();
        assert_eq!(key.expose()[..3], [0, 1, 2]);
        for text in [BASE64, BASE64.trim_end_matches('='), &format!(" {BASE64}\n"), &HEX.to_uppercase()] {
            assert_eq!(SecretKey::parse(text).unwrap().expose(), key.expose(), "{text}");
        }
        for text in ["", "secret", "correct horse battery staple", &HEX[1..], &BASE64[4..], &"g".repeat(64)] {
            assert!(SecretKey::parse(text).is_none(), "{text}");
        }
        assert_eq!(format!("{key:?}"), "SecretKey");
    }

    /// Returns the settings, or the problems with them.
    fn read(config: &str, vars: &[(&str, &str)]) -> Result<Secrets, String> {
        let text = format!("{{\"mcpServers\": {{\"a\": {{\"command\": \"a\"}}}}, \"host\": {{{config}}}}}");
        let vars = Vars::from_iter(vars.iter().copied());
        let read = parse_str(&text, Syntax::Json, "/nowhere/mcp.json", &vars);
        read.map(|config| config.host.secrets).map_err(|error| error.to_string())
    }

    #[test]
    fn the_key_at_its_well_known_place_needs_no_config() {
        let home = tempfile::tempdir().unwrap();
        let (folder, path) = (home.path().join("mcp-host"), home.path().join("mcp-host/secret.key"));
        std::fs::create_dir(&folder).unwrap();
        let home = home.path().display().to_string();
        let vars = [("XDG_CONFIG_HOME", home.as_str())];
        let (auto, file) = ("", "\"secrets\": {\"store\": \"file\"}");
        assert_eq!(read(auto, &vars).unwrap().key_file.as_ref(), Some(&path), "it may come later");
        assert!(read(file, &vars).unwrap_err().contains("the encrypted file has no key"));
        std::fs::write(&path, BASE64).unwrap();
        assert_eq!(read(file, &vars).unwrap().key_file.as_ref(), Some(&path));
        assert!(SecretKey::read(&path).unwrap().is_some());
        // A given key wins, and a store without files needs no key.
        assert_eq!(read("", &[vars[0], (VARIABLE, HEX)]).unwrap().key_file, None);
        assert_eq!(read("\"secrets\": {\"store\": \"memory\"}", &vars).unwrap().key_file, None);
        // With the store kind `auto`, an invalid key file does not refuse the config.
        std::fs::write(&path, "hunter2").unwrap();
        assert_eq!(read(auto, &vars).unwrap().key_file.as_ref(), Some(&path));
        assert_eq!(SecretKey::read(&path).unwrap_err(), NO_KEY);
        let wrong = read(file, &vars).unwrap_err();
        assert!(wrong.contains("the encrypted file has no key") && !wrong.contains("hunter2"), "{wrong}");
    }

    #[test]
    fn the_key_comes_from_the_variable_the_file_or_systemd() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name).display().to_string()
        };
        let (good, bad) = (put("key", BASE64), put("bad", "not a key"));
        put(CREDENTIAL, HEX);
        let directory = folder.path().display().to_string();
        let file = |path: &str| format!("\"secrets\": {{\"store\": \"file\", \"keyFile\": \"{path}\"}}");
        let key = SecretKey::parse(HEX).unwrap();
        let has = |config: &str, vars: &[(&str, &str)]| {
            read(config, vars).unwrap().key.is_some_and(|found| found.expose() == key.expose())
        };
        assert!(has(&file(&good), &[]));
        assert!(has("", &[(VARIABLE, HEX)]));
        assert!(has("", &[("CREDENTIALS_DIRECTORY", &directory)]));
        assert_eq!(read("", &[]), Ok(Secrets::default()));
        assert_eq!(read("", &[(VARIABLE, "")]), Ok(Secrets::default()));
        for (config, vars, want) in [
            (file(&bad), vec![], "holds no key"),
            (file("/nowhere/key"), vec![], "cannot be read"),
            (file(&good), vec![(VARIABLE, "hunter2")], "not a key"),
            ("\"secrets\": {\"store\": \"file\"}".to_owned(), vec![], "the encrypted file has no key"),
            ("\"secrets\": {\"store\": \"disk\"}".to_owned(), vec![], "\"disk\""),
        ] {
            let wrong = read(&config, &vars).unwrap_err();
            assert!(wrong.contains(want) && !wrong.contains("hunter2"), "{wrong}");
        }
    }
}
