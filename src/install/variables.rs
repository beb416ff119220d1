//! Checks the names of environment variables that an entry or a bundle sets.

use super::Error;
use crate::protocol::Theirs;

fn wrong(field: &str, why: impl Into<String>) -> Error {
    Error::Entry { field: field.to_owned(), why: why.into() }
}

/// Refuses variables with which an entry could decide what the runner starts, or from where it gets packages.
pub(super) fn is_variable(name: &str) -> Result<(), Error> {
    let is_plain =
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_plain {
        let why = format!("{:?} is no name of a variable", Theirs(name));
        return Err(wrong("packages.environmentVariables", why));
    }
    let upper = name.to_ascii_uppercase();
    let begins = ["LD_", "DYLD_", "NPM_CONFIG_", "UV_", "PIP_", "PIPX_", "DOCKER_", "DOTNET_", "NUGET_"];
    let whole = [
        "BASH_ENV",
        "ENV",
        "HOME",
        "NODE_OPTIONS",
        "NODE_PATH",
        "PATH",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "SHELL",
    ];
    if begins.iter().any(|begin| upper.starts_with(begin)) || whole.contains(&upper.as_str()) {
        let why = format!("{name} decides which program starts, and is not taken from a registry");
        return Err(wrong("packages.environmentVariables", why));
    }
    Ok(())
}
