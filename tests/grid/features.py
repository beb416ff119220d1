"""The features of each cell: one function each, the same for every pair. `expect` has the expected outcomes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import expect
from client.base import Call, Client
from control import Control
from expect import Expected
from serving.tools import ITEM, MISSING, question
from words import Peer, plain_kind

BIG = 9007199254740993  # 2**53 + 1, which a double cannot hold
LIST_CHANGED = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
COMPLETE = "notifications/elicitation/complete"


Features = dict[str, Callable[["Pair"], Awaitable[None]]]


@dataclass
class Pair:
    """A downstream and an upstream side, with the host between them, or nothing with `direct`."""

    down: Peer
    up: Peer
    client: Client  # answers everything that its revision knows
    quiet: Client  # declares nothing, wants errors only
    control: Control
    direct: bool
    fresh: Callable[[Peer], Client]  # makes another client of the downstream kind
    forget: Callable[[], Awaitable[None]] | None = None  # makes the host forget what the server asks

    def name(self, raw: str) -> str:
        return raw if self.direct else f"{self.up.alias}__{raw}"

    def uri(self, raw: str) -> str:
        return raw if self.direct else f"{self.up.alias}+{raw}"

    def tool(self, raw: str, mark: str, client: Client | None = None, **more: object) -> Call:
        return (client or self.client).tool(self.name(raw), mark, **more)


def same(found: object, wanted: object) -> None:
    if found != wanted:
        shown = [json.dumps(each, default=str)[:500] for each in (found, wanted)]
        raise AssertionError(f"{shown[0]}, expected {shown[1]}")


def said_text(outcome: dict) -> str:
    """Returns the text of a tool's result, which must not be an error."""
    result = outcome.get("result")
    if result is None or result.get("isError"):
        raise AssertionError(f"no result: {json.dumps(outcome)[:500]}")
    return result["content"][0]["text"]


def ended(outcome: dict, wanted: Expected) -> None:
    """Checks a call whose expected end is an error or nothing."""
    match wanted.how:
        case "error":
            same(outcome.get("error", outcome).get("code"), wanted.code)
        case "tool error":
            same(outcome.get("result", outcome).get("isError"), True)
        case "abandoned":
            same(sorted(outcome), ["abandoned"])
        case how:
            raise AssertionError(f"cannot tell {how}")


def answers(pair: Pair, outcome: dict, mark: str) -> list[dict]:
    """Returns the answer that an asking tool got."""
    told = json.loads(said_text(outcome))
    same((told["alias"], told["mark"]), (pair.up.alias, mark))
    return told["answers"]


def said(client: Client, answer: dict, mark: str) -> None:
    """Checks that a server got this client's answer for this mark."""
    result, own = answer.get("result", {}), f"{mark} {client.name}"
    match answer["kind"]:
        case "form":
            same(result, {"action": "accept", "content": {"name": own}})
        case "rich":
            same(result, {"action": "accept", "content": {"name": own, "color": "g", "on": False}})
        case "url":
            same(result.get("action"), "accept")
        case "sampling":
            same(result.get("content"), {"type": "text", "text": own})
            same(result.get("model"), "grid")
        case "many":
            same(result, {"action": "accept", "content": {"name": own, "many": ["b"]}})
        case "roots":
            same(result.get("roots"), [{"uri": f"file:///{client.name}", "name": client.name}])


async def one_result(pair: Pair, client: Client) -> None:
    mark = client.mark()
    call = pair.tool("plain", mark, client, big=BIG)
    outcome = await call.done()
    wanted = {"alias": pair.up.alias, "mark": mark, "big": BIG}
    same(json.loads(said_text(outcome)), wanted)
    same(outcome["result"].get("structuredContent"), wanted if expect.structured(pair.down, pair.up) else None)


async def plain(pair: Pair) -> None:
    await one_result(pair, pair.client)


async def burst(pair: Pair) -> None:
    await asyncio.gather(*(one_result(pair, pair.client) for _ in range(8)))


