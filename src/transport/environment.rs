//! What of our environment a child process gets: a fixed list, nothing else (`hazards.md` H16).

/// Names that a program needs to find its files, its language and its terminal.
const NAMES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TMPDIR",
    "TZ",
    // Windows
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
    "WINDIR",
];

/// Our variables that pass, by name; `forward` are further names from the config.
pub(super) fn inherited(forward: &[String]) -> impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)> + '_ {
    std::env::vars_os()
        .filter(move |(name, _)| {
            name.to_str().is_some_and(|name| {
                NAMES.contains(&name)
                    || name.starts_with("LC_")
                    || name.starts_with("XDG_")
                    || forward.iter().any(|wanted| wanted == name)
            })
        })
        .chain([("TERM".into(), "dumb".into())])
}
