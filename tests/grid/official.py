"""The second, smaller set of cells: peers on the official SDKs on one side of the host, scripted peers on the other."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from client.base import Client
from features import said_text, same
from report import Report
from words import R25B, Peer, peers
from world import HERE, World, free_port, open_client, warm_up

INTEROP = HERE.parent / "interop"
# Each client with the eras of its SDK.
CLIENTS = [
    ("python1", "legacy"), ("python2", "legacy"), ("python2", "modern"), ("typescript1", "legacy"),
    ("typescript2", "legacy"), ("typescript2", "modern"), ("rmcp", "legacy"), ("rmcp", "any"),
]  # fmt: skip
AT_ONCE = 4


@dataclass(frozen=True)
class Packages:
    """The folders of the packages; see `run`."""

    npm: Path  # of the interop tests
    node: Path  # of the grid
    python: Path  # of the interop tests: SDK 2
    python1: Path
    rmcp: Path


def python(venv: Path) -> str:
    return str(venv / "bin" / "python")


class Official:
    """The set, in a world whose host serves the scripted servers."""

    def __init__(self, world: World, packages: Packages, report: Report) -> None:
        self.world, self.packages, self.report = world, packages, report
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.opening = asyncio.Semaphore(1)  # a host over stdio starts all servers again

    def prepare(self) -> None:
        """Node looks for packages beside a script, so this copies the scripts there."""
        self.scripts = self.world.root / "node"
        shutil.copytree(INTEROP / "node", self.scripts)
        (self.scripts / "node_modules").symlink_to(self.packages.npm / "node_modules")
        self.own = self.world.root / "own"
        self.own.mkdir()
        shutil.copy(HERE / "official" / "server2.mjs", self.own)
        (self.own / "node_modules").symlink_to(self.packages.node / "node_modules")

    async def run(self) -> None:
        self.prepare()
        await self.clients()
        await self.servers()

    # Official clients at scripted servers.

    def command(self, kind: str) -> list[str]:
        return {
            "python1": [python(self.packages.python1), "-B", str(HERE / "official" / "client1.py")],
            "python2": [python(self.packages.python), "-B", str(INTEROP / "python" / "client.py")],
            "typescript1": ["node", str(self.scripts / "client.mjs"), "--sdk", "1"],
            "typescript2": ["node", str(self.scripts / "client.mjs"), "--sdk", "2"],
            "rmcp": [str(self.packages.rmcp)],
        }[kind]

    async def clients(self) -> None:
        few = [Peer("2024-11-05", "http"), Peer("2026-07-28", "stdio")]
        small = self.world.configure("few", self.world.entries(few))
        over_stdio = ["--", self.world.binary, "stdio", "--own", "--config", str(small)]
        over_http, over_sse = ["--url", f"{self.world.host}/mcp"], ["--url", f"{self.world.host}/sse"]
        runs = [(kind, era, up, "http", over_http) for kind, era in CLIENTS for up in peers()]
        runs += [(kind, era, up, "stdio", over_stdio) for kind, era in CLIENTS for up in few]
        runs += [("python1", "legacy", up, "sse", over_sse) for up in peers()]
        print(f"clients on SDKs at scripted servers: {len(runs)} runs", flush=True)
        await asyncio.gather(*(self.client(number, *run) for number, run in enumerate(runs)))

    async def client(self, number: int, kind: str, era: str, up: Peer, transport: str, way: list[str]) -> None:
        """Runs one client once: each line that it prints is a cell."""
        features = ["echo", "progress", "sampling", "roots", "annotated"]
        features += ["list", "elicitation"] if up.revision >= R25B else []
        mark = f"mark-{number}x"
        given = ["--era", era, "--features", ",".join(features), "--prefix", f"{up.alias}__", "--mark", mark]
        given += ["--number", str(1000 + number), "--steps", str(3 + number % 4)]
        name = f"{kind} ({era}) over {transport} -> {up}"
        errors = self.world.errors(f"{kind}-{era}-{transport}-{up.alias}")
        async with self.slots:
            began = time.monotonic()
            with open(errors, "ab") as log:
                child = await asyncio.create_subprocess_exec(
                    *self.command(kind), *given, *way, stdout=-1, stderr=log, env=self.world.environment()
                )
            try:
                output, _ = await asyncio.wait_for(child.communicate(), 90)
            except TimeoutError:
                child.kill()
                output = b""
        said = {}
        for line in output.decode(errors="replace").splitlines():
            verdict, _, rest = line.partition(" ")
            feature, _, why = rest.partition(": ")
            said[feature] = None if verdict == "ok" else why or line
        for feature in features:
            self.report.line(f"{name}  {feature}", said.pop(feature, "no word of it"), time.monotonic() - began)
        for feature, why in said.items():  # whatever else it reported
            if why is not None:
                self.report.line(f"{name}  {feature}", why, 0)

    # Scripted clients at official servers.

    async def servers(self) -> None:
        entries, starting = {}, []
        everything = str(self.packages.npm / "node_modules/@modelcontextprotocol/server-everything/dist/index.js")
        shim = str(self.scripts / "loopback.mjs")
        programs = {
            "py1": [python(self.packages.python1), "-B", str(HERE / "official" / "server1.py")],
            "py2": [python(self.packages.python), "-B", str(HERE / "official" / "server2.py")],
            "ts2": ["node", str(self.own / "server2.mjs")],
        }
        for alias, program in programs.items():
            command = {"command": program[0], "args": [*program[1:], "stdio"], "env": {"PATH": os.environ["PATH"]}}
            entries[f"{alias}-stdio"] = command
            if alias != "py1":
                entries[f"{alias}-stdio"] = command | {"era": "legacy"}
                entries[f"{alias}-modern"] = command | {"era": "modern"}
            for transport in ["http"] if alias == "ts2" else ["http", "sse"]:
                port = free_port()
                url = f"http://127.0.0.1:{port}/{'sse' if transport == 'sse' else 'mcp'}"
                entries[f"{alias}-{transport}"] = {"type": transport, "url": url}
                starting.append(([*program, transport, str(port)], port, {}))
        entries["ts1-stdio"] = {"command": "node", "args": [everything, "stdio"], "env": {"PATH": os.environ["PATH"]}}
        port = free_port()
        entries["ts1-http"] = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
        starting.append((["node", "--import", shim, everything, "streamableHttp"], port, {"PORT": str(port)}))
        await asyncio.gather(*(self.world.start_at(*one) for one in starting))
        self.world.config = self.world.configure("official", entries)
        self.world.host = await self.world.serve(self.world.config)
        await warm_up(self.world, sorted(entries), "get-roots-list")
        print(f"scripted clients at servers on SDKs: {len(peers())} x {len(entries)} pairs", flush=True)
        await asyncio.gather(*(self.downstream(down, sorted(entries)) for down in peers()))

    async def downstream(self, down: Peer, aliases: list[str]) -> None:
        client = self.world.client(f"o-{down.alias}", down)
        client.foreign = True
        async with self.slots:
            try:
                async with self.opening:
                    await open_client(client)
            except Exception as error:
                return self.report.line(f"{down} -> servers on SDKs", f"cannot connect: {error}", 0)
            for alias in aliases:
                for name, feature in FEATURES.items():
                    if name == "roots" and alias.startswith("ts1") and down.modern and down.transport == "http":
                        feature = no_roots
                    if name != "elicitation" or down.has("form"):
                        await self.cell(down, alias, name, feature(client, alias))
        await asyncio.wait_for(client.close(), 30)
        self.report.lines("violation", client.violations)

    async def cell(self, down: Peer, alias: str, name: str, work: Awaitable[None]) -> None:
        began, fault = time.monotonic(), None
        try:
            await asyncio.wait_for(work, 60)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        self.report.line(f"{down} -> {alias}  {name}", fault, time.monotonic() - began)


def contains(text: str, part: str) -> None:
    if part not in text:
        raise AssertionError(f"no {part!r} in {text[:500]!r}")


async def echo(client: Client, alias: str) -> None:
    mark = client.mark()
    same(said_text(await client.tool(f"{alias}__echo", mark, message=mark).done()), f"Echo: {mark}")


async def progress(client: Client, alias: str) -> None:
    call = client.tool(f"{alias}__trigger-long-running-operation", client.mark(), steps=4, duration=0.1, progress=True)
    contains(said_text(await call.done()), "Steps: 4")
    same([(one["progress"], one["total"]) for one in call.progress], [(step, 4) for step in range(1, 5)])


async def sampling(client: Client, alias: str) -> None:
    mark = client.mark()
    call = client.tool(f"{alias}__trigger-sampling-request", mark, prompt=mark, maxTokens=10)
    contains(said_text(await call.done(30)), f"{mark} {client.name}")


async def elicitation(client: Client, alias: str) -> None:
    outcome = await client.tool(f"{alias}__trigger-elicitation-request", client.mark()).done(30)
    said_text(outcome)
    contains("\n".join(part["text"] for part in outcome["result"]["content"]), client.name)


async def roots(client: Client, alias: str) -> None:
    text = said_text(await client.tool(f"{alias}__get-roots-list", client.mark()).done(30))
    contains(text, f"file:///{client.name}")


async def no_roots(client: Client, alias: str) -> None:
    """This server asks once, at its start, and not during a call. Requests without a session count as one client by their
    capabilities, so it is unknown whose roots to tell: it gets none (`docs/bridging.md` 15.2, 15.3)."""
    text = said_text(await client.tool(f"{alias}__get-roots-list", client.mark()).done(30))
    contains(text, "no roots are currently configured")


FEATURES: dict[str, Callable[[Client, str], Awaitable[None]]] = {
    "echo": echo, "progress": progress, "sampling": sampling, "elicitation": elicitation, "roots": roots,
}  # fmt: skip
