"""A session of a revision with a handshake, over any transport: order, ids, questions to the client."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

from control import Side
from serving import rules, tools
from words import LEVELS, META, declares, plain_kind

Send = Callable[[dict | list, object], None]  # a message, and the id of the request that it belongs to, else None
ASK_LIMIT = 15


class Session:
    """One client's session. Violations go to the side channel; the session continues as well as it can."""

    def __init__(self, alias: str, revision: str, side: Side, send: Send) -> None:
        self.alias, self.revision, self.side, self.send = alias, revision, side, send
        self.stage = "new"  # then "initializing", "ready"
        self.capabilities: dict = {}
        self.seen: set = set()
        self.running: dict[object, asyncio.Task] = {}
        self.tokens: set = set()
        self.asked: dict[str, tuple[str, asyncio.Future]] = {}
        self.ids = itertools.count(1)
        self.level = 0
        self.watched: set[str] = set()
        self.extra: list[str] = []
        self.calls: set[asyncio.Task] = set()

    def wrong(self, what: str) -> None:
        self.side.violation(f"{self.revision}: {what}")

    def receive(self, message: object) -> None:
        """Takes one message of the client; the answer, if any, goes out by `send`."""
        faults = list(rules.envelope(message))
        for fault in faults:
            self.wrong(fault)
        if faults:
            return
        if "method" not in message:
            return self.answered(message)
        for fault in rules.legacy_request(self.revision, message):
            self.wrong(fault)
        if "id" not in message:
            return self.notified(message["method"], message.get("params", {}))
        id = message["id"]
        if id in self.seen:
            self.wrong(f"id {id!r} again")
        self.seen.add(id)
        if message["method"] == "initialize":
            if self.stage != "new":
                self.wrong("initialize again")
            return self.initialize(id, message.get("params", {}))
        if self.stage != "ready" and message["method"] != "ping":
            self.wrong(f"`{message['method']}` while {self.stage}")
        task = asyncio.create_task(self.serve(id, message["method"], message.get("params", {})))
        self.running[id] = task
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)

    def initialize(self, id: object, params: dict) -> None:
        for fault in rules.initialize(params):
            self.wrong(fault)
        self.capabilities = params.get("capabilities", {})
        self.stage = "initializing"
        info = {"name": f"grid-{self.alias}", "version": "1"}
        answer = {"protocolVersion": self.revision, "capabilities": tools.server_capabilities(self.revision)}
        self.send({"jsonrpc": "2.0", "id": id, "result": answer | {"serverInfo": info}}, id)

    def notified(self, method: str, params: dict) -> None:
        if method == "notifications/initialized":
            if self.stage != "initializing":
                self.wrong(f"initialized while {self.stage}")
            self.stage = "ready"
        elif method == "notifications/cancelled":
            id = params.get("requestId")
            if id not in self.seen:
                self.wrong(f"cancels {id!r}, an unknown request")
            elif id in self.running:
                self.running.pop(id).cancel()

    def answered(self, message: dict) -> None:
        kind, waits = self.asked.pop(message.get("id"), (None, None))
        if waits is None:
            return self.wrong(f"answers an unknown question: {message}")
        if waits.done():  # given up meanwhile: answer and withdrawal may cross
            return
        if "error" in message:
            return waits.set_result({"kind": kind, "refused": message["error"]["code"]})
        for fault in rules.answer(plain_kind(kind), message["result"]):
            self.wrong(fault)
        waits.set_result({"kind": kind, "result": message["result"]})

    async def serve(self, id: object, method: str, params: dict) -> None:
        call = LegacyCall(self, id, params)
        try:
            outcome = {"result": await self.result(call, method, params)}
        except tools.RpcError as error:
            outcome = {"error": error.error}
        except asyncio.CancelledError:
            return
        finally:
            self.tokens.discard(call.token)
        if self.running.pop(id, None):
            self.send({"jsonrpc": "2.0", "id": id} | outcome, id)
            for work in call.after:
                call.id = None
                await work()

    async def result(self, call: LegacyCall, method: str, params: dict) -> dict:
        if call.token is not None and call.token in self.tokens:
            self.wrong(f"progress token {call.token!r} is reused")
        self.tokens.add(call.token)
        match method:
            case "ping":
                return {}
            case "logging/setLevel":
                self.level = LEVELS.index(params["level"])
                return {}
            case "resources/subscribe":
                tools.read(self.revision, params.get("uri", ""))
                self.watched.add(params["uri"])
                return {}
            case "resources/unsubscribe":
                self.watched.discard(params.get("uri"))
                return {}
            case "tools/call":
                name, arguments = params.get("name"), params.get("arguments", {})
                if name in self.extra:
                    return tools.texts(f"extra {call.mark}")
                if not tools.offered(name, self.revision):
                    raise tools.RpcError(-32602, f"no such tool: {name}")
                return await tools.TOOLS[name][0](call, arguments)
        found = await tools.asked(call, method, params)
        found = found or tools.fixed(method, params, self.revision, self.extra)
        if found is None:
            raise tools.RpcError(-32601, f"no such method: {method}")
        return found

    def notify(self, method: str, params: dict | None, id: object) -> None:
        message = {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})
        # The only revision with batches: its clients must accept them.
        self.send([message] if rules.batches(self.revision) else message, id)

    def end(self) -> None:
        for task in self.calls:
            task.cancel()


