//! Opens a page in the user's browser: runs a program with arguments, never a shell (`docs/hazards.md` H67).

use std::io;
use std::process::{Command, Stdio};

use url::Url;

/// Parses a page that may be opened in a browser; returns `None` for anything else.
pub(crate) fn checked(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let local = matches!(url.host_str(), Some("127.0.0.1" | "[::1]" | "localhost"));
    let scheme = url.scheme() == "https" || url.scheme() == "http" && local;
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (scheme && plain && url.host().is_some() && url.as_str().len() <= PAGE_BYTES).then_some(url)
}

const PAGE_BYTES: usize = 8 * 1024;

/// Starts the browser and does not wait for it.
///
/// # Errors
/// Fails if there is no program to open pages with.
pub(crate) fn open(page: &Url) -> io::Result<()> {
    let (program, arguments) = command(page);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(error.kind(), format!("{program} is not installed")),
            _ => error,
        })?;
    // The program exits at once, or lives on as the browser. Either way, its exit must be collected.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Returns the program and its arguments. The last one is the page, which begins with `http`.
fn command(page: &Url) -> (&'static str, Vec<String>) {
    let page = page.as_str().to_owned();
    if cfg!(target_os = "macos") {
        ("open", vec![page])
    } else if cfg!(windows) {
        ("rundll32.exe", vec!["url.dll,FileProtocolHandler".to_owned(), page])
    } else {
        ("xdg-open", vec![page])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h67_a_browser_is_given_one_clean_url_and_nothing_else() {
        for text in [
            "javascript:alert(1)",
            "file:///bin/sh",
            "http://a.example/",
            "http://localhost.a.example/",
            "https://user@a.example/",
            "https://a.example/#x",
            "-a",
            "--version",
            "$(touch marker)",
            "calc.exe",
            "https:",
        ] {
            assert_eq!(checked(text), None, "{text}");
        }
        let page = checked("https://a.example/a?b=`touch marker`;$(x)|&\"'").unwrap();
        let (_, arguments) = command(&page);
        let last = arguments.last().unwrap();
        assert!(last.starts_with("https://a.example/") && !last.contains([' ', '"']), "{last}");
    }
}
