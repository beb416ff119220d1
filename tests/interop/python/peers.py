"""Clients on the official Python SDK with chosen capabilities, which record each question."""

from __future__ import annotations

import asyncio
import warnings
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client

warnings.simplefilter("ignore")
# All kinds of questions; a set of capabilities is some of these words.
ABLE = ("roots", "sampling", "elicitation")


@dataclass
class Peer:
    """One client; each of its answers has its name. The SDK declares a capability for each function that it has."""

    name: str
    can: tuple[str, ...] = ()
    roots: list[Path] = field(default_factory=list)
    action: str = "accept"  # what it answers to forms
    content: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def client(self, url: str, mode: str = "legacy") -> Client:
        given = {"roots": ("list_roots_callback", self._roots), "sampling": ("sampling_callback", self._sample)}
        given |= {"elicitation": ("elicitation_callback", self._elicit)}
        return Client(url, mode=mode, read_timeout_seconds=60, **dict(given[word] for word in self.can))

    async def _roots(self, _context: object) -> types.ListRootsResult:
        self.asked.append("roots")
        return types.ListRootsResult(roots=[types.Root(uri=each.as_uri(), name=self.name) for each in self.roots])

    async def _sample(self, _context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append(f"sampling {params.messages}")
        text = types.TextContent(type="text", text=f"sampled by {self.name}")
        return types.CreateMessageResult(role="assistant", content=text, model=self.name, stop_reason="endTurn")

    async def _elicit(self, _context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.asked.append(f"elicitation {params.message}")
        return types.ElicitResult(action=self.action, content=self.content if self.action == "accept" else None)


async def tools(client: Client) -> set[str]:
    """Returns the names on all pages."""
    names: set[str] = set()
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        names |= {tool.name for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return names


async def call(client: Client, name: str, arguments: dict[str, Any] | None = None) -> tuple[bool, str]:
    """Returns whether the result is a success, and its text. A protocol error counts as a result, too."""
    try:
        result = await client.call_tool(name, arguments or {})
    except Exception as error:
        return False, f"{type(error).__name__}: {error}"
    return not result.is_error, "\n".join(part.text for part in result.content if part.type == "text")


async def enter(stack: AsyncExitStack, url: str, *peers: Peer) -> list[Client]:
    return [await stack.enter_async_context(peer.client(url)) for peer in peers]


def ran(work: Any, seconds: float = 240) -> Any:
    """Runs a part of a stage, with a time limit."""

    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())
