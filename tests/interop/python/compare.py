"""Compares answers of servers through the host with their direct answers, member by member.

The official Python SDK asks both sides with the same client capabilities. Results are the JSON as received,
before the SDK's models parse it. The direct answer is rewritten as the host should expose it (prefixed names,
rewritten URIs), so a missing rewrite shows as a difference, too.
"""

from __future__ import annotations

import asyncio
import os
import re
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from anyio import BrokenResourceError
from client import at
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from pydantic import TypeAdapter
from world import Host, Report, World

warnings.simplefilter("ignore")
RAW = TypeAdapter(dict[str, Any])
Question = types.Request[dict[str, Any], str]
LISTS = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}


def calls(world: World, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Requests with one right answer, at least one for each server."""
    hello = str(world.files / "inner" / "hello.txt")
    everything = [
        ("tools/call", {"name": "get-sum", "arguments": {"a": 2, "b": 40.5}}),
        ("tools/call", {"name": "echo", "arguments": {"message": "\u00fc \U0001f980 \u2028"}}),
        ("tools/call", {"name": "get-tiny-image", "arguments": {}}),
        ("tools/call", {"name": "get-structured-content", "arguments": {"location": "Chicago"}}),
        ("tools/call", {"name": "get-annotated-message", "arguments": {"messageType": "success", "includeImage": True}}),
        ("tools/call", {"name": "get-resource-links", "arguments": {"count": 3}}),
        ("tools/call", {"name": "get-sum", "arguments": {"a": "no number"}}),
        ("prompts/get", {"name": "args-prompt", "arguments": {"city": "Ulm"}}),
        ("resources/read", {"uri": "demo://resource/static/document/features.md"}),
    ]
    return {
        "everything": everything,
        "remote": everything,
        "old": everything,
        "filesystem": [
            ("tools/call", {"name": "read_text_file", "arguments": {"path": hello}}),
            ("tools/call", {"name": "list_directory", "arguments": {"path": str(world.files / "inner")}}),
            ("tools/call", {"name": "read_text_file", "arguments": {"path": str(world.files / "inner" / "absent")}}),
        ],
        "memory": [
            ("tools/call", {"name": "read_graph", "arguments": {}}),
            ("tools/call", {"name": "search_nodes", "arguments": {"query": "tea"}}),
        ],
        "thinking": [
            ("tools/call", {"name": "sequentialthinking", "arguments": {"thought": "so", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1}}),
        ],
        "time": [
            ("tools/call", {"name": "convert_time", "arguments": {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}}),
        ],
        "git": [
            ("tools/call", {"name": "git_log", "arguments": {"repo_path": str(world.repository)}}),
            ("tools/call", {"name": "git_status", "arguments": {"repo_path": str(world.repository)}}),
        ],
        "fetch": [
            ("tools/call", {"name": "fetch", "arguments": {"url": world.page}}),
            ("prompts/get", {"name": "fetch", "arguments": {"url": world.page}}),
        ],
        "python-sdk": [
            ("tools/call", {"name": "exact", "arguments": {"points": [{"x": 1.0, "y": -0.5, "label": "p"}]}}),
            ("tools/call", {"name": "loose", "arguments": {"anything": {"int": 9007199254740993, "float": 1.0, "null": None, "\u00fc": ["\u0000", {}]}}}),
            ("resources/read", {"uri": "interop://note"}),
            ("resources/read", {"uri": "interop://notes/one"}),
            ("prompts/get", {"name": "greet", "arguments": {"name": "Bo"}}),
        ],
        "typescript-sdk": [
            ("tools/call", {"name": "area", "arguments": {"shapes": [{"kind": "circle", "radius": 1.5}, {"kind": "box", "width": 2, "height": 3}]}}),
            ("tools/call", {"name": "link", "arguments": {}}),
            ("tools/call", {"name": "refuse", "arguments": {"why": "because"}}),
            ("resources/read", {"uri": "ui://area/view.html"}),
            ("resources/read", {"uri": "interop://notes/two"}),
            ("prompts/get", {"name": "greet", "arguments": {"name": "Bo"}}),
        ],
    }[name]  # fmt: skip


class Asked(Client):
    """Returns a client with these roots, if any."""

    told: dict[str, Any] | None = None


@asynccontextmanager
async def connect(world: World, target: str | dict, era: str, able: bool, home: str) -> AsyncIterator[Asked]:
    """Opens a client at a URL or a command, with every capability or with none."""
    errors = open(world.root / f"{home}.log", "a")
    if isinstance(target, dict) and "url" in target:
        target = target["url"]
    if isinstance(target, dict):
        environment = world.environment(home) | target.get("env", {})
        command = StdioServerParameters(command=target["command"], args=target["args"], cwd=target.get("cwd"), env=environment)
        server = stdio_client(command, errlog=errors)
    else:
        server = at(target)

    async def refuse(*_: object) -> types.ErrorData:
        return types.ErrorData(code=-1, message="nobody is there to answer")

    async def roots(_: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=(world.files / "inner").as_uri(), name="inner")])

    answers = {"sampling_callback": refuse, "elicitation_callback": refuse, "list_roots_callback": roots} if able else {}
    mode = {"legacy": "legacy", "any": "auto"}[era]
    with errors:
        try:
            async with asyncio.timeout(240), Asked(server, mode=mode, read_timeout_seconds=70, **answers) as client:
                client.told = (await roots(None)).model_dump(mode="json", by_alias=True, exclude_none=True) if able else None
                yield client
        except* BrokenResourceError:
            # The SDK's HTTP+SSE reader fails on a message that arrives while it closes.
            if not (isinstance(target, str) and target.endswith("/sse")):
                raise


async def ask(client: Asked, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Returns the answer as received. A client without a session may have to send its roots first; the SDK does that by itself
    only for calls through its models."""
    try:
        answer = await client.session.send_request(Question(method=method, params=params), RAW)
        questions = answer.get("inputRequests", {}) if answer.get("resultType") == "input_required" else {}
        if client.told and [each["method"] for each in questions.values()] == ["roots/list"]:
            told = {"inputResponses": dict.fromkeys(questions, client.told), "requestState": answer["requestState"]}
            answer = await client.session.send_request(Question(method=method, params=params | told), RAW)
        return answer
    except Exception as error:  # an error is an answer, too, and is compared
        detail = getattr(error, "error", None)
        return {"error": detail.model_dump(mode="json") if detail is not None else f"{type(error).__name__}: {error}"}


async def listed(client: Client) -> dict[str, list[dict[str, Any]]]:
    """Returns all pages of all lists; a missing list is empty."""
    found: dict[str, list[dict[str, Any]]] = {}
    for key, method in LISTS.items():
        found[key], params = [], {}
        while True:
            page = await ask(client, method, params)
            found[key] += page.get(key, [])
            if page.get("nextCursor") is None:
                break
            params = {"cursor": page["nextCursor"]}
    return found


def uri(alias: str, raw: str) -> str:
    scheme, _, rest = raw.partition(":")
    if scheme in ("http", "https", "data"):
        return raw
    return f"ui://{alias}--{rest[2:]}" if scheme == "ui" else f"{alias}+{raw}"


def exposed(alias: str, value: Any) -> Any:
    """Returns a direct answer as the host must show it, with rewritten URIs; the caller rewrites names."""
    if isinstance(value, list):
        return [exposed(alias, each) for each in value]
    if not isinstance(value, dict):
        return value
    places = ("uri", "uriTemplate", "resourceUri", "ui/resourceUri")
    return {k: uri(alias, v) if k in places and isinstance(v, str) else exposed(alias, v) for k, v in value.items()}


def plain(answer: dict[str, Any]) -> dict[str, Any]:
    """Returns an answer of 2026-07-28 without the members that this revision adds to every answer, since a server may answer
    directly in another revision. Answers of revisions with a handshake stay whole."""
    if "resultType" not in answer:
        return answer
    kept = {key: value for key, value in answer.items() if key not in ("resultType", "ttlMs", "cacheScope")}
    meta = {k: v for k, v in kept.pop("_meta", {}).items() if not k.startswith("io.modelcontextprotocol/")}
    return kept | ({"_meta": meta} if meta else {})


def without_tasks(tool: dict[str, Any]) -> dict[str, Any]:
    """Returns a tool as a client of 2026-07-28 sees it: there, the server decides what runs as a task."""
    return {key: value for key, value in tool.items() if key != "execution"}


def steady(value: Any) -> Any:
    """sequential-thinking counts the thoughts of its process, across clients."""
    if isinstance(value, str):
        return re.sub(r'("thoughtHistoryLength": )\d+', r"\g<1>0", value)
    if isinstance(value, list):
        return [steady(each) for each in value]
    if isinstance(value, dict):
        return {key: 0 if key == "thoughtHistoryLength" else steady(each) for key, each in value.items()}
    return value


def difference(direct: Any, through: Any, path: str = "$") -> str | None:
    """Returns the first difference; 1 differs from 1.0 and from true."""
    if type(direct) is not type(through):
        return f"{path}: {direct!r} directly, {through!r} through the host"
    if isinstance(direct, dict):
        if direct.keys() != through.keys():
            lost, new = sorted(direct.keys() - through.keys()), sorted(through.keys() - direct.keys())
            return f"{path}: lost {lost}, new {new}"
        pairs = [(f"{path}.{key}", direct[key], through[key]) for key in direct]
    elif isinstance(direct, list):
        if len(direct) != len(through):
            return f"{path}: {len(direct)} directly, {len(through)} through the host: {direct!r} / {through!r}"
        pairs = [(f"{path}[{at}]", left, right) for at, (left, right) in enumerate(zip(direct, through, strict=True))]
    else:
        return None if direct == through else f"{path}: {direct!r} directly, {through!r} through the host"
    return next((found for where, left, right in pairs if (found := difference(left, right, where))), None)


def must_equal(direct: Any, through: Any) -> None:
    if found := difference(steady(direct), steady(through)):
        raise AssertionError(found)


async def answers(client: Client, world: World, name: str, alias: str | None, asks_roots: bool) -> dict[str, dict]:
    """Returns the answers to the requests for a server, sent under the names that the asker sees."""
    questions = list(calls(world, name))
    if name == "filesystem" and asks_roots:
        await asyncio.sleep(1)  # the server asks for roots after the handshake, and does not report when it is done
        questions.append(("tools/call", {"name": "list_allowed_directories", "arguments": {}}))
    found = {}
    for at, (method, params) in enumerate(questions):
        question = f"{at} {params.get('name') or params.get('uri')}"
        if alias is not None:
            params = dict(params)
            if "name" in params:
                params["name"] = f"{alias}__{params['name']}"
            if "uri" in params:
                params["uri"] = uri(alias, params["uri"])
        found[question] = plain(await ask(client, method, params))
    return found


def asks_roots(era: str, able: bool) -> bool:
    """Whether a server that asks for roots outside of calls can get them: only from a client with a session."""
    return able and era == "legacy"


async def directly(world: World, name: str, era: str, able: bool) -> tuple[dict, dict]:
    entry = world.servers(world.direct)[name]
    async with connect(world, entry, era, able, "direct") as client:
        return await listed(client), await answers(client, world, name, None, asks_roots(era, able))


async def reference(world: World, name: str, era: str, able: bool) -> tuple[dict, dict]:
    """The same, asked once: `steadiness` checks whether a server answers the same twice."""
    asked = (name, era, able)
    if asked not in world.references:
        world.references[asked] = await directly(world, name, era, able)
    return world.references[asked]


def compare(world: World, report: Report, target: str | dict, names: list[str], era: str, able: bool, label: str) -> None:
    """Makes one check per server and kind: lists, then calls."""

    async def work() -> None:
        same = {name: await reference(world, name, era, able) for name in names}
        # A client that cannot be asked shares a connection that declares everything, and sees that connection's lists.
        everything = {name: await reference(world, name, era, True) for name in names}
        # Each era has its own home: a host that has listed before shows kept lists, without resources.
        async with connect(world, target, era, able, f"compare-{era}") as client:
            lists = await listed(client)
            for name in names:
                (direct, _), (_, told) = everything[name], same[name]
                with report.check(f"{label}: {name}: {len(direct['tools'])} tools and the other lists are the same"):
                    for kind in LISTS:
                        given = expected(name, kind, direct[kind])
                        if kind == "tools" and client.protocol_version >= "2026-07-28":
                            given = [without_tasks(tool) for tool in given]
                        must_equal(given, mine(name, kind, lists[kind]))
                with report.check(f"{label}: {name}: {len(told)} answers are the same"):
                    if broken := [each for each in told.values() if "error" in each]:
                        raise AssertionError(f"the server itself failed: {broken}")
                    must_equal(exposed(name, told), await answers(client, world, name, name, asks_roots(era, able)))
            with report.check(f"{label}: nothing else is listed"):
                for kind in LISTS:
                    count = sum(len(mine(name, kind, lists[kind])) for name in names)
                    if count != len(lists[kind]):
                        raise AssertionError(f"{len(lists[kind])} {kind}, {count} of them of a known server")

    try:
        asyncio.run(work())
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        report.line(label, describe(error))


def expected(name: str, kind: str, items: list[dict]) -> list[dict]:
    shown = [exposed(name, item) for item in items]
    if kind in ("tools", "prompts"):
        shown = [item | {"name": f"{name}__{item['name']}"} for item in shown]
    return shown


def mine(name: str, kind: str, items: list[dict]) -> list[dict]:
    """Returns the entries of one server in a merged list."""
    key = {"tools": "name", "prompts": "name", "resources": "uri", "resourceTemplates": "uriTemplate"}[kind]
    own = (f"{name}__",) if key == "name" else (f"{name}+", f"ui://{name}--")
    return [item for item in items if item[key].startswith(own)]


def describe(error: BaseException) -> str:
    """Returns the innermost cause: task groups wrap exceptions."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def steadiness(world: World, report: Report, names: list[str]) -> None:
    """Without a host: checks that every request gets the same answer twice, so that later differences are the host's."""

    async def work(name: str, era: str, able: bool) -> None:
        first, second = await directly(world, name, era, able), await directly(world, name, era, able)
        must_equal([first], [second])
        if broken := [each for each in first[1].values() if "error" in each]:
            raise AssertionError(f"the server itself failed: {broken}")

    for name in names:
        for era in ("legacy", "any"):
            for able in (True, False):
                with report.check(f"directly, {era}, {'all' if able else 'no'} capabilities: {name} answers the same twice"):
                    try:
                        asyncio.run(work(name, era, able))
                    except BaseExceptionGroup as error:
                        raise AssertionError(describe(error)) from None


def through(world: World, report: Report, host: Host) -> None:
    """Through the host: over HTTP in each era with all capabilities and with none, and over stdio."""
    for era in ("legacy", "any"):
        for able in (True, False):
            compare(world, report, host.url, host.names, era, able, f"same over http, {era}, {'all' if able else 'no'} capabilities")
        piped(world, report, host, era, [world.binary, "stdio", "--config", str(host.config)], "stdio")


def piped(world: World, report: Report, host: Host, era: str, command: list[str], over: str) -> None:
    """Through a command that serves a host's servers."""
    target = {"command": command[0], "args": command[1:], "cwd": os.getcwd()}
    compare(world, report, target, host.names, era, True, f"same over {over}, {era}, all capabilities")
