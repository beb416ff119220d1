"""A host that is an entry of its own config, behind real proxies: no endless starts, no growing lists."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from world import HERE, Report, World, descendants, free_port, until

NAMES = "plain__pid"


class Own:
    """`mcp-host serve` with an ordinary server and one entry that leads back to it."""

    def __init__(self, world: World, name: str, entry: list[str], address: str, config: Path) -> None:
        self.world, self.name, self.address, self.config = world, name, address, config
        self.environment = world.environment(name)
        self.starts = world.root / f"{name}.starts"
        python = str(world.venv / "bin" / "python")
        plain = 'echo started >>"$0"; exec "$1" "$2"'
        servers = {
            "plain": {"command": "sh", "args": ["-c", plain, str(self.starts), python, str(HERE / "python" / "server.py")]},
            "me": {"command": entry[0], "args": entry[1:], "restart": {"maxRetries": 1, "minDelay": "100ms"}},
        }
        config.write_text(json.dumps({"mcpServers": servers, "host": {"startupWait": "1s"}}))
        command = [world.binary, "serve", "--config", str(config), "--listen", address]
        self.process = world.start(command, self.environment, name)

    def row(self) -> dict:
        command = [self.world.binary, "status", "--json", "--listen", self.address]
        done = subprocess.run(command, env=self.environment, capture_output=True, timeout=20, check=False)
        rows = json.loads(done.stdout)["servers"] if done.returncode == 0 else []
        return {row["name"]: row for row in rows}.get("me", {})

    def reaches(self, *states: str) -> dict:
        return until(f"`me` is {states}: {self.row()}", 60, lambda: (row := self.row()).get("state") in states and row)

    def tools(self) -> list[str]:
        """Returns the tools as a host of another config sees them."""
        other = self.world.root / f"{self.name}.client.json"
        other.write_text(json.dumps({"mcpServers": {"hub": {"url": f"http://{self.address}/mcp", "prefix": "never"}}}))
        command = [self.world.binary, "tools", "--json", "--config", str(other)]
        done = subprocess.run(command, env=self.environment, capture_output=True, timeout=60, check=True)
        return [tool["name"] for tool in json.loads(done.stdout)]

    def call(self, tool: str, *arguments: str) -> str:
        command = [self.world.binary, "call", tool, *arguments, "--config", str(self.world.root / f"{self.name}.client.json")]
        return subprocess.run(command, env=self.environment, capture_output=True, timeout=60, check=True, text=True).stdout

    def stop(self) -> None:
        known = descendants(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(25)
        until("every process gone", 5, lambda: not [pid for pid in known if Path(f"/proc/{pid}").exists() and _lives(pid)])

    def started(self) -> int:
        return len(self.starts.read_text().splitlines())


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def checks(world: World, report: Report) -> None:
    python = str(world.venv / "bin" / "python")
    proxy = [python, str(HERE / "python" / "proxy.py")]
    remote = str(world.npm / "node_modules" / ".bin" / "mcp-remote")

    def own(name: str, make: object) -> Own:
        address, config = f"127.0.0.1:{free_port()}", world.root / f"{name}.json"
        return Own(world, name, make(address, str(config), str(world.root / f"{name}.notes")), address, config)

    with report.check("itself: behind an SDK's proxy that cleans the environment, no second generation starts"):
        host = own("itself-stdio", lambda _at, config, notes: [*proxy, notes, "--", world.binary, "stdio", "--config", config])
        row = host.reaches("failed", "connected")
        # The proxy itself may connect, but its list fails, since the host behind it refuses to start.
        expect("relay" not in " ".join(host.tools()) or row["state"] == "connected", row)
        expect(host.started() == 1, f"the ordinary server was started {host.started()} times")
        host.stop()
    with report.check("itself: behind mcp-remote, disabled by its id"):
        host = own("itself-remote", lambda at, _config, _notes: [remote, f"http://{at}/mcp"])
        row = host.reaches("disabled", "connected", "failed")
        expect(row["state"] == "disabled" and "this is this host itself" in row["lastError"], row)
        expect(host.started() == 1, host.started())
        host.stop()
    with report.check("itself: an SDK's proxy of our endpoint shows each tool a second time, and the list does not grow"):
        host = own("itself-http", lambda at, _config, notes: [*proxy, notes, "--url", f"http://{at}/mcp"])
        host.reaches("connected")
        notes = world.root / "itself-http.notes"
        until("the proxy was asked again and again", 90, lambda: notes.exists() and len(notes.read_text().splitlines()) > 6)
        names = host.tools()
        twice = [name for name in names if "me__me" in name]
        expect(NAMES in names and not twice, names)
        expect(len(names) <= 2 * len([name for name in names if name.startswith("plain__")]) + 1, names)
    with report.check("itself: an agent that is a server uses our tools"):
        expect(host.call("me__relay", f"tool={NAMES}").strip().isdigit(), "no pid")
        host.stop()


def expect(condition: object, what: object) -> None:
    if not condition:
        raise AssertionError(str(what)[:600])
