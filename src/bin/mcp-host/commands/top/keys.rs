//! What each key does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{App, Pane};

/// Something that a key does apart from changing the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Quit,
    Restart(String),
    /// Opens the page in the browser.
    Open,
}

/// The keys, as `?` shows them.
pub(super) const HELP: [(&str, &str); 12] = [
    ("↑ ↓, j k", "move"),
    ("Enter", "one server: its changes, tools, calls, lines"),
    ("Tab", "its next part"),
    ("Esc", "back; out of the filter"),
    ("/", "filter by a text"),
    ("s", "sort by state, name, rate, p95, errors, memory"),
    ("c l t", "calls, lines, tools"),
    ("r", "restart the server; asks first"),
    ("p", "pause, and go on"),
    ("o", "open the page in your browser"),
    ("?", "this help"),
    ("q", "quit"),
];

impl App {
    /// Handles a key. Returns what it does apart from changing the screen, if anything.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Deed> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Deed::Quit);
        }
        self.note = None;
        if self.is_typing {
            self.type_in(key.code);
            return None;
        }
        if let Some(server) = self.asks.take() {
            return matches!(key.code, KeyCode::Char('y' | 'Y')).then_some(Deed::Restart(server));
        }
        if std::mem::take(&mut self.is_help) {
            return None;
        }
        match key.code {
            KeyCode::Char('q') => return Some(Deed::Quit),
            KeyCode::Char('o') => return Some(Deed::Open),
            KeyCode::Char('?') => self.is_help = true,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('p') => self.pause(),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('r') => self.asks = self.subject(),
            KeyCode::Char('c') => self.go(Pane::Calls),
            KeyCode::Char('l') => self.go(Pane::Lines),
            KeyCode::Char('t') => self.go(Pane::Tools),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(isize::try_from(self.rows.1).unwrap_or(1)),
            KeyCode::PageUp => self.step(-isize::try_from(self.rows.1).unwrap_or(1)),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Enter if self.opened.is_none() && self.pane == Pane::Servers => {
                self.opened = self.subject();
                if self.opened.is_some() {
                    self.chosen.clone_from(&self.opened);
                    self.go(Pane::Timeline);
                }
            }
            KeyCode::Tab => self.next_pane(),
            KeyCode::Esc => self.back(),
            _ => {}
        }
        None
    }

    fn type_in(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(letter) if !letter.is_control() && self.filter.len() < 64 => self.filter.push(letter),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.filter.clear();
                self.is_typing = false;
            }
            _ => {}
        }
        self.scroll = 0;
    }

    fn go(&mut self, pane: Pane) {
        self.pane = pane;
        self.scroll = 0;
    }

    fn next_pane(&mut self) {
        let panes: &[Pane] = match self.opened {
            Some(_) => &[Pane::Timeline, Pane::Tools, Pane::Calls, Pane::Lines],
            None => &[Pane::Servers, Pane::Tools, Pane::Calls, Pane::Lines],
        };
        let at = panes.iter().position(|pane| *pane == self.pane).unwrap_or_default();
        self.go(panes[(at + 1) % panes.len()]);
    }

    fn back(&mut self) {
        if !self.filter.is_empty() {
            self.filter.clear();
        } else if self.opened.take().is_some() || self.pane != Pane::Servers {
            self.go(Pane::Servers);
        }
    }

    /// Moves the cursor, or scrolls.
    fn step(&mut self, by: isize) {
        if self.pane != Pane::Servers {
            let last = self.rows.0.saturating_sub(self.rows.1);
            self.scroll = self.scroll.saturating_add_signed(by).min(last);
            return;
        }
        let servers = self.servers();
        let to = self.place(&servers).saturating_add_signed(by).min(servers.len().saturating_sub(1));
        let name = servers.get(to).map(|(name, _)| (*name).to_owned());
        self.chosen = name;
    }
}
