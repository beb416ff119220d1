//! README.md and the guide in `docs/`: each block that shows a config is valid, links lead somewhere, README.md stays
//! short.

mod links;
mod messages;
#[cfg(target_os = "linux")]
mod session;

use std::fs;
use std::path::Path;

use mcp_host::config::{Config, Remote, Syntax, Transport, Vars, parse_str};

/// The most lines of README.md; the rest belongs in the guide.
const CAP: usize = 250;

/// A text of the checkout, by its path from the root.
struct Page {
    path: String,
    text: String,
}

/// A fenced block.
struct Block {
    language: String,
    text: String,
    /// The last line of text before it.
    before: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the pages of a folder (`""` or `"docs/"`) by name.
fn pages_of(folder: &str) -> Vec<Page> {
    let entries = fs::read_dir(root().join(folder)).expect("a checkout that can be read");
    let names = entries.map(|entry| entry.expect("a checkout that can be read").file_name());
    let mut paths: Vec<String> = names
        .filter_map(|name| name.to_str().filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")))
        .collect();
    paths.sort();
    paths.into_iter().map(page).collect()
}

fn page(path: String) -> Page {
    let text = fs::read_to_string(root().join(&path)).expect("a page that can be read");
    Page { path, text }
}

/// Returns README.md, then the pages of the guide by name: a reader starts with README.md.
fn guide() -> Vec<Page> {
    std::iter::once(page("README.md".to_owned())).chain(pages_of("docs/")).collect()
}

fn all_blocks() -> Vec<Block> {
    guide().iter().flat_map(blocks_of).collect()
}

fn blocks_of(page: &Page) -> Vec<Block> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = page.text.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if let Some(language) = line.trim_start().strip_prefix("```") {
            let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let block: Vec<&str> = block.map(|line| line.get(indent..).unwrap_or_default()).collect();
            found.push(Block { language: language.to_owned(), text: block.join("\n"), before: before.to_owned() });
        } else if !line.is_empty() {
            before = line;
        }
    }
    found
}

/// Returns the blocks of a language, each with the last line of text before it.
fn blocks(language: &str) -> Vec<(String, String)> {
    let of_it = all_blocks().into_iter().filter(|block| block.language == language);
    of_it.map(|block| (block.before, block.text)).collect()
}

/// Returns the blocks of these languages, and those that the reader saves as a file, in reading order.
#[cfg(target_os = "linux")]
fn blocks_in_order(languages: &[&str]) -> Vec<Block> {
    let is_one = |block: &Block| languages.contains(&block.language.as_str()) || block.file().is_some();
    all_blocks().into_iter().filter(is_one).collect()
}

impl Block {
    /// Returns the name of the file as which the reader saves it.
    fn file(&self) -> Option<&str> {
        let before = Some(&self.before).filter(|_| self.language == "json")?;
        before.strip_prefix("Save this as `")?.strip_suffix("`:")
    }
}

fn parse(text: &str, syntax: Syntax) -> Config {
    let vars = Vars::from_iter([("HOME", "/home/ada"), ("GITHUB_TOKEN", "t")]);
    parse_str(text, syntax, "guide", &vars).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Reports whether the entry leads to this program.
fn is_ours(transport: &Transport) -> bool {
    let endpoint = |remote: &Remote| remote.url.as_str() == "http://127.0.0.1:8808/mcp";
    match transport {
        Transport::Stdio(stdio) => stdio.command == "mcp-host" && stdio.args == ["stdio"],
        Transport::Http(remote) | Transport::Auto(remote) => endpoint(remote),
        _ => false,
    }
}

#[test]
fn every_client_is_led_to_the_host() {
    let mut clients = Vec::new();
    for (language, syntax) in [("json", Syntax::Json), ("toml", Syntax::Toml), ("yaml", Syntax::Yaml)] {
        for (before, text) in blocks(language).into_iter().filter(|(before, _)| before.starts_with("**")) {
            let config = parse(&text, syntax);
            let [server] = &config.servers[..] else { panic!("one server: {text}") };
            assert!(server.name == "host" && is_ours(&server.transport), "{server:?}");
            assert!(config.notes.is_empty(), "{:?}", config.notes);
            clients.push(before.split("**").nth(1).unwrap_or_default().to_owned());
        }
    }
    clients.sort();
    // README.md shows one that the guide shows, too.
    clients.dedup();
    let known = "Claude Desktop, Cline, Codex, Continue, Cursor, Gemini CLI, Goose, VS Code, Windsurf, Zed, opencode";
    assert_eq!(clients.join(", "), known);
}

#[test]
fn the_config_shown_is_one() {
    let own = |(_, text): &(String, String)| text.contains("\"host\": {\n    \"listen\"");
    let shown: Vec<_> = blocks("json").into_iter().filter(own).collect();
    let [(_, text)] = &shown[..] else { panic!("one config of ours") };
    let config = parse(text, Syntax::Json);
    assert_eq!(config.servers.iter().map(|server| server.name.as_str()).collect::<Vec<_>>(), ["files", "github"]);
    assert!(config.notes.is_empty(), "{:?}", config.notes);
    assert!(config.servers.iter().all(|server| server.unusable.is_none()), "{:?}", config.servers);
}

#[test]
fn what_readers_save_are_whole_configs() {
    let saved: Vec<Block> = all_blocks().into_iter().filter(|block| block.file().is_some()).collect();
    assert!(saved.len() >= 4);
    for block in saved {
        let config = parse(&block.text, Syntax::Json);
        assert!(config.notes.is_empty(), "{:?}: {:?}", block.file(), config.notes);
    }
}

#[test]
fn readme_stays_short() {
    let lines = page("README.md".to_owned()).text.lines().count();
    assert!(lines <= CAP, "README.md has {lines} lines, more than {CAP}: what explains belongs in docs/");
}
