"""The base of every scripted client: its calls, its answers to questions, and a record of violations."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from client import rules
from words import capabilities, declares, marks, new_mark

SECONDS = 20
# An answer to a question: {"result": …} or {"error": …}; None leaves it unanswered.
Policy = Callable[[str, dict], dict | None]


@dataclass
class Call:
    """One request of this client and everything that came for it."""

    method: str
    params: dict
    mark: str
    token: object = None
    level: str | None = None
    id: object = None
    progress: list[dict] = field(default_factory=list)
    lines: list[dict] = field(default_factory=list)
    asked: list[tuple[str, dict]] = field(default_factory=list)
    status: int = 0
    legs: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # set when anything but the answer came
    outcome: asyncio.Future = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    task: asyncio.Task | None = None
    cancelled: bool = False

    async def done(self, seconds: float = SECONDS) -> dict:
        """{"result": …}, {"error": …} or, if this client left a question unanswered, {"abandoned": …}."""
        return await asyncio.wait_for(asyncio.shield(self.outcome), seconds)

    def end(self, outcome: dict) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Client:
    """The era-independent half."""

    def __init__(self, name: str, revision: str, kinds: list[str]) -> None:
        self.name, self.revision, self.kinds = name, revision, kinds
        self.capabilities = capabilities(revision, kinds)
        self.direct = False  # no host in between
        self.foreign = False  # some servers are third-party: they may ask without a call, and without a mark
        self.offered: dict = {}  # the server's capabilities
        self.violations: list[str] = []
        self.own: set[str] = set()
        self.calls: dict[str, Call] = {}  # by mark
        self.policies: dict[str, Policy] = {}
        self.delays: dict[str, float] = {}  # before a retry, by mark
        self.asked_ids: dict[str, object] = {}  # of questions, by mark
        self.withdrawn: set = set()
        self.changes: list[tuple[str, dict]] = []
        self.lines: list[dict] = []  # log lines outside calls
        self.news = asyncio.Condition()
        self.tokens = itertools.count(1)
        self.works: set[asyncio.Task] = set()

    def wrong(self, what: str) -> None:
        self.violations.append(f"{self.name}: {what[:600]}")

    def check(self, faults: Any) -> None:
        for fault in faults:
            self.wrong(fault)

    def mark(self) -> str:
        mark = new_mark()
        self.own.add(mark)
        return mark

    def hear(self, message: object) -> None:
        """Checks everything that comes in: it must not hold the marks of other clients."""
        text = json.dumps(message)
        if foreign := marks(text) - self.own:
            self.wrong(f"got marks of other clients, {sorted(foreign)}: {text[:300]}")

    def spawn(self, work: Any) -> asyncio.Task:
        task = asyncio.create_task(work)
        self.works.add(task)
        task.add_done_callback(self.worked)
        return task

    def worked(self, task: asyncio.Task) -> None:
        self.works.discard(task)
        if not task.cancelled() and task.exception():
            self.wrong(f"{type(task.exception()).__name__}: {task.exception()}")

    def answer(self, method: str, params: dict) -> dict | None:
        """The answer to a question: it names the question's mark and this client."""
        kind = rules.kind_of(method, params)
        if self.direct and not declares(self.capabilities, kind):
            # Servers may ask anyway, but a host must stop the question.
            mode = kind == "url" and "elicitation" in self.capabilities
            return {"error": {"code": -32602 if mode else -32601, "message": f"cannot be asked for {kind}"}}
        self.check(rules.question(self.revision, self.capabilities, method, params))
        found = marks(json.dumps(params))
        mark = found.pop() if len(found) == 1 else ""
        if mark in self.calls:
            self.calls[mark].asked.append((kind, params))
        if mark in self.policies:
            return self.policies[mark](kind, params)
        return {"result": self.usual(kind, mark, params)}

    def usual(self, kind: str, mark: str, params: dict) -> dict:
        told = f"{mark} {self.name}"
        if kind == "roots":
            return {"roots": [{"uri": f"file:///{self.name}", "name": self.name}]}
        if kind == "sampling":
            text = {"type": "text", "text": told}
            return {"role": "assistant", "content": text, "model": "grid", "stopReason": "endTurn"}
        if kind == "url":
            return {"action": "accept"}
        content: dict[str, Any] = {"name": told}
        fields = params.get("requestedSchema", {}).get("properties", {})
        if "color" in fields:
            content |= {"color": "g", "on": False}
        if "many" in fields:
            content["many"] = ["b"]
        for field in fields:
            if field.startswith("many__"):  # one switch per choice
                content[field] = fields[field].get("title", "").endswith("Second")
        return {"action": "accept", "content": content}

    async def noted(self) -> None:
        async with self.news:
            self.news.notify_all()

    async def until(self, condition: Callable[[], Any], seconds: float = 10) -> Any:
        """Waits until what came in satisfies the condition, and returns it."""
        async with asyncio.timeout(seconds), self.news:
            return await self.news.wait_for(condition)

    def change(self, method: str, uri: str | None = None, after: int = 0) -> Callable[[], bool]:
        found = lambda one: one[0] == method and uri in (None, one[1].get("uri"))  # noqa: E731
        return lambda: any(found(one) for one in self.changes[after:])

    def took_progress(self, call: Call | None, params: dict) -> None:
        """Checks the progress of a call: its token, rising, before the answer."""
        if call is None or call.token is None or params.get("progressToken") != call.token:
            return self.wrong(f"progress with a token of another call: {params}")
        if call.outcome.done():
            self.wrong(f"progress after the answer: {params}")
        if call.progress and params.get("progress", 0) <= call.progress[-1]["progress"]:
            self.wrong(f"progress does not rise: {call.progress[-1]}, {params}")
        call.progress.append(params)
        call.begun.set()

    def token(self) -> object:
        """Alternates strings and numbers: both are legal, and they differ."""
        number = next(self.tokens)
        return number if number % 2 else f"t{number}"

    async def list(self, method: str, key: str, seconds: float = SECONDS) -> list[dict]:
        """All pages of a list."""
        found, params = [], {}
        for _ in range(100):
            outcome = await self.start(method, params).done(seconds)
            if "result" not in outcome:
                raise AssertionError(f"{method}: {outcome}")
            found += outcome["result"][key]
            cursor = outcome["result"].get("nextCursor")
            if cursor is None:
                return found
            params = {"cursor": cursor}
        raise AssertionError(f"{method} has endless pages")

    def start(
        self, method: str, params: dict, mark: str = "", progress: bool = False, level: str | None = None
    ) -> Call:
        raise NotImplementedError

    def tool(self, name: str, mark: str, /, **more: Any) -> Call:
        options = {key: more.pop(key) for key in ("progress", "level") if key in more}
        params = {"name": name, "arguments": {"mark": mark} | more}
        return self.start("tools/call", params, mark, **options)
