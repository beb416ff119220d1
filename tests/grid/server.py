"""One strict, scripted server: one revision on one transport.

    server.py --alias NAME --revision REVISION --transport stdio|sse|http [--control PORT] [--state DIRECTORY]

Over HTTP it prints its port. It reports to the harness over the control port what it saw, violations first.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from control import Side
from serving import pipe, web
from wire import http
from words import REVISIONS, TRANSPORTS, modern


async def main(options: argparse.Namespace) -> None:
    side = Side(options.control, options.alias, options.state)
    if options.transport == "stdio":
        return await pipe.serve(options.alias, options.revision, side)
    if modern(options.revision):
        door = web.ModernHttp(options.alias, side)
    elif options.transport == "http":
        door = web.LegacyHttp(options.alias, options.revision, side)
    else:
        door = web.Sse(options.alias, options.revision, side)
    print(await http.serve(door.handle), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--alias", required=True)
    parser.add_argument("--revision", choices=REVISIONS, required=True)
    parser.add_argument("--transport", choices=TRANSPORTS, required=True)
    parser.add_argument("--control", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()))
    asyncio.run(main(parser.parse_args()))
