"""A scripted model on loopback: it calls tools one after the other, if the first request has them, and ends after the last result.

It speaks the Responses API of OpenAI, the Messages API of Anthropic and the `generateContent` of Gemini, as event streams
and, for the last two, also in one piece. Requests of an agent beside its conversation (a title, a route) have no tools and
get a text.
"""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

FINAL = "The script is over."


@dataclass(frozen=True)
class Step:
    """One call. `tool` is the end of the tool's name, since each agent adds its own prefix; `expected` is in its answer."""

    tool: str
    arguments: dict[str, Any]
    expected: str


class Model:
    """One conversation with one agent."""

    def __init__(self, *steps: Step) -> None:
        self.steps = steps
        self.first: list[str] | None = None  # the names of the tools of the first request
        self.first_at = self.first_after = 0.0
        self.called = 0
        self.results: list[str] = []  # the tools' answers, as the agent returned them
        self.strange: list[str] = []  # requests that the script has no answer for
        self.lock = threading.Lock()
        model = self

        class Door(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if (self.headers.get("transfer-encoding") or "").lower() == "chunked":
                    body = b"".join(self._chunks())
                try:
                    kind, answer = model.answer(self.path.partition("?")[0], json.loads(body or b"{}"))
                except LookupError:
                    model.strange.append(f"POST {self.path}")
                    self._send(404, "application/json", b"{}")
                else:
                    self._send(200, kind, answer.encode())

            def do_GET(self) -> None:
                self._send(404, "application/json", b"{}")

            def do_HEAD(self) -> None:
                self._send(200, "text/plain", b"")

            def _chunks(self) -> Iterator[bytes]:
                while size := int(self.rfile.readline().strip() or b"0", 16):
                    yield self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()

            def _send(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, path: str, body: dict[str, Any]) -> tuple[str, str]:
        with self.lock:
            if path.endswith("/responses"):
                return "text/event-stream", events(self._openai(body), named=True)
            if path.endswith("/messages"):
                said = self._anthropic(body)
                if body.get("stream"):
                    return "text/event-stream", events(streamed(said), named=True)
                return "application/json", json.dumps(said)
            if path.endswith(":streamGenerateContent"):
                return "text/event-stream", events([self._gemini(body)], named=False)
            if path.endswith(":generateContent"):
                return "application/json", json.dumps(self._gemini(body))
            if path.endswith(("/count_tokens", ":countTokens")):
                return "application/json", json.dumps({"input_tokens": 100, "totalTokens": 100})
        raise LookupError(path)

    def wrong(self) -> str | None:
        """Says what is wrong with the answers that the agent returned; `None` if nothing is."""
        for at, step in enumerate(self.steps):
            if at >= self.called:
                return f"the model had no tool {step.tool} to call"
            if at >= len(self.results) or step.expected not in self.results[at]:
                return f"the model was handed {self.results[at:]} by {step.tool}, not {step.expected}"
        return None

    def _turn(self, tools: list[tuple[str | None, str]], results: list[str]) -> tuple[str | None, str, dict[str, Any]] | None:
        """Returns the next reply: a tool call (in a namespace, if there is one), or the final text."""
        if not tools:
            return None
        if self.first is None:
            self.first = [f"{space}.{name}" if space else name for space, name in tools]
            self.first_at = time.monotonic()
        if len(results) > len(self.results):
            self.results = results
        # A request that comes again gets no second call.
        if len(results) != self.called or self.called == len(self.steps):
            return None
        step = self.steps[self.called]
        found = [each for each in tools if each[1].endswith(step.tool)]
        if not found:
            return None
        self.called += 1
        return (*found[0], step.arguments)

    def _openai(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        tools: list[tuple[str | None, str]] = []
        for each in body.get("tools", []):
            if each.get("type") == "namespace":
                tools += [(each["name"], inner["name"]) for inner in each["tools"]]
            else:
                tools.append((None, each.get("name") or each["type"]))
        items = [each for each in body.get("input", []) if isinstance(each, dict)]
        results = [json.dumps(each.get("output")) for each in items if each.get("type") == "function_call_output"]
        call = self._turn(tools, results)
        if call:
            number, arguments = self.called, json.dumps(call[2])
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[1], "arguments": arguments}
            item |= {"namespace": call[0]} if call[0] else {}
        else:
            text = {"type": "output_text", "text": FINAL, "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
        response = {"id": "resp_1", "object": "response", "model": "scripted", "output": []}
        usage = {"input_tokens": 9, "input_tokens_details": None, "output_tokens": 9, "output_tokens_details": None, "total_tokens": 18}
        return [
            {"type": "response.created", "response": response},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response | {"status": "completed", "output": [item], "usage": usage}},
        ]

    def _anthropic(self, body: dict[str, Any]) -> dict[str, Any]:
        tools = [(None, each["name"]) for each in body.get("tools", [])]
        blocks = [part for each in body["messages"] if isinstance(each["content"], list) for part in each["content"]]
        results = [json.dumps(part.get("content")) for part in blocks if part.get("type") == "tool_result"]
        call = self._turn(tools, results)
        if call:
            block = {"type": "tool_use", "id": f"toolu_{self.called}", "name": call[1], "input": call[2]}
        else:
            block = {"type": "text", "text": FINAL}
        usage = {"input_tokens": 9, "output_tokens": 9}
        said = {"id": f"msg_{self.called}", "type": "message", "role": "assistant", "model": body.get("model", "scripted"), "content": [block]}
        return said | {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None, "usage": usage}

    def _gemini(self, body: dict[str, Any]) -> dict[str, Any]:
        tools = [(None, each["name"]) for group in body.get("tools", []) for each in group.get("functionDeclarations", [])]
        parts = [part for each in body.get("contents", []) for part in each.get("parts", [])]
        results = [json.dumps(part["functionResponse"]) for part in parts if "functionResponse" in part]
        call = self._turn(tools, results)
        part = {"functionCall": {"name": call[1], "args": call[2]}} if call else {"text": FINAL}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted"}


def streamed(said: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns a message of the Anthropic API as the events of its stream."""
    block = said["content"][0]
    if block["type"] == "tool_use":
        start, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    opened = said | {"content": [], "stop_reason": None}
    return [
        {"type": "message_start", "message": opened},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": said["stop_reason"], "stop_sequence": None}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def events(values: list[dict[str, Any]], named: bool) -> str:
    return "".join((f"event: {each['type']}\n" if named else "") + f"data: {json.dumps(each)}\n\n" for each in values)
