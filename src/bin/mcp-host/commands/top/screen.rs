//! The terminal of `top`: takes it, draws on it, restores it, and reads its keys.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use tokio::sync::mpsc;

use super::state::App;
use super::view;

/// How long the thread for keys waits before it checks whether it should end.
const LOOK: Duration = Duration::from_millis(200);
/// How many keys may be queued.
const KEYS: usize = 64;

/// What a person did.
#[derive(Debug)]
pub(super) enum Input {
    Key(KeyEvent),
    Resized,
}

/// The keys, read by a thread of their own, because reading from the terminal blocks.
#[derive(Debug)]
pub(super) struct Inputs(mpsc::Receiver<Input>);

impl Inputs {
    /// Waits for the next key; `None` if the terminal is gone.
    pub(super) async fn next(&mut self) -> Option<Input> {
        self.0.recv().await
    }
}

/// The terminal in raw mode; it is restored on drop.
#[derive(Debug)]
pub(super) struct Screen {
    terminal: DefaultTerminal,
    is_over: Arc<AtomicBool>,
}

impl Screen {
    /// Takes the terminal. A panic restores it before the panic is reported.
    pub(super) fn open() -> io::Result<(Self, Inputs)> {
        let (sender, inputs) = mpsc::channel(KEYS);
        let is_over = Arc::new(AtomicBool::new(false));
        let screen = Self { terminal: ratatui::try_init()?, is_over: is_over.clone() };
        std::thread::Builder::new().name("keys".to_owned()).spawn(move || read(&sender, &is_over))?;
        Ok((screen, Inputs(inputs)))
    }

    pub(super) fn draw(&mut self, app: &mut App) -> io::Result<()> {
        self.terminal.draw(|frame| view::draw(frame, app)).map(drop)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // If the terminal is gone, it cannot be restored.
        let _ = ratatui::try_restore();
    }
}

/// Reads keys until the screen is restored or the terminal is gone.
fn read(sender: &mpsc::Sender<Input>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let input = match event::poll(LOOK).and_then(|is_there| is_there.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) if key.kind != KeyEventKind::Release => Input::Key(key),
            Ok(Some(Event::Resize(..))) => Input::Resized,
            Ok(_) => continue,
            Err(_) => return,
        };
        if sender.blocking_send(input).is_err() {
            return;
        }
    }
}

/// Reports whether there is a terminal to read from and to draw on.
pub(super) fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Listens for the signal that would end the process without restoring the terminal.
#[cfg(unix)]
pub(super) fn quit() -> io::Result<tokio::signal::unix::Signal> {
    tokio::signal::unix::signal(tokio::signal::unix::SignalKind::quit())
}

/// Windows has no SIGQUIT.
#[cfg(not(unix))]
pub(super) fn quit() -> io::Result<tokio::signal::windows::CtrlBreak> {
    tokio::signal::windows::ctrl_break()
}
