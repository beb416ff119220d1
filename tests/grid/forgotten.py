"""What is tried where the host has forgotten what a server asks: the first question comes to a process that clients share.

Whoever is asked for the first time may be refused in vain, where several have called and the question does not say during
which call it is asked. What must never be: a question at another client, two answers to one, a call without an answer. And
the next call of each client goes as in every cell.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import expect
from client.base import Client
from features import Features, Pair, answers, asked, said, said_text, same
from words import plain_kind

KINDS = ["form", "rich", "url", "sampling", "roots"]
# How a question is refused that is nobody's for sure.
NOBODYS = {
    "form": [{"action": "cancel"}], "url": [{"action": "cancel"}], "sampling": [], "roots": [{"roots": []}],
}  # fmt: skip
REFUSED = (-32601, -32602, -32603)


def vain(answer: dict) -> bool:
    """Whether a question was refused, or answered for nobody."""
    if "refused" in answer:
        return answer["refused"] in REFUSED
    return answer.get("result") in NOBODYS[plain_kind(answer["kind"])]


async def first(pair: Pair, kind: str, client: Client, declared: bool) -> None:
    """A call that teaches the host, or comes in that instant: it has its answer, and that is its own."""
    mark = client.mark()
    call = pair.tool(kind, mark, client)
    outcome = await call.done(40)
    wanted = expect.question(pair.down, pair.up, kind, declared)
    if pair.up.modern or wanted == expect.ABSENT:
        # It asks by its results, and needs no session: nothing was to be known.
        return
    (answer,) = answers(pair, outcome, mark)
    if "result" in answer and not vain(answer):
        same(declared, True)
        said(client, answer, mark)
    elif not vain(answer):
        raise AssertionError(f"neither answered nor refused: {json.dumps(answer)[:300]}")
    if not declared:
        same(call.asked, [])


async def beside(pair: Pair, client: Client) -> None:
    mark = client.mark()
    told = json.loads(said_text(await pair.tool("plain", mark, client).done(40)))
    same((told["alias"], told["mark"]), (pair.up.alias, mark))


def forgotten(kind: str) -> Callable[[Pair], Awaitable[None]]:
    async def ask(pair: Pair) -> None:
        await pair.forget()
        clients = [(pair.client, True), (pair.quiet, False)]
        works = [first(pair, kind, client, declared) for client, declared in clients]
        await asyncio.gather(*works, beside(pair, pair.quiet))
        await asked(pair, kind, pair.client, True)
        if kind == "roots":
            # A list of no roots harms nobody: who cannot tell any stays where all were.
            await first(pair, kind, pair.quiet, False)
        else:
            await asked(pair, kind, pair.quiet, False)

    return ask


FORGOTTEN: Features = {f"{kind}, forgotten": forgotten(kind) for kind in KINDS}
