"""A strict client of a revision with a handshake, over any transport."""

from __future__ import annotations

import itertools
from typing import Protocol

from client import rules
from client.base import Call, Client
from serving.rules import envelope
from words import R25A, marks


class Wire(Protocol):
    """The transport of messages; incoming ones go to `Legacy.receive`."""

    async def open(self, client: Legacy) -> None: ...
    async def send(self, message: dict, call: Call | None) -> None: ...
    async def ready(self) -> None: ...
    async def close(self) -> None: ...


class Legacy(Client):
    """One session."""

    def __init__(self, name: str, revision: str, kinds: list[str], wire: Wire) -> None:
        super().__init__(name, revision, kinds)
        self.wire = wire
        self.ids = itertools.count(1)
        self.open_calls: dict[object, Call] = {}
        self.questions: set = set()
        self.stage = "new"
        self.level = "info"  # the log level that was set

    async def open(self) -> None:
        await self.wire.open(self)
        params = {"protocolVersion": self.revision, "capabilities": self.capabilities}
        outcome = await self.start("initialize", params | {"clientInfo": {"name": self.name, "version": "1"}}).done()
        result = outcome.get("result", {})
        if result.get("protocolVersion") != self.revision:
            raise AssertionError(f"initialize: {outcome}")
        self.offered = result.get("capabilities", {})
        self.check(rules.capabilities(self.revision, self.offered))
        self.stage = "ready"
        await self.wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
        await self.wire.ready()
        outcome = await self.start("logging/setLevel", {"level": self.level}).done()
        if "result" not in outcome:
            raise AssertionError(f"logging/setLevel: {outcome}")

    def start(
        self, method: str, params: dict, mark: str = "", progress: bool = False, level: str | None = None
    ) -> Call:
        call = Call(method, params, mark, self.token() if progress else None)
        number = next(self.ids)
        call.id = number if number % 3 else f"q{number}"
        if mark:
            self.calls[mark] = call
        self.open_calls[call.id] = call
        sent = params | ({"_meta": {"progressToken": call.token}} if progress else {})
        message = {"jsonrpc": "2.0", "id": call.id, "method": method} | ({"params": sent} if sent else {})
        call.task = self.spawn(self.wire.send(message, call))
        return call

    async def cancel(self, call: Call) -> None:
        call.cancelled = True
        params = {"requestId": call.id, "reason": "not needed"}
        await self.wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, None)

    def receive(self, message: object, place: str, call: Call | None = None) -> None:
        """Takes one message or a batch; `place`: "pipe", "get", or "post" with the call whose stream it is."""
        if isinstance(message, list):
            if self.revision != R25A:
                self.wrong(f"a batch in {self.revision}")
            for one in message:
                self.receive(one, place, call)
            return
        self.hear(message)
        faults = list(envelope(message))
        self.check(faults)
        if faults:
            return
        if "method" not in message:
            self.answered(message, place, call)
        elif "id" in message:
            again = message["id"] in self.questions
            self.questions.add(message["id"])
            for mark in marks(str(message.get("params"))):
                self.asked_ids[mark] = message["id"]
            if again:
                self.wrong(f"the question id {message['id']!r} is reused")
            self.spawn(self.asked(message, place, call))
        else:
            self.told(message, place, call)
        self.spawn(self.noted())

    def answered(self, message: dict, place: str, call: Call | None) -> None:
        found = self.open_calls.pop(message.get("id"), None)
        if found is None:
            return self.wrong(f"an answer to nothing: {message}")
        if place == "get" or (call is not None and found is not call):
            self.wrong(f"an answer on another stream: {message}")
        if found.cancelled:
            self.wrong(f"an answer to a cancelled request: {message}")
        if "result" in message:
            self.check(rules.result(self.revision, found.method, message["result"]))
            found.end({"result": message["result"]})
        else:
            found.end({"error": message["error"]})

    async def asked(self, message: dict, place: str, call: Call | None) -> None:
        if self.stage != "ready":
            self.wrong(f"asked before initialized: {message}")
        params = message.get("params", {})
        if place == "get" and not self.foreign:
            self.wrong(f"a question of a call on the GET stream: {message}")
        if call is not None and (found := marks(str(params))) and call.mark not in found:
            self.wrong(f"a question of another call: {message}")
        answer = {"result": {}} if message["method"] == "ping" else self.answer(message["method"], params)
        if answer is not None:
            await self.wire.send({"jsonrpc": "2.0", "id": message["id"]} | answer, None)

    def told(self, message: dict, place: str, call: Call | None) -> None:
        self.check(rules.notice(self.revision, message))
        method, params = message["method"], message.get("params", {})
        if method == "notifications/progress":
            token = params.get("progressToken")
            mine = call or next((one for one in self.open_calls.values() if one.token == token), None)
            self.took_progress(mine, params)
            if place == "get":
                self.wrong(f"progress on the GET stream: {params}")
        elif method == "notifications/message":
            self.lines.append(params)
            if call is not None:
                call.lines.append(params)
        elif method == "notifications/cancelled":
            if params.get("requestId") not in self.questions:
                self.wrong(f"withdraws an unknown question: {params}")
            self.withdrawn.add(params.get("requestId"))
        elif method in rules.CHANGES:
            if place == "post":
                self.wrong(f"a change notification on the stream of a call: {message}")
            self.changes.append((method, params))

    async def watch(self, uri: str) -> None:
        outcome = await self.start("resources/subscribe", {"uri": uri}).done()
        if "result" not in outcome:
            raise AssertionError(f"resources/subscribe: {outcome}")

    async def unwatch(self, uri: str) -> None:
        outcome = await self.start("resources/unsubscribe", {"uri": uri}).done()
        if "result" not in outcome:
            raise AssertionError(f"resources/unsubscribe: {outcome}")

    async def close(self) -> None:
        await self.wire.close()
        for task in list(self.works):
            task.cancel()