async def listed(pair: Pair) -> None:
    names = {tool["name"] for tool in await pair.client.list("tools/list", "tools")}
    mine = {name for name in names if name.startswith(pair.name("")) and "extra-" not in name}
    same(sorted(mine), sorted(pair.name(tool) for tool in expect.tools(pair.up)))
    same(pair.name("greet") in [one["name"] for one in await pair.client.list("prompts/list", "prompts")], True)
    uris = [one["uri"] for one in await pair.client.list("resources/list", "resources")]
    same(pair.uri(f"{ITEM}one") in uris, True)
    templates = await pair.client.list("resources/templates/list", "resourceTemplates")
    same(pair.uri(ITEM + "{mark}") in [one["uriTemplate"] for one in templates], True)


async def read(pair: Pair) -> None:
    mark = pair.client.mark()
    outcome = await pair.client.start("resources/read", {"uri": pair.uri(ITEM + mark)}, mark).done()
    wanted = [{"uri": pair.uri(ITEM + mark), "mimeType": "text/plain", "text": mark}]
    same(outcome.get("result", outcome).get("contents"), wanted)


async def missing(pair: Pair) -> None:
    mark = pair.client.mark()
    outcome = await pair.client.start("resources/read", {"uri": pair.uri(MISSING + mark)}, mark).done()
    ended(outcome, expect.missing(pair.down, pair.up))
    same(outcome["error"].get("data", {}).get("uri"), pair.uri(MISSING + mark))


async def prompt(pair: Pair) -> None:
    mark = pair.client.mark()
    params = {"name": pair.name("greet"), "arguments": {"mark": mark}}
    outcome = await pair.client.start("prompts/get", params, mark).done()
    wanted = [{"role": "user", "content": {"type": "text", "text": f"greet {mark}"}}]
    same(outcome.get("result", outcome).get("messages"), wanted)


async def completion(pair: Pair) -> None:
    mark = pair.client.mark()
    params = {"ref": {"type": "ref/prompt", "name": pair.name("greet")}, "argument": {"name": "mark", "value": mark}}
    outcome = await pair.client.start("completion/complete", params, mark).done()
    same(outcome.get("result", outcome).get("completion", {}).get("values"), [f"{mark} completed"])


async def asked(pair: Pair, kind: str, client: Client, declared: bool) -> None:
    wanted = expect.question(pair.down, pair.up, kind, declared)
    mark = client.mark()
    call = pair.tool(kind, mark, client)
    outcome = await call.done(30)
    if wanted.how == "answered":
        (answer,) = answers(pair, outcome, mark)
        said(client, answer, mark)
        same(answer["declared"], True)
        if kind != "roots":
            same([one for one, _ in call.asked], [plain_kind(kind)])
        if kind == "url" and expect.scoped(pair.down, pair.up):
            same(call.asked[0][1]["elicitationId"], elicitation(pair, mark))
        if kind == "rich":
            shown = call.asked[0][1]["requestedSchema"]["properties"]
            original = question("rich", pair.up.revision, mark)["requestedSchema"]["properties"]
            same(shown, expect.form(pair.down, original))
    elif wanted.how == "refused":
        (answer,) = answers(pair, outcome, mark)
        same((answer.get("refused"), answer["declared"], call.asked), (wanted.code, False, []))
    else:
        ended(outcome, wanted)
        if wanted.how == "tool error":
            lacking = "elicitation" if plain_kind(kind) in ("form", "url") else kind
            same(lacking in json.dumps(outcome["result"]["content"]), True)


def asking(kind: str) -> Callable[[Pair], Awaitable[None]]:
    async def ask(pair: Pair) -> None:
        await asked(pair, kind, pair.client, True)

    return ask


def unasked(kind: str) -> Callable[[Pair], Awaitable[None]]:
    async def ask(pair: Pair) -> None:
        await asked(pair, kind, pair.quiet, False)

    return ask


def elicitation(pair: Pair, mark: str) -> str:
    """The id of a URL elicitation as the client sees it: ids are unique only per server."""
    return f"e-{mark}" if pair.direct else f"{pair.up.alias}:e-{mark}"


async def rounds(pair: Pair) -> None:
    """Two questions at once, then a third one after both are answered."""
    mark = pair.client.mark()
    found = answers(pair, await pair.tool("rounds", mark).done(30), mark)
    same([answer["kind"] for answer in found], ["sampling", "roots", "sampling"])
    for answer in found:
        said(pair.client, answer, mark)


