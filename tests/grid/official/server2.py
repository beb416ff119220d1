"""The tools of the grid's official servers on the Python SDK 2: `server2.py stdio`, or `server2.py sse|http PORT`."""

from __future__ import annotations

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

server = MCPServer("grid-python2")


class Who(BaseModel):
    name: str


def who() -> Elicit[Who]:
    return Elicit("Who?", Who)


def sample(prompt: str) -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text=prompt))], max_tokens=10)


def listed() -> ListRoots:
    return ListRoots()


@server.tool(name="echo", structured_output=False)
def echo(message: str) -> str:
    """Answers with its argument."""
    return f"Echo: {message}"


@server.tool(name="trigger-long-running-operation", structured_output=False)
async def long(steps: int, duration: float, ctx: Context) -> str:
    """Reports progress."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"Long running operation completed. Duration: {duration}, Steps: {steps}."


@server.tool(name="trigger-sampling-request", structured_output=False)
def sampling(prompt: str, result: Annotated[CreateMessageResult, Resolve(sample)]) -> str:
    """Asks the client to sample."""
    return f"sampled: {result.content.text}"


@server.tool(name="trigger-elicitation-request", structured_output=False)
def elicitation(person: Annotated[Who, Resolve(who)]) -> str:
    """Asks the user."""
    return f"- Name: {person.name}"


@server.tool(name="get-roots-list", structured_output=False)
def roots(found: Annotated[ListRootsResult, Resolve(listed)]) -> str:
    """Asks for the client's roots."""
    return " ".join(str(root.uri) for root in found.roots)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run({"http": "streamable-http"}.get(sys.argv[1], sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]))