class LegacyCall:
    """One request in progress; see `tools.Call`."""

    def __init__(self, session: Session, id: object, params: dict) -> None:
        self.session, self.id = session, id
        self.alias, self.revision = session.alias, session.revision
        self.state = session.side.state
        self.mark = tools.mark(params)
        self.token = params.get("_meta", {}).get("progressToken")
        self.ids: dict[str, str] = {}  # kinds of its questions
        self.after: list[Callable[[], Awaitable[None]]] = []

    async def progress(self, value: float, total: float, message: str) -> None:
        if self.token is not None:
            params = {"progressToken": self.token, "progress": value, "total": total}
            params |= {"message": message} if self.revision > "2024-11-05" else {}
            self.session.notify("notifications/progress", params, self.id)

    async def log(self, level: str, data: object) -> None:
        if LEVELS.index(level) >= self.session.level:
            params = {"level": level, "logger": "grid", "data": data}
            self.session.notify("notifications/message", params, self.id)

    async def ask(self, *kinds: str) -> list[dict]:
        """Asks everything at once, whether or not the client declared that it can be asked."""
        return await asyncio.gather(*(self.one(kind) for kind in kinds))

    async def ask_and_withdraw(self, kind: str, seconds: float) -> None:
        task = asyncio.create_task(self.one(kind))
        await asyncio.sleep(seconds)
        for id, (_, waits) in self.session.asked.items():
            if self.ids.get(id) == kind and not waits.done():
                self.session.notify("notifications/cancelled", {"requestId": id, "reason": "withdrawn"}, self.id)
                waits.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def one(self, kind: str) -> dict:
        session = self.session
        id, waits = f"s{next(session.ids)}", asyncio.get_running_loop().create_future()
        session.asked[id] = (kind, waits)
        self.ids[id] = kind
        params = tools.question(kind, self.revision, self.mark)
        message = {"jsonrpc": "2.0", "id": id, "method": tools.method(kind)} | ({"params": params} if params else {})
        session.send(message, self.id)
        declared = declares(session.capabilities, kind)
        try:
            return await asyncio.wait_for(waits, ASK_LIMIT) | {"declared": declared}
        except TimeoutError:
            # A question may stay unanswered; the cell decides whether that is correct.
            params = {"requestId": id, "reason": "no answer"}
            session.notify("notifications/cancelled", params, self.id)
            return {"kind": kind, "silent": True, "declared": declared}

    def say(self, event: str, **more: object) -> None:
        self.session.side.say(event, self.mark, **more)

    def grow(self, name: str) -> None:
        self.session.extra.append(name)
        self.session.notify("notifications/tools/list_changed", None, None)

    def touch(self, uri: str) -> bool:
        if uri not in self.session.watched:
            return False
        self.session.notify("notifications/resources/updated", {"uri": uri}, None)
        return True

    def afterwards(self, work: Callable[[], Awaitable[None]]) -> None:
        self.after.append(work)

    def notify(self, method: str, params: dict | None = None) -> None:
        self.session.notify(method, params, None)


def claims_modern(message: object) -> bool:
    """Whether a client probes for the stateless revision."""
    params = message.get("params") if isinstance(message, dict) else None
    return isinstance(params, dict) and META + "protocolVersion" in params.get("_meta", {})
