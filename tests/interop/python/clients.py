"""Third-party clients: each alone, two at once, and the Inspector's command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from world import Host, Report, World, end, none_left

FEATURES = "list echo progress sampling elicitation roots annotated resources prompts logging subscription".split()
# State that a legacy server keeps per connection (its client's roots, a toggle) belongs to the first client. Clients of
# the stateless revision share a connection, so two of them at once try only the rest.
SHARED = [feature for feature in FEATURES if feature not in ("roots", "logging", "subscription")]
# One after the other, they try everything except roots, for which the server asked the first one.
LATER = [feature for feature in FEATURES if feature != "roots"]
LIMIT = 300
# The clients close stdin and kill their server 4 to 6 seconds later.
LINGER = 6


def script(world: World, kind: str) -> list[str]:
    return {
        "python": [sys.executable, str(Path(__file__).with_name("client.py"))],
        "typescript": ["node", str(world.node_scripts / "client.mjs"), "--sdk", "1"],
        "typescript2": ["node", str(world.node_scripts / "client.mjs"), "--sdk", "2"],
        "rmcp": [world.rmcp],
    }[kind]


# Each client with the eras that it speaks; the first TypeScript SDK ends before 2026-07-28.
CLIENTS = [
    ("python", "legacy"), ("python", "any"), ("typescript", "legacy"), ("typescript2", "any"),
    ("rmcp", "legacy"), ("rmcp", "any"),
]  # fmt: skip

# Clients that speak HTTP+SSE.
OLD = ["python", "typescript"]


def options(alias: str, era: str, who: int, features: list[str], rounds: int = 1) -> list[str]:
    given = ["--era", era, "--features", ",".join(features), "--rounds", str(rounds)]
    given += ["--mark", f"mark-{who}x", "--number", str(1000 + who), "--steps", str(3 + who % 4)]
    return given + (["--prefix", f"{alias}__", "--uri-prefix", f"{alias}+"] if alias else [])


def lines(process: subprocess.Popen, seconds: float = LIMIT) -> list[tuple[str, str | None]]:
    """Runs a client; returns its result for each feature: the name, and the fault, if any."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        end(process)
        return [("finishes", f"not within {seconds} s")]
    found: list[tuple[str, str | None]] = []
    for line in said.decode(errors="replace").splitlines():
        if line.startswith("ok "):
            found.append((line[3:], None))
        elif line.startswith("FAIL "):
            name, _, why = line[5:].partition(": ")
            found.append((name, why))
    if process.returncode != 0 and all(why is None for _, why in found):
        found.append(("finishes", f"ended with {process.returncode}"))
    return found


def alone(world: World, report: Report, label: str, kind: str, given: list[str], target: list[str], home: str) -> None:
    process = world.start(script(world, kind) + given + target, world.environment(home), home, stdout=subprocess.PIPE)
    for name, why in lines(process):
        report.line(f"{label}: {name}", why and f"{why} | {world.tail(home)[-200:]}")


def features_directly(world: World, report: Report) -> None:
    entry = world.servers(world.direct)["everything"]
    stdio = ["--", entry["command"], *entry["args"]]
    for who, kind in enumerate(("python", "typescript", "typescript2", "rmcp")):
        for transport, target in (("http", ["--url", world.remote]), ("stdio", stdio)):
            for era in ("legacy", "any") if kind != "typescript" else ("legacy",):
                given = options("", era, who, FEATURES)
                alone(world, report, f"{kind} directly over {transport}, {era}", kind, given, target, f"{kind}-direct")
    for who, kind in enumerate(OLD):
        given = options("", "legacy", who, FEATURES)
        alone(world, report, f"{kind} directly over sse", kind, given, ["--url", world.old], f"{kind}-direct")


# It has the capabilities of the Python SDK, which used the same server before.
SAME_BEFORE = [("rmcp", "any")]


def features(world: World, report: Report, host: Host, compared: bool) -> None:
    """Every client, over HTTP at both kinds of server, and over stdio; two over HTTP+SSE, on either side and on both.
    `compared`: the stage `same` used the servers before. Its client without a session has the capabilities of the Python SDK;
    if the server asked during a call of it, the server goes on with its roots."""
    before = [*SAME_BEFORE, *([("python", "any")] if compared else [])]
    for who, (kind, era) in enumerate(CLIENTS):
        for alias in ("everything", "remote"):
            given = options(alias, era, who, LATER if (kind, era) in before else FEATURES)
            label = f"{kind} over http, {era}, {alias}"
            alone(world, report, label, kind, given, ["--url", host.url], f"{kind}-{era}-{alias}")
    mark = f"{host.mark}-stdio"
    small = world.config("small", mark, ["everything", "python-sdk"])
    pipes(world, report, [world.binary, "stdio", "--config", str(small)], "stdio")
    for who, kind in enumerate(OLD, len(CLIENTS)):
        for over, url, alias in (("http", host.url, "old"), ("sse", host.sse, "everything"), ("sse", host.sse, "old")):
            given = options(alias, "legacy", who, FEATURES)
            alone(world, report, f"{kind} over {over}, {alias}", kind, given, ["--url", url], f"{kind}-{over}-{alias}")
    with report.check("clients over stdio: no process is left after they end"):
        none_left(mark, {}, LINGER)


