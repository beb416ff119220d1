"""The features of a host that has forgotten what a server asks: the first question comes from a process that clients share.

If several clients have called and the question does not name its call, the host may refuse it. Never allowed: a question at
the wrong client, two answers to one question, a call without an answer. The next call of each client works as in every cell.
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
# The refusal of a question whose client is not certain.
NOBODYS = {
    "form": [{"action": "cancel"}], "url": [{"action": "cancel"}], "sampling": [], "roots": [{"roots": []}],
}  # fmt: skip
REFUSED = (-32601, -32602, -32603)


def vain(answer: dict) -> bool:
    """Whether a question was refused, or answered without a client."""
    if "refused" in answer:
        return answer["refused"] in REFUSED
    return answer.get("result") in NOBODYS[plain_kind(answer["kind"])]


async def first(pair: Pair, kind: str, client: Client, declared: bool) -> None:
    """A call by which the host learns what the server asks, or one at that moment: it gets an answer, and its own."""
    mark = client.mark()
    call = pair.tool(kind, mark, client)
    outcome = await call.done(40)
    wanted = expect.question(pair.down, pair.up, kind, declared)
    if pair.up.modern or wanted == expect.ABSENT:
        # It asks by results and needs no session, so there was nothing to learn.
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
            # An empty list of roots does no harm: a client without roots stays on the shared lease.
            await first(pair, kind, pair.quiet, False)
        else:
            await asked(pair, kind, pair.quiet, False)

    return ask


FORGOTTEN: Features = {f"{kind}, forgotten": forgotten(kind) for kind in KINDS}
