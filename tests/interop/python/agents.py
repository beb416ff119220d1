"""Real agents from npm, driven by a scripted model: is our tool in their first request, and is it called once?

The agents do not run by default, since their downloads are large: `tests/interop/run --only agents`. Each has its own
home, no key of the user's, and settings that turn telemetry off; as root the stage runs in a network namespace with only
loopback. Three ways: over HTTP at a warm daemon without earlier clients; `stdio` after a run that may have kept the lists;
`stdio` beside a daemon of the same config. And in code mode, over HTTP and `stdio`: the model finds a tool, has it described, calls
it, and calls it by a script. The function named after an agent has its settings for a headless run.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from census import Census
from fixtures import listed, status
from model import FINAL, Model, Step
from world import HERE, MARK, Report, World, end, free_port, none_left, refuses, until

PROMPT = "Note the word. Use the tool for that."
LIMIT = 120
# Start time of the server with the tool, in seconds: longer than agents and hosts wait for lists.
SLOW = 4
# Only these variables come from the user's environment: no keys, no proxies, no settings of the user's agents.
INHERITED = ("PATH", "LANG", "LC_ALL", "TERM", "TZ")

Entry = dict[str, Any]  # how an agent reaches the host: `url`, or `command` and `args`


@dataclass
class Agent:
    """An installed agent: its program, and the settings in its home."""

    name: str
    program: Path

    def prepare(self, home: Path, entry: Entry, model: str) -> tuple[list[str], dict[str, str]]:
        """Writes its settings; returns the command line and variables that start it."""
        return {"codex": codex, "claude": claude, "gemini": gemini}[self.name](home, entry, model)


def codex(home: Path, entry: Entry, model: str) -> tuple[list[str], dict[str, str]]:
    server = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex" / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "scripted"\napproval_policy = "never"\nsandbox_mode = "read-only"\n'
        'check_for_update_on_startup = false\n[analytics]\nenabled = false\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model}/v1"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
        f'[mcp_servers.hub]\ndefault_tools_approval_mode = "approve"\n{server}'
    )
    return ["exec", "--skip-git-repo-check", PROMPT], {}


def claude(home: Path, entry: Entry, model: str) -> tuple[list[str], dict[str, str]]:
    kind = "http" if "url" in entry else "stdio"
    servers = home / "servers.json"
    servers.write_text(json.dumps({"mcpServers": {"hub": {"type": kind, **entry}}}))
    variables = {
        "ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "scripted", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",  # else its first request has no MCP tools, only a search for them
    }  # fmt: skip
    # Variadic options come last, since they would take the prompt.
    return ["-p", PROMPT, "--strict-mcp-config", "--mcp-config", str(servers), "--allowedTools", "mcp__hub"], variables


def gemini(home: Path, entry: Entry, model: str) -> tuple[list[str], dict[str, str]]:
    server = {"httpUrl": entry["url"]} if "url" in entry else entry
    settings = {
        "mcpServers": {"hub": server | {"trust": True}}, "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False}, "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }  # fmt: skip
    (home / ".gemini").mkdir(exist_ok=True)
    (home / ".gemini" / "settings.json").write_text(json.dumps(settings))
    # Naming the model avoids a request that chooses one.
    words = ["-m", "gemini-2.5-flash", "-y", "--skip-trust", "-p", PROMPT]
    return words, {"GEMINI_API_KEY": "scripted", "GOOGLE_GEMINI_BASE_URL": model}


def installed(folder: Path, report: Report) -> list[Agent]:
    """Returns the installed agents; prints a line for each other one with the reason."""
    found = []
    for line in (HERE / "agents.txt").read_text().splitlines():
        name, package = line.split()
        # Claude's package finds its program by an install script, which does not run here: the program is in a package beside it.
        own = sorted(folder.glob(f"{name}/node_modules/@anthropic-ai/claude-code-linux-*/claude"))
        program = own[0] if own else folder / name / "node_modules" / ".bin" / name
        if program.exists() and (name != "claude" or own):
            found.append(Agent(name, program))
        else:
            why = folder / f"{name}.log"
            said = why.read_text(errors="replace")[-300:] if why.exists() else "no program for this platform in it"
            report.line(f"agents: {package} from npm", f"not installed: {said}")
    return found


class Site:
    """One home with one config of four servers, each with its own mark, for the hosts and agents in it."""

    def __init__(self, world: World, name: str, host: dict[str, Any] | None = None) -> None:
        self.world, self.name = world, f"agents-{name}"
        self.home = world.root / "home" / self.name
        self.work = self.home / "work"
        for folder in (self.work, self.home / "tmp"):
            folder.mkdir(parents=True)
        self.environment = {key: os.environ[key] for key in INHERITED if key in os.environ}
        self.environment |= {"HOME": str(self.home), "TMPDIR": str(self.home / "tmp"), "NO_COLOR": "1"}
        # Nothing listens there: outside requests of an agent fail at once, even with a network.
        self.environment |= {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
        self.word = f"word-{uuid.uuid4().hex[:8]}"
        self.book = world.root / f"{self.name}.book"
        self.book.touch()
        node = {name: world.package(f"server-{name}", "dist/index.js") for name in ("everything", "filesystem", "memory")}
        self.tally = [str(world.venv / "bin" / "python"), str(HERE / "python" / "tally.py"), str(self.book)]
        commands = {
            "tally": [*self.tally, str(SLOW)],
            "everything": ["node", node["everything"], "stdio"],  # asks for roots
            "filesystem": ["node", node["filesystem"], str(world.files)],  # asks for roots
            "memory": ["node", node["memory"]],
        }
        self.marks = {server: f"{self.name}-{server}-{uuid.uuid4()}" for server in commands}
        world.marks |= set(self.marks.values())
        servers = {
            server: {"command": words[0], "args": words[1:], "env": {MARK: self.marks[server]}}
            for server, words in commands.items()
        }
        servers["memory"]["env"]["MEMORY_FILE_PATH"] = str(self.home / "memory.jsonl")
        self.config = world.root / f"{self.name}.json"
        self.config.write_text(json.dumps({"mcpServers": servers, "host": host or {}}))
        self.stdio = {"command": world.binary, "args": ["stdio", "--config", str(self.config)]}

    @contextlib.contextmanager
    def daemon(self, folder: Path | None = None) -> Iterator[Entry]:
        """Runs `serve` until all servers are connected, without earlier clients, in another folder than the agents."""
        address = f"127.0.0.1:{free_port()}"
        command = [self.world.binary, "serve", "--config", str(self.config), "--listen", address]
        process = self.world.start(command, self.environment, self.name, cwd=folder or self.home)

        def warm() -> bool:
            rows = status(self.world, address, self.environment)
            return len(rows) == len(self.marks) and {row["state"] for row in rows} == {"connected"}

        try:
            until("every server connected", 60, warm)
            yield {"url": f"http://{address}/mcp"}
        finally:
            end(process)
        for mark in self.marks.values():
            none_left(mark, {}, 6)

    def keep(self, lists: str = "tally__note") -> None:
        """An earlier run in the agent's folder whose servers all connect, so that their lists may be kept for the next one."""
        with self.daemon(self.work) as entry:
            names = listed(entry["url"])
            if lists not in names:
                raise AssertionError(names)

    def note(self, tool: str = "tally__note") -> Step:
        return Step(tool, {"word": self.word}, f"noted {self.word}")

    def calls(self) -> list[str]:
        return [line for line in self.book.read_text().splitlines() if line.startswith("call ")]


