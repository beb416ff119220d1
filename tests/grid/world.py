"""The processes of a run: scripted servers, the host, and clients at any of them. Everything ends with the run."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

from client.base import Client
from client.legacy import Legacy
from client.modern import Modern
from client.wires import Http, Pipe, Sse
from control import Control
from serving.tools import offered
from turns import Turns
from words import KINDS, R25C, Peer, peers

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "cluster"))

from balancer import Balancer  # noqa: E402

#: Settings of hosts that list tools of their own beside all others, and look at each result whether it has to be cut.
PARTS = {
    "catalog": {"mode": "code", "always": ["*"], "code": {"tools": "all"}},
    "results": {"limit": "64MiB", "image": "64MiB"},
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class World:
    """Made by `open`, ended by `close`."""

    def __init__(self, binary: str, joined: bool = False, parts: bool = False, replicas: bool = False) -> None:
        self.binary = binary
        self.joined = joined  # whether clients over stdio join the daemon
        self.parts = parts  # whether hosts have PARTS
        self.replicas = replicas  # whether three hosts serve as one
        self.relays: set[str] = set()
        self.control = Control()
        self.turns = Turns()
        self.locks: dict[Peer, asyncio.Lock] = {peer: asyncio.Lock() for peer in peers()}
        self.children: list[asyncio.subprocess.Process] = []
        self.urls: dict[Peer, str] = {}
        self.host = ""
        self.config = Path()

    async def open(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="grid-"))
        self.shared = self.root / "shared"
        self.shared.mkdir()
        await self.control.start()
        await asyncio.gather(*(self.listen(peer) for peer in peers(["sse", "http"])))

    async def listen(self, peer: Peer) -> None:
        """Starts a scripted server with a URL."""
        with open(self.errors(peer.alias), "ab") as errors:
            child = await asyncio.create_subprocess_exec(*self.server(peer), stdout=-1, stderr=errors)
        self.children.append(child)
        port = (await asyncio.wait_for(child.stdout.readline(), 20)).decode().strip()
        self.urls[peer] = f"http://127.0.0.1:{port}/{'sse' if peer.transport == 'sse' else 'mcp'}"

    def errors(self, name: str) -> str:
        return str(self.root / f"{name}.log")

    def server(self, peer: Peer) -> list[str]:
        given = ["--alias", peer.alias, "--revision", peer.revision, "--transport", peer.transport]
        given += ["--control", str(self.control.port), "--state", str(self.shared)]
        return [sys.executable, "-B", str(HERE / "server.py"), *given]

    def environment(self) -> dict[str, str]:
        own = {"HOME": str(self.root), "XDG_STATE_HOME": str(self.root / "state"), "PATH": os.environ["PATH"]}
        own |= {name: value for name, value in os.environ.items() if name == "MCP_HOST_THREADS"}
        # All hosts of the run share what they learn about servers.
        return own | {"XDG_CONFIG_HOME": str(self.root / "config"), "MCP_HOST_LOG": os.environ.get("MCP_HOST_LOG", "")}

    def entries(self, ups: list[Peer]) -> dict:
        """Returns scripted servers as config entries."""
        found = {}
        for peer in ups:
            if peer.transport == "stdio":
                command, *arguments = self.server(peer)
                found[peer.alias] = {"command": command, "args": arguments}
            else:
                found[peer.alias] = {"type": peer.transport, "url": self.urls[peer]}
        return found

    def configure(self, name: str, servers: dict) -> Path:
        """Writes a config with long timeouts: on two busy cores, many servers start slowly."""
        file = self.root / f"{name}.json"
        servers = {alias: entry | {"startTimeout": "60s"} for alias, entry in servers.items()}
        file.write_text(json.dumps({"mcpServers": servers, "host": {"startupWait": "60s"} | (PARTS if self.parts else {})}))
        return file

    async def serve_all(self, config: Path) -> str:
        """Starts three hosts that serve as one; returns the URL of a balancer that knows nothing."""
        port, peers = free_port(), [free_port() for _ in range(3)]
        urls = []
        for number, peer in enumerate(peers):
            own = json.loads(config.read_text())
            cluster = {"keys": ["ab" * 32], "peers": [f"127.0.0.1:{other}" for other in peers]}
            own["host"] |= {"cluster": cluster | {"listen": f"127.0.0.1:{peer}"}, "allowedHosts": [f"127.0.0.1:{port}"]}
            file = config.with_stem(f"{config.stem}-{number}")
            file.write_text(json.dumps(own))
            urls.append(await self.serve(file))
        self.balancer = Balancer([int(url.rsplit(":", 1)[1]) for url in urls])
        await self.balancer.start(port)
        return f"http://127.0.0.1:{port}"

    async def serve(self, config: Path) -> str:
        """Starts a host; returns its URL."""
        command = [self.binary, "serve", "-v", "--config", str(config), "--listen", "127.0.0.1:0"]
        errors = self.errors(f"serve-{config.stem}")
        with open(errors, "ab") as log:
            child = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=log, env=self.environment())
        self.children.append(child)
        line = (await asyncio.wait_for(child.stdout.readline(), 20)).decode()
        url = next((word for word in line.split() if word.startswith("http://")), "")
        if not url:
            raise RuntimeError(f"the host says {line!r}; see {errors}")
        return url.removesuffix("/mcp")

    async def remembered(self, ups: list[Peer]) -> None:
        """Waits until the learned facts are on disk, for hosts that start later."""
        wanted = sum(offered("form", up.revision) for up in ups if not up.modern)
        file = self.root / "state" / "mcp-host" / "servers.json"
        for _ in range(100):
            facts = json.loads(file.read_text()) if file.exists() else {"servers": {}}
            if sum("elicitation" in shown["asks"] for shown in facts["servers"].values()) >= wanted:
                return
            await asyncio.sleep(0.1)
        raise RuntimeError(f"after 10 s {file} does not say that {wanted} servers ask by forms")

    async def forget(self, alias: str) -> None:
        """Makes the daemon forget what a server asks its clients."""
        command = [self.binary, "status", alias, "--forget", "--listen", self.host.removeprefix("http://")]
        child = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1, env=self.environment())
        said, errors = await asyncio.wait_for(child.communicate(), 20)
        if child.returncode or not said.startswith(b"forgotten"):
            raise RuntimeError(f"status --forget: {child.returncode}, {said!r}, {errors!r}")

    async def start_at(self, command: list[str], port: int, more: dict[str, str]) -> None:
        """Starts a third-party server and waits until it listens."""
        with open(self.errors(f"port-{port}"), "ab") as log:
            child = await asyncio.create_subprocess_exec(
                *command, stdin=-3, stdout=log, stderr=log, env=self.environment() | more
            )
        self.children.append(child)
        for _ in range(300):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                return writer.close()
            except ConnectionError:
                await asyncio.sleep(0.1)
        raise RuntimeError(f"{command} does not listen; see {self.errors(f'port-{port}')}")

    def client(
        self, name: str, down: Peer, quiet: bool = False, direct: bool = False, config: Path | None = None
    ) -> Client:
        """Returns a client of the host, or with `direct` of the scripted server."""
        kinds = [] if quiet else KINDS
        path = {"http": "/mcp", "sse": "/sse"}.get(down.transport, "")
        url = self.urls.get(down, "") if direct else self.host + path
        pipe = None
        if down.transport == "stdio":
            command = self.server(down) if direct else self.pipe(name, config)
            pipe = Pipe(command, self.environment(), self.errors(name))
        if down.modern:
            found: Client = Modern(name, kinds, url, pipe)
        else:
            found = Legacy(name, down.revision, kinds, pipe or (Sse(url) if down.transport == "sse" else Http(url)))
            found.level = "error" if quiet else "info"
        found.direct = direct
        return found

    def pipe(self, name: str, config: Path | None = None) -> list[str]:
        """Returns the command of a host over stdio for the client of that name: with `joined` the relay to the daemon, else a
        host of its own with the servers of `config`."""
        if self.joined:
            self.relays.add(name)
            return [self.binary, "stdio", "-v", "--config", str(self.config)]
        return [self.binary, "stdio", "-v", "--own", "--config", str(config or self.config)]

    def apart(self) -> list[str]:
        """Returns the clients that did not join the daemon."""
        files = {name: Path(self.errors(name)) for name in sorted(self.relays)}
        said = {name: file.read_text(errors="replace") if file.exists() else "" for name, file in files.items()}
        return [f"{name} has not joined: {text[-300:]!r}" for name, text in said.items() if "note: joined " not in text]

    async def close(self, keep: bool) -> list[str]:
        """Ends everything; returns what did not end properly."""
        faults = self.apart()
        for child in reversed(self.children):
            if child.returncode is not None:
                faults.append(f"a process ended early, with {child.returncode}")
                continue
            child.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(child.wait(), 20)
            except TimeoutError:
                faults.append("a process did not end")
                child.kill()
        if keep:
            print(f"logs: {self.root}")
        else:
            shutil.rmtree(self.root, ignore_errors=True)
        return faults


async def open_client(client: Client) -> None:
    """Waits until it has heard of every server."""
    await asyncio.wait_for(client.open(), 90)
    await client.list("tools/list", "tools", 90)


async def warm_up(world: World, aliases: list[str], *tools: str) -> None:
    """Makes every server ask once with each of these tools, so that the host knows what it asks and who may share it."""
    client = world.client("warm", Peer(R25C, "http"))
    client.foreign = True
    await open_client(client)
    for tool in tools:
        calls = [client.tool(f"{alias}__{tool}", client.mark()) for alias in aliases]
        # A failure here shows again in the cells.
        await asyncio.gather(*(call.done() for call in calls), return_exceptions=True)
    await client.close()
