"""Rarer features for each cell, each with a defined answer if it cannot be bridged."""

from __future__ import annotations

import asyncio
import json

import expect
from client.base import Client
from features import BASICS, Features, Pair, answers, asking, ended, one_result, said, said_text, same
from serving.tools import ASK, ITEM, SOUND
from words import R25A, R25B, R25C


async def form_error(pair: Pair) -> None:
    mark = pair.client.mark()
    pair.client.policies[mark] = lambda _kind, _params: {"error": {"code": -32603, "message": "no window to ask in"}}
    outcome = await pair.tool("form", mark).done(30)
    wanted = expect.form_error(pair.down, pair.up)
    if wanted.how == "refused":
        same(answers(pair, outcome, mark)[0].get("refused"), wanted.code)
    elif wanted.how == "cancel":
        same(answers(pair, outcome, mark)[0].get("result"), {"action": "cancel"})
    else:
        ended(outcome, wanted)


async def withdraw(pair: Pair) -> None:
    """The server withdraws its question: a legacy client is told, a modern one finds the answer when it retries."""
    mark = pair.client.mark()
    wanted = expect.question(pair.down, pair.up, "withdraw")
    if pair.down.modern:
        pair.client.delays[mark] = 0.8
    else:
        pair.client.policies[mark] = lambda _kind, _params: None
    outcome = await pair.tool("withdraw", mark).done(30)
    if wanted.how != "answered" and wanted != expect.ABSENT:
        return same(said_text(outcome), f"withdrawn {mark}")
    if wanted == expect.ABSENT:
        return ended(outcome, wanted)
    same(said_text(outcome), f"withdrawn {mark}")
    if not pair.down.modern:
        await pair.client.until(lambda: pair.client.asked_ids.get(mark) in pair.client.withdrawn)


def told(pair: Pair, client: Client, outcome: dict, text: str | None, mark: str, declared: bool) -> None:
    """Returns the answer that a prompt or a resource got when it asked the client to sample."""
    wanted = expect.asks_elsewhere(pair.down, pair.up, declared)
    if wanted.how == "error":
        return ended(outcome, wanted)
    (answer,) = json.loads(text or "[{}]")
    if wanted.how == "refused":
        return same((answer.get("refused"), answer.get("declared")), (wanted.code, False))
    said(client, answer, mark)


async def asking_prompt(pair: Pair) -> None:
    for client, declared in ((pair.client, True), (pair.quiet, False)):
        mark = client.mark()
        params = {"name": pair.name("ask"), "arguments": {"mark": mark}}
        outcome = await client.start("prompts/get", params, mark).done(30)
        messages = outcome.get("result", {}).get("messages", [])
        told(pair, client, outcome, messages[0]["content"]["text"] if messages else None, mark, declared)


async def asking_resource(pair: Pair) -> None:
    for client, declared in ((pair.client, True), (pair.quiet, False)):
        mark = client.mark()
        outcome = await client.start("resources/read", {"uri": pair.uri(ASK + mark)}, mark).done(30)
        contents = outcome.get("result", {}).get("contents", [])
        told(pair, client, outcome, contents[0]["text"] if contents else None, mark, declared)


async def contents(pair: Pair) -> None:
    mark = pair.client.mark()
    found = (await pair.tool("contents", mark).done()).get("result", {}).get("content", [])
    sent = [{"type": "text", "text": f"contents {mark}"}]
    if pair.up.revision >= R25A:
        sent.append({"type": "audio", "data": SOUND, "mimeType": "audio/wav"})
    if pair.up.revision >= R25B:
        sent.append({"type": "resource_link", "uri": pair.uri(ITEM + mark), "name": "linked"})
    same(found, [expect.content(pair.down, block) for block in sent])


async def end_of_client(pair: Pair) -> None:
    """When a client ends, its calls end. When only the stream of a call ends, that cancels only where the revision says so."""
    client = pair.fresh(pair.up)
    await asyncio.wait_for(client.open(), 60)
    mark = client.mark()
    call = pair.tool("slow", mark, client, progress=True)
    await asyncio.wait_for(call.begun.wait(), 30)
    call.cancelled = True
    await client.close()
    await pair.control.wait("cancelled", mark, 15)
    same(client.violations, [])


# Features that only a host answers as defined here.
HOSTED = ("no tasks",)


async def no_tasks_list(pair: Pair) -> None:
    """Only one revision lists tasks, and only servers that declare it. No server here has tasks."""
    outcome = await pair.client.start("tasks/list", {}).done()
    if "list" in pair.client.offered.get("tasks", {}) and pair.down.revision == R25C:
        same(outcome.get("result", outcome).get("tasks"), [])
    else:
        same(outcome.get("error", outcome).get("code"), -32601)
    await one_result(pair, pair.client)


# A call that a modern client abandons keeps a lease busy for a while, so other calls go to another process of the server.
# These features run last, so that one process sees all other calls of a cell.
LEFT_ALONE: Features = {"refuse": BASICS["refuse"], "form error": form_error}
FEATURES: Features = {name: feature for name, feature in BASICS.items() if name not in LEFT_ALONE} | {
    "many choices": asking("many"), "withdraw": withdraw, "asking prompt": asking_prompt,
    "asking resource": asking_resource, "contents": contents, "end of client": end_of_client,
    "no tasks": no_tasks_list,
} | LEFT_ALONE  # fmt: skip