def pipes(world: World, report: Report, command: list[str], over: str, one_server: bool = False) -> None:
    """Every client at a command. `one_server`: the server behind it outlives the client and serves the next one."""
    stdio = ["--", *command]
    for who, (kind, era) in enumerate(CLIENTS):
        given = options("everything", era, who, LATER if one_server and (kind, era) in SAME_BEFORE else FEATURES)
        alone(world, report, f"{kind} over {over}, {era}, everything", kind, given, stdio, f"{kind}-{era}-stdio")
    # This server asks for roots a third of a second after its start, even during a call. A client that is asked by a result is
    # away at that moment, and misses nothing.
    for who, kind in enumerate(("python", "typescript2")):
        given = [*options("everything", "any", who, ["progress"]), "--think", "0.5", "--steps", "12"]
        alone(world, report, f"{kind} over {over}, while it thinks", kind, given, stdio, f"{kind}-thinks")


def pairs(world: World, report: Report, url: str, alias: str, label: str) -> None:
    """Two clients at once at one server: each gets only its own answers, progress, logs, and updates."""
    both = [
        (("python", "legacy", FEATURES), ("typescript", "legacy", FEATURES)),
        (("rmcp", "legacy", FEATURES), ("rmcp", "legacy", FEATURES)),
    ]
    if alias:
        both += [
            (("python", "any", LATER), ("rmcp", "legacy", FEATURES)),
            (("python", "any", SHARED), ("typescript2", "any", SHARED)),
        ]
    for pair in both:
        running = []
        for who, (kind, era, wanted) in enumerate(pair):
            home = f"pair-{who}-{kind}"
            command = script(world, kind) + options(alias, era, 50 + who, wanted, 3) + ["--url", url]
            running.append(world.start(command, world.environment(home), home, stdout=subprocess.PIPE))
        for who, ((kind, era, _), process) in enumerate(zip(pair, running, strict=True)):
            said = lines(process)
            faults = [f"{name}: {why}" for name, why in said if why is not None]
            name = f"two at once {label}: {kind} ({era}) beside {pair[1 - who][0]} ({pair[1 - who][1]}), {len(said)} steps"
            report.line(name, "; ".join(faults) if faults or not said else None)


def inspect(world: World, home: str, words: list[str], target: list[str]) -> dict[str, Any]:
    """Runs `mcp-inspector --cli`; options come first, since the target takes the rest."""
    program = str(world.npm / "node_modules" / ".bin" / "mcp-inspector")
    command = ["node", program, "--cli", "--format", "json", "-q", "--connect-timeout", "60000", *words, *target]
    process = world.start(command, world.environment(home), home, stdout=subprocess.PIPE)
    try:
        said, _ = process.communicate(timeout=90)
    except subprocess.TimeoutExpired:
        end(process)
        raise AssertionError("not within 90 s") from None
    if process.returncode != 0:
        raise AssertionError(f"ended with {process.returncode}: {world.tail(home)}")
    return json.loads(said)["result"]


def inspections(world: World, report: Report, target: list[str], alias: str, era: str, label: str) -> None:
    name, uri = (f"{alias}__", f"{alias}+") if alias else ("", "")
    words = ["--protocol-era", era]
    home = f"inspector-{era}"
    with report.check(f"inspector {label}: tools/list"):
        tools = {tool["name"] for tool in inspect(world, home, [*words, "--method", "tools/list"], target)["tools"]}
        if not {f"{name}echo", f"{name}get-sum"} <= tools:
            raise AssertionError(sorted(tools))
    with report.check(f"inspector {label}: tools/call"):
        call = ["--method", "tools/call", "--tool-name", f"{name}get-sum", "--tool-args-json", '{"a":2,"b":40}']
        result = inspect(world, home, [*words, *call], target)
        if result["content"] != [{"type": "text", "text": "The sum of 2 and 40 is 42."}]:
            raise AssertionError(result)
    with report.check(f"inspector {label}: resources/read"):
        wanted = f"{uri}demo://resource/dynamic/text/7"
        contents = inspect(world, home, [*words, "--method", "resources/read", "--uri", wanted], target)["contents"]
        if contents[0]["uri"] != wanted or not contents[0]["text"].startswith("Resource 7:"):
            raise AssertionError(contents)
    with report.check(f"inspector {label}: prompts/get"):
        ask = ["--method", "prompts/get", "--prompt-name", f"{name}args-prompt", "--prompt-args", "city=Ulm"]
        messages = inspect(world, home, [*words, *ask], target)["messages"]
        if messages[0]["content"]["text"] != "What's weather in Ulm?":
            raise AssertionError(messages)


def inspector_directly(world: World, report: Report) -> None:
    entry = world.servers(world.direct)["everything"]
    url = ["--transport", "http", "--server-url", world.remote]
    inspections(world, report, url, "", "legacy", "directly over http")
    inspections(world, report, ["--", entry["command"], *entry["args"]], "", "auto", "directly over stdio")


def inspector(world: World, report: Report, host: Host) -> None:
    mark = f"{host.mark}-inspector"
    small = world.config("inspected", mark, ["everything"])
    for era in ("legacy", "auto"):
        url = ["--transport", "http", "--server-url", host.url]
        inspections(world, report, url, "remote", era, f"over http, {era}")
        stdio = ["--", world.binary, "stdio", "--config", str(small)]
        inspections(world, report, stdio, "everything", era, f"over stdio, {era}")
    with report.check("inspector over stdio: no process is left after it ends"):
        none_left(mark, {}, LINGER)
