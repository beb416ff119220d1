"""The tools of the grid's official servers on the Python SDK 1: `server1.py stdio`, or `server1.py sse|http PORT`."""

from __future__ import annotations

import sys

from mcp.server.fastmcp import Context, FastMCP
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel

server = FastMCP("grid-python1", port=int(sys.argv[2]) if len(sys.argv) > 2 else 0)


class Who(BaseModel):
    name: str


@server.tool(name="echo")
def echo(message: str) -> str:
    """Answers with its argument."""
    return f"Echo: {message}"


@server.tool(name="trigger-long-running-operation")
async def long(steps: int, duration: float, ctx: Context) -> str:
    """Reports progress."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
    return f"Long running operation completed. Duration: {duration}, Steps: {steps}."


@server.tool(name="trigger-sampling-request")
async def sampling(prompt: str, ctx: Context) -> str:
    """Asks the client to sample."""
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    result = await ctx.session.create_message([asked], max_tokens=10, related_request_id=ctx.request_id)
    return f"sampled: {result.content.text}"


@server.tool(name="trigger-elicitation-request")
async def elicitation(ctx: Context) -> str:
    """Asks the user."""
    result = await ctx.elicit("Who?", Who)
    return f"- Name: {result.data.name}" if result.action == "accept" else result.action


@server.tool(name="get-roots-list")
async def roots(ctx: Context) -> str:
    """Asks for the client's roots."""
    return " ".join(str(root.uri) for root in (await ctx.session.list_roots()).roots)


if __name__ == "__main__":
    server.run({"http": "streamable-http"}.get(sys.argv[1], sys.argv[1]))