def run(site: Site, agent: Agent, entry: Entry, *steps: Step) -> tuple[Model, Census, str]:
    """Runs the agent headless, from start to end."""
    model = Model(*steps)
    try:
        words, variables = agent.prepare(site.home, entry, model.url)
        began = time.monotonic()
        with Census(site.marks) as census:
            process = site.world.start(
                [str(agent.program), *words], site.environment | variables, f"{site.name}-{agent.name}",
                cwd=site.work, stdout=subprocess.PIPE,
            )  # fmt: skip
            try:
                said, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                end(process)
                raise AssertionError(f"{agent.name} did not end within {LIMIT} s") from None
        model.first_after = model.first_at - began
        tail = f"{said.decode(errors='replace')[-300:]} {site.world.tail(f'{site.name}-{agent.name}')}"
        if process.returncode != 0:
            raise AssertionError(f"{agent.name} ended with {process.returncode}: {tail}")
        return model, census, said.decode(errors="replace")
    finally:
        model.close()


def judged(report: Report, site: Site, agent: Agent, entry: Entry, label: str, tool: str = "tally__note") -> None:
    """Does one run and its three checks."""
    label = f"agents: {agent.name}, {label}"
    before = len(site.calls())
    try:
        model, census, said = run(site, agent, entry, site.note(tool))
    except Exception as error:  # it did not run: one line says why
        report.line(f"{label}: runs", f"{type(error).__name__}: {error}")
        return
    with report.check(f"{label}: the tool is in the first request"):
        if model.first is None:
            raise AssertionError(f"no request with tools came; {model.strange} {said[-300:]}")
        if not [name for name in model.first if name.endswith(tool)]:
            ours = [name for name in model.first if "hub" in name]
            raise AssertionError(f"{len(model.first)} tools after {model.first_after:.1f} s, {len(ours)} of ours, not this one")
    with report.check(f"{label}: one call, and its result at the model"):
        calls = site.calls()[before:]
        if wrong := model.wrong():
            raise AssertionError(f"{wrong}; {len(calls)} calls at the server")
        if len(calls) != 1 or not calls[0].endswith(site.word):
            raise AssertionError(f"{len(calls)} calls at the server; the model was handed {model.results}")
        if FINAL not in said:
            raise AssertionError(f"the agent did not say the model's last word: {said[-300:]}")
    if census.total:
        with report.check(f"{label}: one process per server at any moment"):
            census.one_each()


CODE = {"catalog": {"mode": "code", "code": {"tools": "all"}}}
SCRIPT = """
const words = [input.word + "-a", input.word + "-b"];
const said = await Promise.all(words.map((word) => call("tally__note", { word })));
return said.sort().join(", ");
"""


