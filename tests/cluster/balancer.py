"""A balancer that knows nothing: the next request goes to the next replica, whoever sends it. A replica that refuses the
connection is passed over. Whatever breaks after the request was sent breaks for the client, too.

balancer.py PORT REPLICA...      PORT: 0 draws one; REPLICA: a port on 127.0.0.1

Prints `listening on http://127.0.0.1:PORT/mcp`.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

HEAD = 256 * 1024  # bytes


class Balancer:
    def __init__(self, ports: list[int]) -> None:
        self.turns = itertools.cycle(range(len(ports)))
        self.ports = ports

    async def start(self, port: int) -> int:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", port, limit=HEAD)
        return self.server.sockets[0].getsockname()[1]

    async def reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        first = next(self.turns)
        for step in range(len(self.ports)):
            try:
                return await asyncio.open_connection("127.0.0.1", self.ports[(first + step) % len(self.ports)], limit=HEAD)
            except OSError:
                continue
        raise OSError("no replica takes the connection")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one request, and ends the connection: the next request of this client goes elsewhere."""
        other = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            first, *fields = head[:-4].split(b"\r\n")
            fields = [field for field in fields if not field.lower().startswith((b"connection:", b"keep-alive:"))]
            try:
                back, other = await self.reach()
            except OSError:
                writer.write(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                return
            other.write(b"\r\n".join([first, *fields, b"connection: close", b"", b""]))
            # A client that closes has left.
            ways = [asyncio.create_task(pump(reader, other)), asyncio.create_task(pump(back, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            [way.cancel() for way in ways]
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            for each in (other, writer):
                if each is not None:
                    each.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carries bytes until they end. If they break off, so does the other side."""
    try:
        while piece := await reader.read(64 * 1024):
            writer.write(piece)
            await writer.drain()
    except OSError:
        writer.transport.abort()


async def main(port: int, ports: list[int]) -> None:
    balancer = Balancer(ports)
    print(f"listening on http://127.0.0.1:{await balancer.start(port)}/mcp", flush=True)
    await balancer.server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main(int(sys.argv[1]), [int(word) for word in sys.argv[2:]]))
    except KeyboardInterrupt:
        pass
