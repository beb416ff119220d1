"""The files of other clients (tests/fixtures/clients), each served with real servers from npx and uvx behind its entries."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from world import HERE, Report, World, descendants, end, free_port, none_left, until

FIXTURES = HERE.parent / "fixtures" / "clients"
SECONDS = 60
# Time limit for all of them together, in seconds.
TOGETHER = 120
# Names in the files that no machine has, and their substitutes here: a folder, and two servers over HTTP.
FOLDER, HTTP, SSE = "/srv/mcp-demo", "127.0.0.1:3001", "127.0.0.1:3002"


class Place:
    """Returns a copy of the fixtures with a real folder and real ports, below a folder where npx finds its packages."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.root = world.root / "clients"
        shutil.copytree(FIXTURES, self.root)
        self.folder = self.root / "demo"
        for name in ("shop", "blog"):
            (self.folder / name).mkdir(parents=True)
        real = {FOLDER: str(self.folder), HTTP: urlsplit(world.remote).netloc, SSE: urlsplit(world.old).netloc}
        for path in self.root.rglob("*"):
            if path.is_file():
                text = path.read_text()
                for made_up, found in real.items():
                    text = text.replace(made_up, found)
                path.write_text(text)
        self.table = json.loads((self.root / "table.json").read_text())
        (self.root / "node_modules").symlink_to(world.npm / "node_modules")
        shutil.copy(world.npm / "package.json", self.root)

    def environment(self, name: str, client: Path) -> dict[str, str]:
        """Makes the home of the client, where npx and uvx find installed packages and download nothing."""
        made = self.world.environment(name) | self.table["vars"] | {"HOME": str(client / "home")}
        (client / "home").mkdir(exist_ok=True)
        (client / "home" / ".npmrc").write_text("offline=true\nupdate-notifier=false\n")
        data, config = Path(made["XDG_DATA_HOME"]), Path(made["XDG_CONFIG_HOME"]) / "uv"
        data.mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (data / "uv").symlink_to(self.world.uvtools)
        config.mkdir(parents=True, exist_ok=True)
        (config / "uv.toml").write_text('offline = true\npython-downloads = "never"\n')
        made["PATH"] = f"{self.world.venv / 'bin'}{os.pathsep}{made['PATH']}"
        return made


def served(place: Place, number: int, row: dict[str, Any], deadline: float) -> None:
    """Checks one file: each of its servers that can run connects and lists what the file includes."""
    world, name = place.world, f"client-{number}"
    client = place.root / Path(row["file"]).parts[0]
    environment, address = place.environment(name, client), f"127.0.0.1:{free_port()}"
    command = [world.binary, "serve", "--config", str(place.root / row["file"]), "--listen", address]
    command += ["--project", row["project"]] if "project" in row else []
    host = world.start(command, environment, name, cwd=client)
    idle, known = {*row.get("off", []), *row.get("failed", []), *row.get("lazy", [])}, {}
    try:
        rows: list[dict[str, Any]] = []

        def connected() -> bool:
            if host.poll() is not None:
                raise AssertionError(f"the host ended with {host.returncode}: {world.tail(name)}")
            rows[:] = status(world, address, environment)
            waited = [each for each in rows if not idle & {each["name"], each.get("alias")}]
            return bool(waited) and all(each["state"] == "connected" for each in waited)

        try:
            until("every server connected", min(SECONDS, deadline - time.monotonic()), connected)
        except AssertionError as error:
            states = {each["name"]: (each["state"], each.get("last_error") or each.get("lastError")) for each in rows}
            raise AssertionError(f"{error}; {states}; {world.tail(name)}") from None
        known = descendants(host.pid)
        tools = listed(f"http://{address}/mcp")
        for each in rows:
            alias = each.get("alias") or each["name"]
            found = {tool.removeprefix(f"{alias}__") for tool in tools if tool.startswith(f"{alias}__")}
            wanted = row.get("tools", {}).get(each["name"])
            if each["state"] == "connected" and (found != set(wanted) if wanted is not None else not found):
                raise AssertionError(f"{alias} lists {sorted(found)}, wanted {wanted if wanted is not None else 'any'}")
    finally:
        end(host)
    none_left("", known)


def status(world: World, address: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [world.binary, "status", "--json", "--listen", address]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False)
    if done.returncode != 0:
        return []
    said = json.loads(done.stdout)
    return said["servers"] if isinstance(said, dict) else said


def listed(url: str) -> list[str]:
    """Returns the names of all tools, asked by hand in a new session."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(message: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        request = urllib.request.Request(url, json.dumps({"jsonrpc": "2.0", **message}).encode(), headers)
        with opener.open(request, timeout=SECONDS) as response:
            text = response.read().decode()
            lines = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
            answers = [json.loads(each) for each in lines or ([text] if text.strip() else [])]
            return response.headers, next((each["result"] for each in answers if "result" in each), {})

    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}
    session, _ = ask({"id": 1, "method": "initialize", "params": hello})
    headers |= {"mcp-session-id": session["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    ask({"method": "notifications/initialized"})
    names, cursor, number = [], {}, 1
    while True:
        number += 1
        _, page = ask({"id": number, "method": "tools/list", "params": cursor})
        names += [tool["name"] for tool in page["tools"]]
        if not (following := page.get("nextCursor")):
            return names
        cursor = {"cursor": following}


def through(world: World, report: Report) -> None:
    place = Place(world)
    # Starts take the time; with more at once, a small machine only waits longer for each.
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        rows = place.table["files"]
        deadline = time.monotonic() + TOGETHER
        runs = [pool.submit(served, place, number, row, deadline) for number, row in enumerate(rows)]
        for row, run in zip(rows, runs, strict=True):
            with report.check(f"file of {row['client']}: its servers connect and list"):
                run.result()
