//! What `mcp-host top` costs: the share of a core that it takes in a terminal while fifty servers get a thousand calls a
//! second.
#![expect(clippy::print_stdout, reason = "a benchmark reports to its user")]

use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::Command;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::call::Work;
use crate::host::{Host, Link, PROGRAM, Servers};
use crate::load::Callers;
use crate::measure::Cpu;
use crate::process::{Process, loopback};

const FIFTY: Servers = Servers { link: Link::Stdio, count: 50, tools: 20 };
/// A call begins this often.
const EVERY: Duration = Duration::from_millis(1);
/// How long it runs before it is measured, and while it is.
const SETTLED: Duration = Duration::from_secs(3);
const MEASURED: Duration = Duration::from_secs(20);
/// The most that it may take, in hundredths of a core.
const GATE: f64 = 3.0;
/// How many of the calls have to be made, in hundredths.
const ENOUGH: u128 = 95;

/// Measures it, and prints the share.
pub(crate) async fn run() -> Result<ExitCode> {
    let host = Host::start(FIFTY).await?;
    // Each caller calls another server.
    let mut callers = Callers::open(loopback(host.port), Work::Echo(32), FIFTY.count, 1).await?;
    let (terminal, process) = start(&host)?;
    // What it writes is read by somebody, or it would wait.
    let drawn = std::thread::spawn(move || {
        let (mut buffer, mut bytes) = ([0; 64 * 1024], 0);
        while let Ok(read @ 1..) = rustix::io::read(&terminal, &mut buffer) {
            bytes += read;
        }
        bytes
    });
    calls(&mut callers, SETTLED).await?;
    let before = Cpu::of(process.pid()).context("the CPU time of a process is not told here")?;
    let begun = Instant::now();
    let count = calls(&mut callers, MEASURED).await?;
    let (lasted, after) = (begun.elapsed(), Cpu::of(process.pid()).context("top has ended")?);
    process.stop().await?;
    let bytes = drawn.join().unwrap_or_default();
    let share = 100.0 * after.since(&before).as_secs_f64() / lasted.as_secs_f64();
    let wanted = MEASURED.as_millis() / EVERY.as_millis();
    ensure!(
        count as u128 * 100 >= wanted * ENOUGH,
        "only {count} calls in {lasted:.0?}: this machine does not make {wanted}, so nothing is measured"
    );
    println!(
        "top: {share:.2} % of a core, {GATE} % at most; {count} calls to 50 servers in {lasted:.0?}, {bytes} bytes drawn"
    );
    host.process.stop().await?;
    Ok(if share <= GATE { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes a call in each millisecond. Returns how many there were.
async fn calls(callers: &mut Callers, time: Duration) -> Result<usize> {
    let (end, mut ticks, mut count) = (sleep(time), interval(EVERY), 0);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return Ok(count),
            _ = ticks.tick() => {
                callers.one(count).await?;
                count += 1;
            }
        }
    }
}

/// Starts it in a terminal of its own, at the size of a large window.
fn start(host: &Host) -> Result<(OwnedFd, Process)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    tcsetwinsize(&terminal, Winsize { ws_row: 50, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 })?;
    let name = ptsname(&terminal, Vec::new())?.into_string().context("the name of a terminal")?;
    let side = || OpenOptions::new().read(true).write(true).open(&name).map(Stdio::from);
    let mut command = Command::new(Path::new(PROGRAM));
    command.args(["top", "--listen", &host.port.to_string()]).env_clear().current_dir(host.home());
    command.env("XDG_RUNTIME_DIR", host.home()).env("HOME", host.home()).env("TERM", "xterm-256color");
    command.stdin(side()?).stdout(side()?).stderr(side()?);
    Ok((terminal, Process::spawn(command)?))
}
