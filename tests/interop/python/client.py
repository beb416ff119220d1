"""One client on the official Python SDK that tries every feature of server-everything.

    client.py [options] --url URL
    client.py [options] -- COMMAND ARGUMENTS...

The same script runs against the server itself and through the host: only the prefixes differ. It prints
`ok FEATURE` or `FAIL FEATURE: why` per feature. Its answers carry its own mark, so that two clients at once
can tell whether either got something of the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import warnings

import mcp_types as types
from anyio import BrokenResourceError
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client

warnings.simplefilter("ignore")
INTERACTIVE = {"get-roots-list", "trigger-elicitation-request", "trigger-sampling-request"}
FEATURES = "list echo progress sampling elicitation roots annotated resources prompts logging subscription".split()


def at(url: str) -> object:
    """Returns the SDK's transport for a URL."""
    return sse_client(url) if url.endswith("/sse") else url


def expect(condition: object, what: object) -> None:
    if not condition:
        raise AssertionError(str(what)[:600])


class Peer:
    """This client's answers to questions, and everything that it received."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.logs: list[str] = []
        self.updates: list[str] = []
        self.heard: list[str] = []  # everything that came in, searched for foreign marks at the end
        self.news = asyncio.Event()

    def hear(self, value: object) -> None:
        self.heard.append(value if isinstance(value, str) else json.dumps(value, default=str))
        self.news.set()

    async def sample(self, _context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.hear(params.model_dump(mode="json"))
        text = types.TextContent(type="text", text=f"sampled by {self.options.mark}")
        return types.CreateMessageResult(role="assistant", content=text, model=self.options.mark, stop_reason="endTurn")

    async def elicit(self, _context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.hear(params.model_dump(mode="json"))
        return types.ElicitResult(action="accept", content={"name": self.options.mark, "integer": self.options.number})

    async def roots(self, _context: object) -> types.ListRootsResult:
        await asyncio.sleep(self.options.think)
        root = types.Root(uri=f"file:///{self.options.mark}", name=self.options.mark)
        return types.ListRootsResult(roots=[root])

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logs.append(json.dumps(params.data))
        self.hear(params.data)

    async def message(self, message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            self.updates.append(str(message.params.uri))
            self.hear(str(message.params.uri))

    async def until(self, found: object, seconds: float) -> None:
        async with asyncio.timeout(seconds):
            while not found():
                self.news.clear()
                await self.news.wait()


class Run:
    """The features, one method each."""

    def __init__(self, client: Client, peer: Peer) -> None:
        self.client, self.peer, self.options = client, peer, peer.options
        self.modern = client.protocol_version >= "2026"
        self.uri = f"{self.options.uri_prefix}demo://resource/dynamic/text/{self.options.number}"

    async def call(self, tool: str, arguments: dict | None = None, **more: object) -> types.CallToolResult:
        result = await self.client.call_tool(self.options.prefix + tool, arguments or {}, **more)
        self.peer.hear(result.model_dump(mode="json"))
        expect(not result.is_error, result)
        return result

    async def text(self, tool: str, arguments: dict | None = None) -> str:
        return "\n".join(part.text for part in (await self.call(tool, arguments)).content)

    async def list(self) -> None:
        names, cursor = set(), None
        while True:
            page = await self.client.list_tools(cursor=cursor)
            names |= {tool.name for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        mine = {name.removeprefix(self.options.prefix) for name in names if name.startswith(self.options.prefix)}
        expect(INTERACTIVE | {"echo", "get-sum"} <= mine, sorted(mine))
        expect(self.options.era == "any" or self.modern == (self.options.era == "modern"), self.client.protocol_version)

    async def echo(self) -> None:
        expect(await self.text("echo", {"message": self.options.mark}) == f"Echo: {self.options.mark}", "another echo")

    async def progress(self) -> None:
        steps, seen = self.options.steps, []

        async def on_progress(progress: float, total: float | None, _message: str | None) -> None:
            seen.append((progress, total))

        result = await self.call(
            "trigger-long-running-operation", {"duration": 0.1 * steps, "steps": steps}, progress_callback=on_progress
        )
        expect(f"Steps: {steps}" in result.content[0].text, result)
        await asyncio.sleep(0.05)  # the SDK runs callbacks in their own tasks
        expect(seen == [(step, steps) for step in range(1, steps + 1)], seen)

    async def sampling(self) -> None:
        text = await self.text("trigger-sampling-request", {"prompt": self.options.mark, "maxTokens": 10})
        expect(f"sampled by {self.options.mark}" in text, text)

    async def elicitation(self) -> None:
        text = await self.text("trigger-elicitation-request")
        expect(f"- Name: {self.options.mark}" in text, text)
        expect(f"- Favorite Integer: {self.options.number}" in text, text)

    async def roots(self) -> None:
        text = await self.text("get-roots-list")
        expect(f"URI: file:///{self.options.mark}" in text and "(1 total)" in text, text)

    async def annotated(self) -> None:
        result = await self.call("get-annotated-message", {"messageType": "error", "includeImage": True})
        found = [part.annotations.model_dump(exclude_none=True) for part in result.content]
        wanted = [{"audience": ["user", "assistant"], "priority": 1.0}, {"audience": ["user"], "priority": 0.5}]
        expect(found == wanted, found)

    async def resources(self) -> None:
        templates = (await self.client.list_resource_templates()).resource_templates
        template = self.options.uri_prefix + "demo://resource/dynamic/text/{resourceId}"
        expect(template in [each.uri_template for each in templates], templates)
        contents = (await self.client.read_resource(self.uri)).contents
        expect(contents[0].text.startswith(f"Resource {self.options.number}:"), contents)
        expect(contents[0].uri == self.uri, contents)
        links = [part.uri for part in (await self.call("get-resource-links", {"count": 2})).content[1:]]
        expect(all(link.startswith(self.options.uri_prefix + "demo://") for link in links) and len(links) == 2, links)
        expect((await self.client.read_resource(links[0])).contents[0].uri == links[0], links)

    async def prompts(self) -> None:
        name = self.options.prefix + "args-prompt"
        prompt = await self.client.get_prompt(name, {"city": self.options.mark, "state": "X"})
        expect(prompt.messages[0].content.text == f"What's weather in {self.options.mark}, X?", prompt)
        reference = types.PromptReference(type="ref/prompt", name=self.options.prefix + "completable-prompt")
        argument = {"name": "name", "value": "A"}
        answer = await self.client.complete(reference, argument, context_arguments={"department": "Engineering"})
        expect(answer.completion.values == ["Alice"], answer)

    async def logging(self) -> None:
        if not self.modern:
            await self.client.set_logging_level("debug")
        self.peer.logs.clear()
        await self.call("toggle-simulated-logging")
        try:
            await self.peer.until(lambda: any("level" in line.lower() for line in self.peer.logs), 12)
        finally:
            await self.call("toggle-simulated-logging")

    async def subscription(self) -> None:
        if self.modern:
            async with self.client.listen(resource_subscriptions=[self.uri]) as stream:
                await self.call("toggle-subscriber-updates")
                try:
                    async with asyncio.timeout(12):
                        event = await anext(aiter(stream))
                    self.peer.hear(str(event.uri))
                    expect(str(event.uri) == self.uri, event)
                finally:
                    await self.call("toggle-subscriber-updates")
            return
        await self.client.subscribe_resource(self.uri)
        await self.call("toggle-subscriber-updates")
        try:
            await self.peer.until(lambda: self.peer.updates, 12)
            expect(set(self.peer.updates) == {self.uri}, self.peer.updates)
        finally:
            await self.call("toggle-subscriber-updates")
            await self.client.unsubscribe_resource(self.uri)
        # The server logs a subscription with its URI: a log message that belongs to one client.
        own = f"/text/{self.options.number}"
        await self.peer.until(lambda: any(own in line for line in self.peer.logs), 5)


async def main(options: argparse.Namespace) -> int:
    failed = 0
    peer = Peer(options)
    if options.url:
        server = at(options.url)
    else:
        command, *arguments = options.command
        server = StdioServerParameters(command=command, args=arguments, env=dict(os.environ))
    client = Client(
        server,
        mode={"legacy": "legacy", "modern": "2026-07-28"}.get(options.era, "auto"),
        read_timeout_seconds=60,
        sampling_callback=peer.sample,
        elicitation_callback=peer.elicit,
        list_roots_callback=peer.roots,
        logging_callback=peer.log,
        message_handler=peer.message,
        log_level="debug",
    )
    try:
        async with client:
            run = Run(client, peer)
            for number in range(options.rounds):
                for feature in options.features:
                    label = feature if options.rounds == 1 else f"{feature} #{number + 1}"
                    try:
                        async with asyncio.timeout(60):
                            await getattr(run, feature)()
                        print("ok", label, flush=True)
                    except Exception as error:  # a fault is one line; the other features still run
                        failed += 1
                        print(f"FAIL {label}: {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    except* BrokenResourceError:
        # The SDK's HTTP+SSE reader fails on a message that arrives while it closes.
        if not (options.url or "").endswith("/sse"):
            raise
    everything = "\n".join(peer.heard)
    foreign = {mark for mark in re.findall(r"mark-\w+", everything) if mark != options.mark}
    foreign |= {uri for uri in re.findall(r"dynamic/text/\d{3,}", everything) if not uri.endswith(f"/{options.number}")}
    if foreign:
        failed += 1
        print(f"FAIL only its own messages: {sorted(foreign)}", flush=True)
    else:
        print("ok only its own messages", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--url")
    parser.add_argument("--prefix", default="")
    parser.add_argument("--uri-prefix", default="")
    parser.add_argument("--mark", default="mark-p")
    parser.add_argument("--number", type=int, default=1001)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--think", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--era", choices=["any", "legacy", "modern"], default="any")
    parser.add_argument("--features", type=lambda text: text.split(","), default=FEATURES)
    parser.add_argument("command", nargs="*")
    sys.exit(asyncio.run(main(parser.parse_args())))
