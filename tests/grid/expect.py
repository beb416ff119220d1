"""The expected outcome of a pair, computed from its two sides and the feature alone. Pure; never taken from observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from serving.tools import TOOLS, offered
from words import R25B, R25C, Peer


@dataclass(frozen=True)
class Expected:
    """How a call ends.

    `answered`: with the client's answer; `refused`: the server's question was refused with `code`, and its result says so;
    `tool error`: a result with `isError`; `error`: a JSON-RPC error with `code`; `abandoned`: the client was asked, and
    nothing came after that.
    """

    how: str
    code: int = 0


ANSWERED = Expected("answered")
TOOL_ERROR = Expected("tool error")
ABSENT = Expected("error", -32602)


def question(down: Peer, up: Peer, kind: str, declared: bool = True) -> Expected:
    """A tool that asks one question; `declared`: the client declares everything that its revision knows, or nothing."""
    if not offered(kind, up.revision):
        return ABSENT
    kind = "form" if kind == "withdraw" else kind
    if declared and down.has(kind):
        return ANSWERED
    if not up.modern:
        # It asks anyway. A missing mode is a wrong parameter, a missing capability an unknown method.
        mode = kind == "url" and declared and down.has("form")
        return Expected("refused", -32602 if mode else -32601)
    # It does not ask but reports the missing capability, which a legacy client could not declare to this server.
    return Expected("error", -32021) if down.modern else TOOL_ERROR


def refusal(down: Peer, up: Peer) -> Expected:
    """The client refuses a sampling question: a legacy client by an error, a modern one by not retrying."""
    if down.modern:
        return Expected("abandoned")
    return TOOL_ERROR if up.modern else Expected("refused", -1)


def signature(down: Peer, up: Peer) -> Expected:
    """A tool that fails with -32042 until a URL was visited."""
    if not offered("sign", up.revision):
        return ABSENT
    if down.modern:
        return ANSWERED
    return Expected("error", -32042) if down.revision == R25C else TOOL_ERROR


def scoped(down: Peer, up: Peer) -> bool:
    """Whether a URL elicitation keeps the server's own id: both have ids."""
    return down.revision == up.revision == R25C


def error(down: Peer, up: Peer, code: int) -> Expected:
    """A JSON-RPC error from a tool."""
    if -32019 <= code <= -32000 and down.modern and code != -32002:
        return Expected("error", -32603)
    if -32099 <= code <= -32023:
        return Expected("error", -32603)
    return Expected("error", code)


def missing(down: Peer, up: Peer) -> Expected:
    """A missing resource: each era has its own code."""
    return Expected("error", -32602 if down.modern else -32002)


def asks_elsewhere(down: Peer, up: Peer, declared: bool) -> Expected:
    """A prompt or a resource that asks the client to sample."""
    if declared:
        return ANSWERED
    if not up.modern:
        return Expected("refused", -32601)
    return Expected("error", -32021 if down.modern else -32603)


def form_error(down: Peer, up: Peer) -> Expected:
    """The client answers a form with an error; `cancel`: the server is told that the user canceled."""
    wanted = question(down, up, "form")
    if wanted != ANSWERED:
        return wanted
    if down.modern:
        return Expected("abandoned")
    return Expected("cancel") if up.modern else Expected("refused", -32603)


def content(down: Peer, block: dict[str, Any]) -> dict[str, Any]:
    """A content block as a client of the revision gets it, without parts that the host adds."""
    if block["type"] == "resource_link" and down.revision < R25B:
        return {"type": "text", "text": f"{block['name']}: {block['uri']}"}
    # Audio in the result of a tool passes to 2024-11-05, too: the official suite demands it.
    return block


def structured(down: Peer, up: Peer) -> bool:
    return min(down.revision, up.revision) >= R25B


def late_line(down: Peer, up: Peer) -> bool | None:
    """Whether a log line after the answer arrives; None if the server cannot send one."""
    return None if not offered("late", up.revision) else not down.modern


def form(down: Peer, original: dict[str, Any]) -> dict[str, Any]:
    """The properties of the rich form as a client of the revision gets them."""
    if down.revision >= R25C:
        return original
    adapted = {}
    for name, field in original.items():
        kept = dict(field)
        if "oneOf" in kept:
            choices = kept.pop("oneOf")
            kept |= {"enum": [one["const"] for one in choices], "enumNames": [one["title"] for one in choices]}
        if kept.get("type") != "boolean":
            kept.pop("default", None)
        adapted[name] = kept
    return adapted


def tools(up: Peer) -> set[str]:
    return {name for name in TOOLS if offered(name, up.revision)}
