"""The revision without sessions: independent requests, questions by result, changes by subscription."""

from __future__ import annotations

import asyncio
import itertools
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from control import Side
from serving import rules, tools
from words import CACHED, LEVELS, META, MRTR, R26, declares, plain_kind

Send = Callable[[dict], None]
NEEDS = {"sampling": {"sampling": {}}, "roots": {"roots": {}}, "url": {"elicitation": {"url": {}}}}


class Wanted(Exception):
    """Ends a leg with questions."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        super().__init__("input required")
        self.kinds = kinds


@dataclass
class Parked:
    """The meaning of a `requestState`: the questions, their request, and the answers of earlier legs."""

    method: str
    params: str
    ids: set
    asked: dict[str, str]
    answers: list[dict] = field(default_factory=list)


def salient(params: dict) -> str:
    kept = {key: value for key, value in params.items() if key not in ("_meta", "inputResponses", "requestState")}
    return json.dumps(kept, sort_keys=True)


class Engine:
    """One server; state between requests is kept only under random handles."""

    def __init__(self, alias: str, side: Side) -> None:
        self.alias, self.side, self.revision = alias, side, R26
        self.parked: dict[str, Parked] = {}
        self.listens: dict[int, tuple[object, dict, Send]] = {}
        self.numbers = itertools.count(1)
        self.extra: list[str] = []

    def wrong(self, what: str) -> None:
        self.side.violation(f"{self.revision}: {what}")

    def check(self, message: dict, stdio: bool) -> bool:
        """Whether a request can be served at all."""
        faults = list(rules.envelope(message)) or list(rules.modern_request(message, stdio))
        for fault in faults:
            self.wrong(fault)
        return not faults

    async def serve(self, message: dict, send: Send) -> dict:
        """Returns the response to one request; messages before it go out by `send`."""
        method, params = message["method"], message.get("params", {})
        call = ModernCall(self, message, send)
        try:
            result = await self.result(call, method, params)
        except tools.RpcError as error:
            return {"jsonrpc": "2.0", "id": message["id"], "error": error.error}
        except Wanted as wanted:
            result = self.park(message, call, wanted.kinds)
        own = {META + "serverInfo": {"name": f"grid-{self.alias}", "version": "1"}}
        result = {"resultType": "complete"} | result | {"_meta": own | result.get("_meta", {})}
        if method in CACHED and result["resultType"] == "complete":
            result |= {"ttlMs": 0, "cacheScope": "private"}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    async def result(self, call: ModernCall, method: str, params: dict) -> dict:
        if method in MRTR:
            self.resume(call, method, params)
        match method:
            case "server/discover":
                return {"supportedVersions": [R26], "capabilities": tools.server_capabilities(R26)}
            case "subscriptions/listen":
                return await self.listen(call, params)
            case "tools/call":
                name, arguments = params.get("name"), params.get("arguments", {})
                if name in self.extra:
                    return tools.texts(f"extra {call.mark}")
                if not tools.offered(name, R26):
                    raise tools.RpcError(-32602, f"no such tool: {name}")
                return await tools.TOOLS[name][0](call, arguments)
        found = await tools.asked(call, method, params)
        found = found or tools.fixed(method, params, R26, self.extra)
        if found is None:
            raise tools.RpcError(-32601, f"no such method: {method}")
        return found

    def resume(self, call: ModernCall, method: str, params: dict) -> None:
        state = params.get("requestState")
        if state is None:
            if "inputResponses" in params:
                self.wrong("inputResponses without the requestState that was given")
            return
        parked = self.parked.pop(state, None)
        if parked is None:
            self.wrong(f"requestState {state!r} was never given, or came twice")
            raise tools.RpcError(-32602, "bad requestState")
        if (parked.method, parked.params) != (method, salient(params)):
            self.wrong(f"retries with {method} {salient(params)}, not {parked.method} {parked.params}")
        if call.id in parked.ids:
            self.wrong(f"retries with the earlier id {call.id!r}")
        responses = params.get("inputResponses", {})
        if set(responses) - set(parked.asked):
            self.wrong(f"answers {sorted(responses)}, but the questions were {sorted(parked.asked)}")
        if set(parked.asked) - set(responses):
            self.wrong(f"no answers to {sorted(set(parked.asked) - set(responses))}")
        call.ids = parked.ids | call.ids
        call.answers = list(parked.answers)
        for key, kind in parked.asked.items():
            for fault in rules.answer(plain_kind(kind), responses.get(key)):
                self.wrong(fault)
            call.answers.append({"kind": kind, "result": responses.get(key), "declared": True})

    def park(self, message: dict, call: ModernCall, kinds: tuple[str, ...]) -> dict:
        # It is opaque: quotes, spaces, and non-ASCII characters must come back unchanged.
        state = f'"{secrets.token_hex(8)}" \u00e9\u2028/={call.mark}'
        asked = {f"k{number}.{kind}": kind for number, kind in enumerate(kinds, len(call.answers))}
        params = message.get("params", {})
        self.parked[state] = Parked(message["method"], salient(params), call.ids, asked, call.answers)
        requests = {}
        for key, kind in asked.items():
            question = tools.question(kind, R26, call.mark)
            requests[key] = {"method": tools.method(kind)} | ({"params": question} if question else {})
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    async def listen(self, call: ModernCall, params: dict) -> dict:
        asked = params.get("notifications")
        if not isinstance(asked, dict):
            self.wrong(f"listens to {asked!r}")
            asked = {}
        honored: dict = {"toolsListChanged": True} if asked.get("toolsListChanged") else {}
        uris = [uri for uri in asked.get("resourceSubscriptions", []) if uri.startswith(tools.ITEM)]
        honored |= {"resourceSubscriptions": uris} if uris else {}
        number = next(self.numbers)
        self.tell(call.id, call.send, "notifications/subscriptions/acknowledged", {"notifications": honored})
        self.listens[number] = (call.id, honored, call.send)
        try:
            await asyncio.Event().wait()
        finally:
            del self.listens[number]
        return {}

    def tell(self, id: object, send: Send, method: str, params: dict) -> None:
        tagged = params | {"_meta": {META + "subscriptionId": id}}
        send({"jsonrpc": "2.0", "method": method, "params": tagged})

    def grow(self, name: str) -> None:
        self.extra.append(name)
        for id, honored, send in list(self.listens.values()):
            if honored.get("toolsListChanged"):
                self.tell(id, send, "notifications/tools/list_changed", {})

    def touch(self, uri: str) -> bool:
        hearing = [one for one in self.listens.values() if uri in one[1].get("resourceSubscriptions", [])]
        for id, _, send in hearing:
            self.tell(id, send, "notifications/resources/updated", {"uri": uri})
        return bool(hearing)


class ModernCall:
    """One leg in progress; see `tools.Call`. A tool that asked runs again and finds its earlier answers."""

    def __init__(self, engine: Engine, message: dict, send: Send) -> None:
        params = message.get("params", {})
        meta = params.get("_meta", {})
        self.engine, self.send, self.id, self.ids = engine, send, message["id"], {message["id"]}
        self.alias, self.revision = engine.alias, R26
        self.state = engine.side.state
        self.mark = tools.mark(params)
        self.capabilities = meta.get(META + "clientCapabilities", {})
        self.token, self.level = meta.get("progressToken"), meta.get(META + "logLevel")
        self.answers: list[dict] = []
        self.used = 0

    async def progress(self, value: float, total: float, message: str) -> None:
        if self.token is not None:
            params = {"progressToken": self.token, "progress": value, "total": total, "message": message}
            self.notify("notifications/progress", params)

    async def log(self, level: str, data: object) -> None:
        if self.level is not None and LEVELS.index(level) >= LEVELS.index(self.level):
            self.notify("notifications/message", {"level": level, "logger": "grid", "data": data})

    async def ask(self, *kinds: str) -> list[dict]:
        answers = self.answers[self.used : self.used + len(kinds)]
        if len(answers) == len(kinds):
            self.used += len(kinds)
            return answers
        for kind in kinds:
            if not declares(self.capabilities, kind):
                needed = NEEDS.get(kind, {"elicitation": {"form": {}}})
                raise tools.RpcError(-32021, f"needs {kind}", {"requiredCapabilities": needed})
        raise Wanted(kinds)

    async def ask_and_withdraw(self, kind: str, seconds: float) -> None:
        raise NotImplementedError("a question in a result cannot be withdrawn")

    def say(self, event: str, **more: object) -> None:
        self.engine.side.say(event, self.mark, **more)

    def grow(self, name: str) -> None:
        self.engine.grow(name)

    def touch(self, uri: str) -> bool:
        return self.engine.touch(uri)

    def afterwards(self, work: Callable[[], Awaitable[None]]) -> None:
        raise NotImplementedError("nothing may follow an answer here")

    def notify(self, method: str, params: dict | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))