async def decline(pair: Pair) -> None:
    mark = pair.client.mark()
    pair.client.policies[mark] = lambda _kind, _params: {"result": {"action": "decline"}}
    outcome = await pair.tool("form", mark).done(30)
    wanted = expect.question(pair.down, pair.up, "form")
    if wanted.how == "answered":
        same(answers(pair, outcome, mark)[0].get("result"), {"action": "decline"})
    elif wanted.how == "refused":
        same(answers(pair, outcome, mark)[0].get("refused"), wanted.code)
    else:
        ended(outcome, wanted)


async def refuse(pair: Pair) -> None:
    mark = pair.client.mark()
    pair.client.policies[mark] = lambda _kind, _params: {"error": {"code": -1, "message": "User rejected sampling"}}
    outcome = await pair.tool("sampling", mark).done(30)
    wanted = expect.refusal(pair.down, pair.up)
    if wanted.how == "refused":
        same(answers(pair, outcome, mark)[0].get("refused"), wanted.code)
    else:
        ended(outcome, wanted)
    await one_result(pair, pair.client)  # and nothing is stuck after it


async def sign(pair: Pair) -> None:
    wanted = expect.signature(pair.down, pair.up)
    mark = pair.client.mark()
    call = pair.tool("sign", mark)
    outcome = await call.done(30)
    if wanted.how == "answered":
        same(said_text(outcome), f"signed {mark}")
        same([(kind, params["url"]) for kind, params in call.asked], [("url", f"https://example.com/{mark}")])
        return
    ended(outcome, wanted)
    if wanted.code == -32042:
        (one,) = outcome["error"]["data"]["elicitations"]
        id = elicitation(pair, mark)
        same((one["elicitationId"], one["url"], one["mode"]), (id, f"https://example.com/{mark}", "url"))
        same(said_text(await pair.tool("signed", mark).done()), f"told {mark}")
        await pair.client.until(lambda: (COMPLETE, {"elicitationId": id}) in pair.client.changes)


async def cancel(pair: Pair) -> None:
    mark = pair.client.mark()
    call = pair.tool("slow", mark, progress=True)
    await asyncio.wait_for(call.begun.wait(), 10)
    await pair.control.wait("slow", mark)
    await pair.client.cancel(call)
    await pair.control.wait("cancelled", mark)
    await one_result(pair, pair.client)  # by now, messages for the canceled call would have come
    same(call.outcome.done(), False)


async def progress(pair: Pair) -> None:
    mark = pair.client.mark()
    call = pair.tool("steps", mark, steps=5, progress=True)
    same(said_text(await call.done()), f"steps {mark}")
    same([(one["progress"], one["total"]) for one in call.progress], [(step, 5) for step in range(1, 6)])
    if pair.up.revision > "2024-11-05":
        same([one.get("message") for one in call.progress], [f"step {step} {mark}" for step in range(1, 6)])


async def unwanted_progress(pair: Pair) -> None:
    """Without a token of the client no progress may come; a strict client reports it as a violation."""
    mark = pair.client.mark()
    call = pair.tool("steps", mark, steps=3)
    same((said_text(await call.done()), call.progress), (f"steps {mark}", []))


async def grows(pair: Pair) -> None:
    mark, name = pair.client.mark(), f"extra-{secrets.token_hex(4)}"
    before = len(pair.client.changes)
    same(said_text(await pair.tool("grow", mark, name=name).done()), f"grown {mark}")
    async with asyncio.timeout(15):
        while True:  # a change of another server's list may come first
            await pair.client.until(pair.client.change(LIST_CHANGED, after=before), 15)
            before = len(pair.client.changes)
            if pair.name(name) in {tool["name"] for tool in await pair.client.list("tools/list", "tools")}:
                break
    again = pair.client.mark()
    same(said_text(await pair.tool(name, again).done()), f"extra {again}")


async def updated(pair: Pair) -> None:
    mark = pair.client.mark()
    uri = ITEM + mark
    await pair.client.watch(pair.uri(uri))
    same(said_text(await pair.tool("touch", mark, uri=uri).done()), f"touched {mark} True")
    await pair.client.until(pair.client.change(UPDATED, pair.uri(uri)))
    await pair.client.unwatch(pair.uri(uri))


