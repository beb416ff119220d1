"""One client on the Python SDK 1, with the options and lines of `tests/interop/python/client.py`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client


def expect(condition: object, what: object) -> None:
    if not condition:
        raise AssertionError(str(what)[:600])


class Run:
    """The features, one method each, and this client's answers to questions."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.session: ClientSession

    async def on_sampling(self, _: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        text = types.TextContent(type="text", text=f"sampled by {self.options.mark}")
        return types.CreateMessageResult(role="assistant", content=text, model="grid", stopReason="endTurn")

    async def on_elicitation(self, _: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": self.options.mark, "integer": self.options.number})

    async def on_roots(self, _: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=f"file:///{self.options.mark}", name="root")])

    async def text(self, tool: str, arguments: dict, **more: object) -> str:
        result = await self.session.call_tool(self.options.prefix + tool, arguments, **more)
        expect(not result.isError, result)
        return "\n".join(part.text for part in result.content)

    async def list(self) -> None:
        found, cursor = set(), None
        while True:
            page = await self.session.list_tools(cursor)
            found |= {tool.name for tool in page.tools}
            cursor = page.nextCursor
            if cursor is None:
                break
        expect({self.options.prefix + name for name in ("echo", "get-sum")} <= found, found)

    async def echo(self) -> None:
        expect(await self.text("echo", {"message": self.options.mark}) == f"Echo: {self.options.mark}", "another echo")

    async def progress(self) -> None:
        seen = []

        async def on_progress(progress: float, total: float | None, _message: str | None) -> None:
            seen.append((progress, total))

        steps = self.options.steps
        arguments = {"duration": 0.1, "steps": steps}
        text = await self.text("trigger-long-running-operation", arguments, progress_callback=on_progress)
        expect(f"Steps: {steps}" in text, text)
        expect(seen == [(step, steps) for step in range(1, steps + 1)], seen)

    async def sampling(self) -> None:
        text = await self.text("trigger-sampling-request", {"prompt": self.options.mark, "maxTokens": 10})
        expect(f"sampled by {self.options.mark}" in text, text)

    async def elicitation(self) -> None:
        text = await self.text("trigger-elicitation-request", {})
        expect(f"- Name: {self.options.mark}" in text, text)

    async def roots(self) -> None:
        text = await self.text("get-roots-list", {})
        expect(f"file:///{self.options.mark}" in text, text)

    async def annotated(self) -> None:
        arguments = {"messageType": "error", "includeImage": True}
        result = await self.session.call_tool(self.options.prefix + "get-annotated-message", arguments)
        found = [(part.annotations.audience, part.annotations.priority) for part in result.content]
        expect(found == [(["user", "assistant"], 1.0), (["user"], 0.5)], found)


async def main(options: argparse.Namespace) -> int:
    failed, run = 0, Run(options)
    if options.url:
        transport = sse_client(options.url) if options.url.endswith("/sse") else streamablehttp_client(options.url)
    else:
        command, *arguments = options.command
        transport = stdio_client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)))
    callbacks = {"sampling_callback": run.on_sampling, "elicitation_callback": run.on_elicitation}
    async with transport as streams, ClientSession(*streams[:2], list_roots_callback=run.on_roots, **callbacks) as session:
        run.session = session
        await session.initialize()
        for feature in options.features:
            try:
                async with asyncio.timeout(60):
                    await getattr(run, feature)()
                print("ok", feature, flush=True)
            except Exception as error:  # a fault is one line; the other features still run
                failed += 1
                print(f"FAIL {feature}: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--mark", default="mark-q")
    parser.add_argument("--number", type=int, default=1001)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--era")
    parser.add_argument("--features", type=lambda text: text.split(","))
    parser.add_argument("command", nargs="*")
    sys.exit(asyncio.run(main(parser.parse_args())))
