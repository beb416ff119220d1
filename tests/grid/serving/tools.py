"""The offers of the scripted servers, the same in every revision that has them.

A tool gets a `Call`: the engine of its era knows how progress, log lines, and questions travel. Tools that ask answer
with JSON: the answers that they got, or how they were refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

from serving import everything
from words import FORMS, R24, R25A, R25B, R25C, R26, plain_kind

MISSING = "grid://missing/"
ITEM = "grid://item/"
ASK = "grid://ask/"
METHODS = {"form": "elicitation/create", "url": "elicitation/create", "sampling": "sampling/createMessage"}


class RpcError(Exception):
    """Ends a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Call(Protocol):
    """One request of a client in progress."""

    alias: str
    revision: str
    mark: str
    state: Path  # a directory for the state that all processes of a run share

    async def progress(self, value: float, total: float, message: str) -> None: ...
    async def log(self, level: str, data: object) -> None: ...
    async def ask(self, *kinds: str) -> list[dict]: ...
    async def ask_and_withdraw(self, kind: str, seconds: float) -> None: ...
    def say(self, event: str, **more: object) -> None: ...
    def grow(self, name: str) -> None: ...
    def touch(self, uri: str) -> bool: ...
    def afterwards(self, work: Callable[[], Awaitable[None]]) -> None: ...
    def notify(self, method: str, params: dict | None = None) -> None: ...


def question(kind: str, revision: str, mark: str) -> dict:
    """The params of a question as a revision writes them."""
    if kind in FORMS:
        properties: dict[str, Any] = {"name": {"type": "string"}}
        if kind == "many":
            items = {"anyOf": [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}]}
            properties["many"] = {"type": "array", "items": items}
        if kind == "who":
            properties["integer"] = {"type": "integer"}
        if kind == "rich":
            colors = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]
            properties["name"]["default"] = "nobody"
            properties |= {"color": {"type": "string", "oneOf": colors}, "on": {"type": "boolean", "default": True}}
        schema = {"type": "object", "properties": properties, "required": ["name"]}
        return {"message": mark, "requestedSchema": schema} | ({"mode": "form"} if revision >= R25C else {})
    if kind == "url":
        params = {"mode": "url", "message": mark, "url": f"https://example.com/{mark}"}
        return params | ({"elicitationId": f"e-{mark}"} if revision == R25C else {})
    if kind == "sampling":
        text = {"type": "text", "text": mark}
        return {"messages": [{"role": "user", "content": text}], "maxTokens": 10}
    return {}


def method(kind: str) -> str:
    return METHODS.get(plain_kind(kind), "roots/list")


def mark(params: dict) -> str:
    """What identifies a call's answers: its mark, or its equivalent in third-party tools."""
    arguments = params.get("arguments", {})
    found = next((arguments[name] for name in ("mark", "message", "prompt") if name in arguments), "")
    return found or params.get("uri", "").removeprefix(ASK)


