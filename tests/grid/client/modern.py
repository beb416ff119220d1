"""A strict client of the revision without sessions, over HTTP or a child's pipes."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re

from client import rules
from client.base import Call, Client
from client.wires import BOTH, Pipe
from serving.rules import envelope
from wire import http
from words import META, R26

PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
STATUS = {-32601: 404, -32020: 400, -32022: 400, -32021: 400}


def header(value: str) -> str:
    if PLAIN.fullmatch(value) and not value.startswith("=?base64?"):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


class Modern(Client):
    """Self-contained requests; a call may take several legs."""

    def __init__(self, name: str, kinds: list[str], url: str | None, pipe: Pipe | None) -> None:
        super().__init__(name, R26, kinds)
        self.url, self.wire = url, pipe
        self.ids = itertools.count(1)
        self.legs: dict[object, tuple[Call, asyncio.Future]] = {}  # over the pipe, by id
        self.listens: dict[object, Call] = {}
        self.watches: dict[str, Call] = {}
        self.last: set = set()

    async def open(self) -> None:
        if self.wire:
            await self.wire.open(self)
        outcome = await self.start("server/discover", {}).done()
        result = outcome.get("result", {})
        if R26 not in result.get("supportedVersions", []):
            raise AssertionError(f"server/discover: {outcome}")
        self.offered = result.get("capabilities", {})
        self.check(rules.capabilities(R26, self.offered))
        try:
            await self.listen({"toolsListChanged": True})
        except AssertionError as error:  # only the cells that need it fail
            self.wrong(f"subscriptions/listen: {error}")

    def start(
        self, method: str, params: dict, mark: str = "", progress: bool = False, level: str | None = None
    ) -> Call:
        call = Call(method, params, mark, self.token() if progress else None, level)
        if mark:
            self.calls[mark] = call
        call.task = self.spawn(self.run(call))
        return call

    def message(self, call: Call, more: dict) -> dict:
        number = next(self.ids)
        call.id = number if number % 3 else f"q{number}"
        call.legs += 1
        meta = {META + "protocolVersion": R26, META + "clientCapabilities": self.capabilities}
        meta[META + "clientInfo"] = {"name": self.name, "version": "1"}
        meta |= {META + "logLevel": call.level} if call.level else {}
        meta |= {"progressToken": call.token} if call.token is not None else {}
        return {"jsonrpc": "2.0", "id": call.id, "method": call.method, "params": call.params | more | {"_meta": meta}}

    async def run(self, call: Call) -> None:
        """Runs all legs of a call: answers the questions and sends the call again."""
        more: dict = {}
        while True:
            message = self.message(call, more)
            answer = await (self.over_pipe if self.wire else self.over_http)(message, call)
            if answer is None:
                return  # cancelled
            if "error" in answer:
                return call.end({"error": answer["error"]})
            result = answer["result"]
            self.check(rules.result(R26, call.method, result))
            if call.method == "tools/list" and not self.direct and "x-mcp-header" in json.dumps(result):
                self.wrong("x-mcp-header passed on")
            if result.get("resultType") != "input_required":
                return call.end({"result": result})
            more = {"requestState": result["requestState"]} if "requestState" in result else {}
            responses = {}
            for key, wanted in result.get("inputRequests", {}).items():
                if set(wanted) - {"method", "params"}:
                    self.wrong(f"an input request with {sorted(wanted)}")
                said = self.answer(wanted["method"], wanted.get("params", {}))
                if said is None or "error" in said:  # a modern client can refuse only by not retrying
                    return call.end({"abandoned": result})
                responses[key] = said["result"]
            more |= {"inputResponses": responses} if responses else {}
            if call.mark in self.delays or not responses:
                await asyncio.sleep(self.delays.get(call.mark, 0.25))
            if call.token is not None:
                call.token = self.token()
                call.progress.clear()

    async def over_http(self, message: dict, call: Call) -> dict | None:
        headers = BOTH | {"MCP-Protocol-Version": R26, "Mcp-Method": call.method}
        if call.method in NAMED:
            headers["Mcp-Name"] = header(message["params"][NAMED[call.method]])
        if call.method == "tools/call" and self.direct and message["params"]["name"] == "plain":
            headers["Mcp-Param-Mark"] = header(message["params"]["arguments"]["mark"])
        answer = await http.send("POST", self.url, headers, json.dumps(message).encode())
        call.status = answer.status
        if "mcp-session-id" in answer.headers:
            self.wrong("a session id in the answer of a modern request")
        if answer.type == "text/event-stream":
            return await self.events(answer, message["id"], call)
        value = json.loads(await answer.read())
        self.hear(value)
        code = value.get("error", {}).get("code")
        if answer.status != 200 and STATUS.get(code, 400) != answer.status:
            self.wrong(f"HTTP {answer.status} under {value}")
        return self.mine(value, message["id"])

    async def events(self, answer: http.Answer, id: object, call: Call) -> dict | None:
        if answer.headers.get("x-accel-buffering") != "no":
            self.wrong("a stream without X-Accel-Buffering: no")
        found = None
        async for event in answer.events():
            value = json.loads(event.data)
            self.hear(value)
            if found is not None:
                self.wrong(f"a message after the answer: {value}")
            elif "method" in value:
                self.told(value, call)
            else:
                found = self.mine(value, id)
        if found is None and not call.cancelled:
            self.wrong(f"the stream of `{call.method}` ended without its answer")
        return found

    def mine(self, value: object, id: object) -> dict | None:
        faults = list(envelope(value))
        self.check(faults)
        if faults or value.get("id") != id or type(value.get("id")) is not type(id):
            self.wrong(f"the answer to {id!r} is {value}")
            return {"error": {"code": 0, "message": "no answer"}}
        return value

    async def over_pipe(self, message: dict, call: Call) -> dict | None:
        future = asyncio.get_running_loop().create_future()
        self.legs[message["id"]] = (call, future)
        await self.wire.send(message, call)
        return await future

    def receive(self, message: object, _place: str) -> None:
        """Takes one line of the pipe."""
        self.hear(message)
        faults = list(envelope(message))
        self.check(faults)
        if faults:
            return
        if "method" in message:
            if "id" in message:
                return self.wrong(f"a request of the server's: {message}")
            return self.told(message, None)
        call, future = self.legs.pop(message.get("id"), (None, None))
        if future is None or call.cancelled:
            return self.wrong(f"an answer to nothing: {message}")
        future.set_result(message)

    def told(self, message: dict, call: Call | None) -> None:
        """Takes a notification; `call`: the one on whose stream it came, None on a pipe."""
        if "id" in message:
            return self.wrong(f"a request of the server's: {message}")
        self.check(rules.notice(R26, message))
        method, params = message["method"], message.get("params", {})
        tag = params.get("_meta", {}).get(META + "subscriptionId")
        if tag is not None:
            self.heard(method, params, self.listens.get(tag), call)
        elif method == "notifications/progress":
            running = [one for one, _ in self.legs.values()] if call is None else [call]
            token = params.get("progressToken")
            self.took_progress(next((one for one in running if one.token == token), None), params)
        elif method == "notifications/message":
            self.logged(params, call)
        elif method != "notifications/cancelled":
            self.wrong(f"untagged: {message}")
        self.spawn(self.noted())

    def logged(self, params: dict, call: Call | None) -> None:
        self.lines.append(params)
        asking = [one for one, _ in self.legs.values() if one.level] if call is None else [call]
        if not any(one.level for one in asking):
            self.wrong(f"a log line that was not requested: {params}")
        for one in asking:
            if one.mark and one.mark in json.dumps(params):
                one.lines.append(params)

    def heard(self, method: str, params: dict, listen: Call | None, call: Call | None) -> None:
        """Takes a message of a subscription."""
        if listen is None or (call is not None and call is not listen):
            return self.wrong(f"a message of no subscription, or of another one: {method} {params}")
        if method == "notifications/subscriptions/acknowledged":
            if listen.begun.is_set():
                self.wrong("acknowledged again")
            listen.lines.append(params.get("notifications", {}))
            listen.begun.set()
            return
        if not listen.begun.is_set():
            self.wrong(f"a message before the acknowledgement of its subscription: {method}")
        honored = listen.lines[0] if listen.lines else {}
        flag = {"notifications/tools/list_changed": "toolsListChanged"}.get(method)
        watched = honored.get("resourceSubscriptions", [])
        if flag and not honored.get(flag) or not flag and params.get("uri") not in watched:
            self.wrong(f"a change that was not subscribed to: {method} {params}")
        self.changes.append((method, params))

    async def listen(self, wanted: dict) -> Call:
        """Opens a subscription and waits until it is acknowledged in full."""
        call = Call("subscriptions/listen", {"notifications": wanted}, "")
        message = self.message(call, {})
        self.listens[call.id] = call

        async def run() -> None:
            answer = await (self.over_pipe if self.wire else self.over_http)(message, call)
            if not call.cancelled:
                self.wrong(f"a subscription ended: {answer}")
                call.lines.append({})
                call.begun.set()

        call.task = self.spawn(run())
        await asyncio.wait_for(call.begun.wait(), 10)
        if not call.lines or call.lines[0] != wanted:
            raise AssertionError(f"subscribed to {wanted}, acknowledged were {call.lines}")
        return call

    async def cancel(self, call: Call) -> None:
        call.cancelled = True
        if self.wire:
            params = {"requestId": call.id, "reason": "not needed"}
            await self.wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, None)
        call.task.cancel()

    async def watch(self, uri: str) -> None:
        self.watches[uri] = await self.listen({"resourceSubscriptions": [uri]})

    async def unwatch(self, uri: str) -> None:
        await self.cancel(self.watches.pop(uri))

    async def close(self) -> None:
        for call in self.listens.values():
            call.cancelled = True
        for task in list(self.works):
            task.cancel()
        await asyncio.gather(*self.works, return_exceptions=True)
        if self.wire:
            await self.wire.close()