def by_script(report: Report, site: Site, agent: Agent, entry: Entry, label: str) -> None:
    """Does one run in code mode: finds the tool, has it described, calls it, and calls it twice by a script."""
    label, word = f"agents: {agent.name}, {label}", site.word
    steps = (
        # Some agents give their model the lines, others the structured content.
        Step("find_tools", {"query": "write a word down"}, "(word: string)"),
        Step("find_tools", {"names": ["tally__note"], "detail": "schema"}, "Use this whenever a word is to be noted"),
        Step("call_tool", {"name": "tally__note", "arguments": {"word": word}}, f"noted {word}"),
        Step("run_script", {"script": SCRIPT, "input": {"word": word}}, f"noted {word}-a, noted {word}-b"),
    )
    with report.check(f"{label}: finds, has described, calls, and runs a script"):
        model, census, said = run(site, agent, entry, *steps)
        if model.first is None or any("tally__note" in name for name in model.first):
            raise AssertionError(f"the first request has the tools {model.first}")
        if wrong := model.wrong():
            raise AssertionError(wrong)
        noted = sorted(line.rpartition(" ")[2] for line in site.calls())
        if noted != [word, f"{word}-a", f"{word}-b"] or FINAL not in said:
            raise AssertionError(f"the server was called with {noted}; the agent said {said[-300:]}")
        if census.total:
            census.one_each()


def gone(report: Report, site: Site, label: str) -> None:
    with report.check(f"agents: {label}: no process is left"):
        for mark in site.marks.values():
            none_left(mark, {}, 6)


def through(world: World, report: Report, folder: Path) -> None:
    found = installed(folder, report)
    for agent in found:
        # Its capabilities are new to the daemon, which has had no other client.
        site = Site(world, f"{agent.name}-http")
        with report.check(f"agents: {agent.name}, warm daemon over HTTP: the daemon starts, and ends"), site.daemon() as entry:
            judged(report, site, agent, entry, "warm daemon over HTTP")
        site = Site(world, f"{agent.name}-cold")
        with report.check(f"agents: {agent.name}, cold stdio: an earlier run keeps its lists"):
            site.keep()
            judged(report, site, agent, site.stdio, "cold stdio, lists kept")
            gone(report, site, f"{agent.name}, cold stdio")
        site = Site(world, f"{agent.name}-beside")
        with report.check(f"agents: {agent.name}, stdio beside a daemon: the daemon starts, and ends"), site.daemon():
            judged(report, site, agent, site.stdio, "stdio beside a daemon")
            with report.check(f"agents: {agent.name}, stdio beside a daemon: one process per server stays"):
                stays(site)
        site = Site(world, f"{agent.name}-code-http", CODE)
        with report.check(f"agents: {agent.name}, code mode over HTTP: the daemon starts, and ends"), site.daemon() as entry:
            by_script(report, site, agent, entry, "code mode over HTTP")
        site = Site(world, f"{agent.name}-code-stdio", CODE)
        with report.check(f"agents: {agent.name}, code mode over stdio: an earlier run keeps its lists"):
            site.keep("run_script")
            by_script(report, site, agent, site.stdio, "code mode over stdio")
            gone(report, site, f"{agent.name}, code mode over stdio")
    if len(found) > 1:
        together(world, report, found)


def together(world: World, report: Report, agents: list[Agent]) -> None:
    """All agents at once at one daemon, over HTTP: the main use of a host."""
    site = Site(world, "together")
    label = f"agents: {len(agents)} at once at one daemon"
    with report.check(f"{label}: the daemon starts, and ends"), site.daemon() as entry:
        with ThreadPoolExecutor(max_workers=len(agents)) as pool:
            runs = [pool.submit(run, site, agent, entry, site.note()) for agent in agents]
        for agent, each in zip(agents, runs, strict=True):
            with report.check(f"{label}: {agent.name} has the result of its call"):
                model, _, _ = each.result()
                if wrong := model.wrong():
                    raise AssertionError(wrong)
        with report.check(f"{label}: one call each, and one process per server"):
            if len(site.calls()) != len(agents):
                raise AssertionError(f"{len(site.calls())} calls at the server")
            for each in runs:
                each.result()[1].one_each()


def stays(site: Site) -> None:
    """Checks that after the agent ends, the daemon has each server once."""
    census = Census(site.marks)
    wanted = dict.fromkeys(site.marks, 1)
    try:
        until("one process per server", 6, lambda: census.look() == wanted)
    except AssertionError as error:
        raise AssertionError(f"{error}: {census.look()}") from None


def directly(world: World, report: Report, folder: Path) -> None:
    """The same agents at the server itself, which runs before they start, since agents do not wait for a server."""
    for agent in installed(folder, report):
        site = Site(world, f"{agent.name}-direct")
        port = free_port()
        world.start([*site.tally, "--port", str(port)], site.environment, site.name)
        until("the server listens", 20, lambda: not refuses(port))
        judged(report, site, agent, {"url": f"http://127.0.0.1:{port}/mcp"}, "directly at the server", "note")


if __name__ == "__main__":
    sys.exit("run tests/interop/run --only agents")