def texts(*lines: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": line} for line in lines]} | more


async def plain(call: Call, arguments: dict) -> dict:
    told = {"alias": call.alias, "mark": call.mark, "big": arguments.get("big")}
    result = texts(json.dumps(told))
    return result | ({"structuredContent": told} if call.revision >= R25B else {})


def asker(*rounds: tuple[str, ...]) -> Callable[[Call, dict], Awaitable[dict]]:
    async def ask(call: Call, _arguments: dict) -> dict:
        answers = []
        for kinds in rounds:
            answers += await call.ask(*kinds)
        return texts(json.dumps({"alias": call.alias, "mark": call.mark, "answers": answers}))

    return ask


async def withdraw(call: Call, _arguments: dict) -> dict:
    """Asks, and withdraws the question before it is answered."""
    await call.ask_and_withdraw("form", 0.4)
    return texts(f"withdrawn {call.mark}")


async def contents(call: Call, _arguments: dict) -> dict:
    """Answers with each kind of content of the revision."""
    found = texts(f"contents {call.mark}")
    if call.revision >= R25A:
        found["content"].append({"type": "audio", "data": SOUND, "mimeType": "audio/wav"})
    if call.revision >= R25B:
        found["content"].append({"type": "resource_link", "uri": ITEM + call.mark, "name": "linked"})
    return found


async def slow(call: Call, _arguments: dict) -> dict:
    await call.progress(1, 2, "begun")
    call.say("slow")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        call.say("cancelled")
        raise
    return texts(f"never cancelled {call.mark}")


async def steps(call: Call, arguments: dict) -> dict:
    for step in range(1, arguments["steps"] + 1):
        await call.progress(step, arguments["steps"], f"step {step} {call.mark}")
    return texts(f"steps {call.mark}")


async def grow(call: Call, arguments: dict) -> dict:
    call.grow(arguments["name"])
    return texts(f"grown {call.mark}")


async def touch(call: Call, arguments: dict) -> dict:
    return texts(f"touched {call.mark} {call.touch(arguments['uri'])}")


async def log(call: Call, arguments: dict) -> dict:
    await call.log(arguments["severity"], {"mark": call.mark, "line": 1})
    await call.log(arguments["severity"], f"line 2 of {call.mark}")
    return texts(f"logged {call.mark}")


async def late(call: Call, arguments: dict) -> dict:
    """Logs after its answer, and then changes its list, so that a client knows when to stop waiting."""

    async def after() -> None:
        await call.log("warning", f"late line of {call.mark}")
        call.grow(arguments["name"])

    call.afterwards(after)
    return texts(f"late {call.mark}")


async def fail(call: Call, _arguments: dict) -> dict:
    return texts(f"failed {call.mark}", isError=True)


async def error(call: Call, arguments: dict) -> dict:
    raise RpcError(arguments["code"], f"error {call.mark}", {"mark": call.mark})


async def sign(call: Call, _arguments: dict) -> dict:
    """Wants a URL visited first: fails once with -32042, then succeeds."""
    visited = call.state / call.mark
    if visited.exists():  # set by any process of this server
        return texts(f"signed {call.mark}")
    visited.touch()
    wanted = question("url", R25C, call.mark)
    raise RpcError(-32042, "visit a page first", {"elicitations": [wanted]})


async def signed(call: Call, _arguments: dict) -> dict:
    call.notify("notifications/elicitation/complete", {"elicitationId": f"e-{call.mark}"})
    return texts(f"told {call.mark}")


SOUND = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="
STRING = {"type": "string"}
Tool = tuple[Callable[[Call, dict], Awaitable[dict]], dict, str, str]
# Each with its further arguments, and the first and last revision that has it.
TOOLS: dict[str, Tool] = {
    "plain": (plain, {"big": {"type": "integer"}}, R24, R26),
    "form": (asker(("form",)), {}, R25B, R26),
    "rich": (asker(("rich",)), {}, R25C, R26),
    "many": (asker(("many",)), {}, R25C, R26),
    "withdraw": (withdraw, {}, R25B, R25C),
    "contents": (contents, {}, R24, R26),
    "url": (asker(("url",)), {}, R25C, R26),
    "sampling": (asker(("sampling",)), {}, R24, R26),
    "roots": (asker(("roots",)), {}, R24, R26),
    "rounds": (asker(("sampling", "roots"), ("sampling",)), {}, R24, R26),
    "slow": (slow, {}, R24, R26),
    "steps": (steps, {"steps": {"type": "integer"}}, R24, R26),
    "grow": (grow, {"name": STRING}, R24, R26),
    "touch": (touch, {"uri": STRING}, R24, R26),
    "log": (log, {"severity": STRING}, R24, R26),
    "late": (late, {"name": STRING}, R24, R25C),
    "fail": (fail, {}, R24, R26),
    "error": (error, {"code": {"type": "integer"}}, R24, R26),
    "sign": (sign, {}, R25C, R25C),
    "signed": (signed, {}, R25C, R25C),
} | everything.TOOLS


def offered(tool: str, revision: str) -> bool:
    return tool in TOOLS and TOOLS[tool][2] <= revision <= TOOLS[tool][3]


def mirrored(tool: str | None, revision: str) -> dict[str, str]:
    """The arguments that a tool wants in headers, by header."""
    return {"Mark": "mark"} if tool == "plain" and revision == R26 else {}


def definitions(revision: str, extra: list[str]) -> list[dict]:
    found = []
    for name in [name for name in TOOLS if offered(name, revision)] + extra:
        more = TOOLS[name][1] if name in TOOLS else {}
        own = name not in everything.TOOLS
        properties = ({"mark": dict(STRING)} if own else {}) | more
        for header, argument in mirrored(name, revision).items():
            properties[argument]["x-mcp-header"] = header
        tool: dict[str, Any] = {"name": name, "description": f"{name} of the grid"}
        tool["inputSchema"] = {"type": "object", "properties": properties, "required": ["mark"] if own else []}
        if revision >= R25A:
            tool["annotations"] = {"openWorldHint": False}
        if revision >= R25B:
            tool["title"] = name.title()
            if name == "plain":
                tool["outputSchema"] = {"type": "object", "properties": {"mark": STRING}, "required": ["mark"]}
        found.append(tool)
    return found


def read(revision: str, uri: str) -> dict:
    if not uri.startswith(ITEM):
        code = -32602 if revision == R26 else -32002
        raise RpcError(code, "no such resource", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": uri.removeprefix(ITEM)}]}


def prompt(name: str, arguments: dict) -> dict:
    if name != "greet":
        raise RpcError(-32602, "no such prompt")
    text = {"type": "text", "text": f"greet {arguments['mark']}"}
    return {"description": "greets", "messages": [{"role": "user", "content": text}]}


def complete(params: dict) -> dict:
    if params.get("ref") not in ({"type": "ref/prompt", "name": "greet"},):
        raise RpcError(-32602, f"no such reference: {params.get('ref')}")
    return {"completion": {"values": [f"{params['argument']['value']} completed"], "total": 1, "hasMore": False}}


async def asked(call: Call, method: str, params: dict) -> dict | None:
    """The other items that may ask: one prompt, and the resources under one URI."""
    uri = params.get("uri", "")
    if method == "resources/read" and uri.startswith(ASK):
        told = json.dumps(await call.ask("sampling"))
        return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": told}]}
    if method == "prompts/get" and params.get("name") == "ask":
        text = {"type": "text", "text": json.dumps(await call.ask("sampling"))}
        return {"messages": [{"role": "user", "content": text}]}
    return None


def fixed(method: str, params: dict, revision: str, extra: list[str]) -> dict | None:
    """Returns the answer to a request that is not a tool call and needs no `Call`."""
    match method:
        case "tools/list":
            return {"tools": definitions(revision, extra)}
        case "prompts/list":
            arguments = [{"name": "mark", "required": True}]
            names = ("greet", "ask")
            return {"prompts": [{"name": name, "description": name, "arguments": arguments} for name in names]}
        case "resources/list":
            return {"resources": [{"uri": f"{ITEM}one", "name": "one", "mimeType": "text/plain"}]}
        case "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": ITEM + "{mark}", "name": "item"}]}
        case "resources/read":
            return read(revision, params.get("uri", ""))
        case "prompts/get":
            return prompt(params.get("name", ""), params.get("arguments", {}))
        case "completion/complete":
            return complete(params)
    return None


def server_capabilities(revision: str) -> dict:
    found: dict[str, Any] = {"tools": {"listChanged": True}, "prompts": {}, "logging": {}}
    found["resources"] = {"subscribe": True}
    return found | ({"completions": {}} if revision >= R25A else {})