def lines(client: Client, mark: str) -> list[dict]:
    return [line for line in client.lines if mark in json.dumps(line)]


def logger(pair: Pair, line: dict) -> None:
    same(str(line.get("logger")).startswith("grid" if pair.direct else pair.up.alias), True)


async def log(pair: Pair) -> None:
    mark = pair.client.mark()
    call = pair.tool("log", mark, level="info", severity="info")
    same(said_text(await call.done()), f"logged {mark}")
    found = lines(pair.client, mark)
    same([line["data"] for line in found], [{"mark": mark, "line": 1}, f"line 2 of {mark}"])
    for line in found:
        logger(pair, line)
    if pair.down.transport == "http":
        same(len(call.lines), 2)


async def quiet_log(pair: Pair) -> None:
    """A client that wants only errors gets only errors; a modern one that wants nothing gets nothing."""
    mark = pair.quiet.mark()
    same(said_text(await pair.tool("log", mark, pair.quiet, severity="warning").done()), f"logged {mark}")
    same(lines(pair.quiet, mark), [])
    loud = pair.quiet.mark()
    call = pair.tool("log", loud, pair.quiet, level="error", severity="critical")
    same(said_text(await call.done()), f"logged {loud}")
    same(len(lines(pair.quiet, loud)), 2)


async def late_log(pair: Pair) -> None:
    wanted = expect.late_line(pair.down, pair.up)
    mark, name = pair.client.mark(), f"extra-{secrets.token_hex(4)}"
    before = len(pair.client.changes)
    outcome = await pair.tool("late", mark, name=name).done()
    if wanted is None:
        return ended(outcome, expect.ABSENT)
    same(said_text(outcome), f"late {mark}")
    # A list change follows the line: once the list has changed, the line was sent.
    async with asyncio.timeout(15):
        while pair.name(name) not in {tool["name"] for tool in await pair.client.list("tools/list", "tools")}:
            await pair.client.until(pair.client.change(LIST_CHANGED, after=before), 15)
            before = len(pair.client.changes)
    if wanted:
        await pair.client.until(lambda: lines(pair.client, mark))
        logger(pair, lines(pair.client, mark)[0])
    else:
        same(lines(pair.client, mark), [])


async def fail(pair: Pair) -> None:
    mark = pair.client.mark()
    result = (await pair.tool("fail", mark).done()).get("result", {})
    same((result.get("isError"), result.get("content")), (True, [{"type": "text", "text": f"failed {mark}"}]))


async def unknown(pair: Pair) -> None:
    ended(await pair.tool("nothing", pair.client.mark()).done(), expect.ABSENT)


def failing(code: int) -> Callable[[Pair], Awaitable[None]]:
    async def error(pair: Pair) -> None:
        mark = pair.client.mark()
        found = (await pair.tool("error", mark, code=code).done()).get("error", {})
        wanted = Expected("error", code) if pair.direct else expect.error(pair.down, pair.up, code)
        same(found.get("code"), wanted.code)
        if found["code"] == code:
            same((found.get("message"), found.get("data")), (f"error {mark}", {"mark": mark}))
        elif -32019 <= code <= -32000:
            told = found.get("data", {}).get("upstream", {})
            same((told.get("code"), told.get("message")), (code, f"error {mark}"))

    return error


BASICS: Features = {
    "plain": plain, "burst": burst, "list": listed, "read": read, "prompt": prompt, "completion": completion,
    "form": asking("form"), "rich form": asking("rich"), "url": asking("url"), "sampling": asking("sampling"),
    "roots": asking("roots"), "rounds": rounds, "decline": decline, "refuse": refuse, "sign": sign,
    "no form": unasked("form"), "no url": unasked("url"), "no sampling": unasked("sampling"),
    "no roots": unasked("roots"),
    "cancel": cancel, "progress": progress, "no progress": unwanted_progress, "list change": grows, "update": updated,
    "log": log, "quiet log": quiet_log, "late log": late_log,
    "tool error": fail, "no tool": unknown, "no resource": missing, "error 4711": failing(4711),
    "error -32005": failing(-32005), "error -32050": failing(-32050), "error -32603": failing(-32603),
}  # fmt: skip
