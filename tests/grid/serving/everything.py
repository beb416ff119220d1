"""The tools that the clients on official SDKs call (those of `tests/interop`), named as in server-everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from words import R24, R25B, R26

if TYPE_CHECKING:
    from serving.tools import Call, Tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text(*lines: str) -> dict:
    return {"content": [{"type": "text", "text": "\n".join(lines)}]}


async def echo(_call: Call, arguments: dict) -> dict:
    return text(f"Echo: {arguments['message']}")


async def add(_call: Call, arguments: dict) -> dict:
    a, b = arguments["a"], arguments["b"]
    return text(f"The sum of {a} and {b} is {a + b}.")


async def long(call: Call, arguments: dict) -> dict:
    for step in range(1, arguments["steps"] + 1):
        await call.progress(step, arguments["steps"], f"step {step}")
    return text(f"Long running operation completed. Duration: {arguments['duration']}, Steps: {arguments['steps']}.")


async def sampling(call: Call, _arguments: dict) -> dict:
    (answer,) = await call.ask("sampling")
    return text(f"LLM sampling result: {answer.get('result', answer)}")


async def elicitation(call: Call, _arguments: dict) -> dict:
    (answer,) = await call.ask("who")
    content = answer.get("result", {}).get("content", {})
    return text(f"- Name: {content.get('name')}", f"- Favorite Integer: {content.get('integer')}")


async def roots(call: Call, _arguments: dict) -> dict:
    (answer,) = await call.ask("roots")
    found = answer.get("result", {}).get("roots", [])
    return text(f"Current MCP Roots ({len(found)} total):", *(f"   URI: {root['uri']}" for root in found))


async def annotated(_call: Call, _arguments: dict) -> dict:
    said = {"type": "text", "text": "Error: Operation failed"}
    shown = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    return {
        "content": [
            said | {"annotations": {"priority": 1.0, "audience": ["user", "assistant"]}},
            shown | {"annotations": {"priority": 0.5, "audience": ["user"]}},
        ]
    }


STRING, NUMBER = {"type": "string"}, {"type": "number"}
TOOLS: dict[str, Tool] = {
    "echo": (echo, {"message": STRING}, R24, R26),
    "get-sum": (add, {"a": NUMBER, "b": NUMBER}, R24, R26),
    "trigger-long-running-operation": (long, {"duration": NUMBER, "steps": NUMBER}, R24, R26),
    "trigger-sampling-request": (sampling, {"prompt": STRING, "maxTokens": NUMBER}, R24, R26),
    "trigger-elicitation-request": (elicitation, {}, R25B, R26),
    "get-roots-list": (roots, {}, R24, R26),
    "get-annotated-message": (annotated, {"messageType": STRING, "includeImage": {"type": "boolean"}}, R24, R26),
}
