"""Kills a server under load, and checks what is left when the host stops."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import threading
import time
import urllib.request
import uuid
from typing import Any

import compare
from world import Host, Report, World, alive, descendants, end, none_left

VICTIM = "python-sdk"
CALLERS = 5  # lost calls of each client
WAYS = ("stdin closed", "SIGTERM")  # the ways in which a client ends a program over stdio
WORDS = {"disconnected", "reconnecting", "connecting", "initializing"}


def post(url: str, name: str, arguments: dict[str, Any], seconds: float) -> list[dict[str, Any]]:
    """Makes one call by hand in its own session; returns every answer on its stream, even if there are several."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def send(message: dict[str, Any]) -> tuple[Any, str]:
        request = urllib.request.Request(url, json.dumps({"jsonrpc": "2.0", **message}).encode(), headers)
        with opener.open(request, timeout=seconds) as response:
            return response.headers, response.read().decode()

    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}
    session, _ = send({"id": 1, "method": "initialize", "params": hello})
    headers |= {"mcp-session-id": session["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    send({"method": "notifications/initialized"})
    answer, text = send({"id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    streamed = "event-stream" in answer.get("content-type", "")
    messages = [line[5:] for line in text.splitlines() if line.startswith("data:")] if streamed else [text]
    parsed = [json.loads(message) for message in messages if message.strip()]
    return [message for message in parsed if "result" in message or "error" in message]


def must_be_unknown(answer: dict[str, Any]) -> None:
    """Checks for the host's error that the outcome is unknown."""
    kind = answer.get("_meta", {}).get("mcp-host/error", {}).get("kind")
    words = " ".join(part.get("text", "") for part in answer.get("content", [])).lower()
    if answer.get("isError") is not True or kind != "outcome_unknown" or "outcome" not in words or "unknown" not in words:
        raise AssertionError(f"not an error of unknown outcome: {json.dumps(answer)[:400]}")


async def text(client: Any, tool: str) -> str:
    answer = await compare.ask(client, "tools/call", {"name": f"{VICTIM}__{tool}", "arguments": {}})
    if "error" in answer or answer.get("isError"):
        raise AssertionError(answer)
    return answer["content"][0]["text"]


class Load:
    """Calls the other servers, one after the other, until told to stop."""

    def __init__(self, world: World, client: Any) -> None:
        self.calls = [
            ("everything__echo", {"message": "still here"}),
            ("filesystem__read_text_file", {"path": str(world.files / "inner" / "hello.txt")}),
            ("time__convert_time", {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}),
        ]
        self.client, self.done, self.faults = client, asyncio.Event(), []
        self.times: list[tuple[float, float]] = []

    async def run(self) -> None:
        while not self.done.is_set():
            for name, arguments in self.calls:
                start = time.monotonic()
                answer = await compare.ask(self.client, "tools/call", {"name": name, "arguments": arguments})
                self.times.append((start, time.monotonic() - start))
                if "error" in answer or answer.get("isError"):
                    self.faults.append(f"{name}: {json.dumps(answer)[:200]}")
            await asyncio.sleep(0.01)


class Watch(threading.Thread):
    """Polls the status and records the states of one server in order."""

    def __init__(self, host: Host) -> None:
        super().__init__(daemon=True)
        self.host, self.seen, self.over = host, [], threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            try:
                state = self.host.states().get(VICTIM, "no status")
            except (subprocess.TimeoutExpired, ValueError) as error:
                state = f"no status: {error}"
            if not self.seen or self.seen[-1] != state:
                self.seen.append(state)


def kill_under_load(world: World, report: Report) -> None:
    host = Host(world, "faults", ["everything", "filesystem", "time", VICTIM])
    watch = Watch(host)
    try:
        host.wait_connected()
        watch.start()
        asyncio.run(_kill(world, report, host))
        watch.over.set()
        with report.check("kill -9 under load: status shows each state"):
            row = host.status()[VICTIM]
            if not WORDS & set(watch.seen) or row["state"] != "connected":
                raise AssertionError(f"states seen: {watch.seen}, and last {row['state']}")
            errors = [value for key, value in row.items() if "error" in key.lower() and value]
            if not errors:
                raise AssertionError(f"no last error in {row}")
            command = [world.binary, "status", "--listen", host.address]
            said = subprocess.run(command, env=host.environment, capture_output=True, timeout=20, check=True, text=True).stdout
            if not any(VICTIM in line and "connected" in line for line in said.splitlines()):
                raise AssertionError(said)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        report.line("kill -9 under load", f"{compare.describe(error)}; states seen: {watch.seen}")
    finally:
        watch.over.set()
    with report.check("kill -9 under load: the host then stops with 0 and leaves no process"):
        stop_and_look(host)


async def _kill(world: World, report: Report, host: Host) -> None:
    async with (
        compare.connect(world, host.url, "legacy", False, "faults") as old,
        compare.connect(world, host.url, "any", False, "faults") as new,
    ):
        loads = [Load(world, old), Load(world, new)]
        running = [asyncio.create_task(load.run()) for load in loads]
        params = {"name": f"{VICTIM}__slow", "arguments": {"seconds": 120}}
        lost = [asyncio.create_task(compare.ask(client, "tools/call", params)) for client in (old, new) for _ in range(CALLERS)]
        by_hand = asyncio.create_task(asyncio.to_thread(post, host.url, params["name"], params["arguments"], 100))
        async with asyncio.timeout(40):
            while True:  # the two clients may share a process or have one each
                busy = {await text(client, "pid"): int(await text(client, "busy")) for client in (old, new)}
                if sum(busy.values()) == len(lost) + 1:
                    break
                await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        killed = time.monotonic()
        ours = alive(host.mark)
        for pid in map(int, busy):
            if pid not in ours:
                raise AssertionError(f"{pid} is not a process of this host: {ours}")
            os.kill(pid, signal.SIGKILL)
        with report.check(f"kill -9 under load: each of {len(lost)} callers gets an error that says the outcome is unknown"):
            async with asyncio.timeout(15):
                for answer in await asyncio.gather(*lost):
                    must_be_unknown(answer)
        with report.check("kill -9 under load: a lost call is answered exactly once"):
            async with asyncio.timeout(15):
                answers = await by_hand
            if len(answers) != 1:
                raise AssertionError(answers)
            must_be_unknown(answers[0].get("result", {}))
        with report.check("kill -9 under load: the killed server reconnects by itself"):
            end_at = time.monotonic() + 45
            while await asyncio.to_thread(lambda: host.states().get(VICTIM)) != "connected":
                if time.monotonic() > end_at:
                    raise AssertionError(host.states())
                await asyncio.sleep(0.1)
            for client in (old, new):
                async with asyncio.timeout(20):
                    if await text(client, "pid") in busy:
                        raise AssertionError("a dead process answers")
        back = time.monotonic()
        await asyncio.sleep(1)
        for load in loads:
            load.done.set()
        await asyncio.gather(*running)
        during = [took for load in loads for start, took in load.times if killed - took <= start <= back]
        with report.check(f"kill -9 under load: the others answered {len(during)} calls meanwhile, the slowest in {max(during, default=0):.2f} s"):
            if faults := [fault for load in loads for fault in load.faults]:
                raise AssertionError(f"{len(faults)} failed: {faults[0]}")
            if len(during) < 10 or max(during) > 5:
                raise AssertionError("too few or too slow")


def stop_and_look(host: Host) -> None:
    """Sends SIGTERM and checks that the host ends with 0 and nothing that it started is alive, whatever its parent is."""
    if host.process.poll() is not None:
        raise AssertionError(f"it had ended with {host.process.returncode}: {host.world.tail(host.name)}")
    tree, marked = descendants(host.process.pid), alive(host.mark)
    if not marked:
        raise AssertionError("no process of a server was running")
    code = host.stop()
    none_left(host.mark, tree)
    if code != 0:
        raise AssertionError(f"ended with {code}: {host.world.tail(host.name)}")


def stops(world: World, report: Report) -> None:
    host = Host(world, "stop")
    with report.check("stop: SIGTERM with a call in flight"):
        host.wait_connected()
        caller = threading.Thread(target=_quietly, args=(host.url, f"{VICTIM}__slow", {"seconds": 120}, 60), daemon=True)
        caller.start()
        time.sleep(1)
        stop_and_look(host)
    host = Host(world, "early")
    with report.check("stop: SIGTERM while servers are starting"):
        deadline = time.monotonic() + 20
        while not alive(host.mark) and time.monotonic() < deadline:
            time.sleep(0.02)
        stop_and_look(host)
    for way in WAYS:
        with report.check(f"stop: stdio host, {way}"):
            _stdio(world, way)


def _quietly(*words: Any) -> None:
    try:
        post(*words)
    except (OSError, ValueError):
        pass  # the call is lost with the host; how does not matter here


def _stdio(world: World, way: str) -> None:
    mark = f"stdio-{uuid.uuid4()}"
    config = world.config("stdio", mark)
    command = [world.binary, "stdio", "--config", str(config)]
    process = world.start(command, world.environment("stdio"), "stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        begin(process)
        tree, marked = descendants(process.pid), alive(mark)
        servers = [entry for entry in world.servers(mark).values() if "command" in entry]
        if len(marked) < len(servers):
            raise AssertionError(f"only {len(marked)} processes for {len(servers)} servers")
        code = leave(process, way)
        none_left(mark, tree)
        if code != 0:
            raise AssertionError(f"ended with {code}: {world.tail('stdio')}")
    finally:
        end(process)


def begin(process: subprocess.Popen) -> None:
    """Opens a session on the pipes of a program, up to its first list."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "interop", "version": "1"}}
    _send(process, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    _answer(process, 1, 60)
    _send(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    _send(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}})
    _answer(process, 2, 90)


def leave(process: subprocess.Popen, way: str) -> int:
    if way == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    else:
        process.stdin.close()
    return process.wait(25)


def _send(process: subprocess.Popen, message: dict[str, Any]) -> None:
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def _answer(process: subprocess.Popen, number: int, seconds: float) -> dict[str, Any]:
    """Returns the answer to one request; reads the pipe directly, since a buffered reader would hide lines from `select`."""
    deadline, pending = time.monotonic() + seconds, b""
    while time.monotonic() < deadline:
        if not select.select([process.stdout], [], [], 0.2)[0]:
            continue
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            raise AssertionError(f"stdout ended before answer {number}")
        *whole, pending = (pending + piece).split(b"\n")
        for line in whole:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                if "error" in message:
                    raise AssertionError(message)
                return message
    raise AssertionError(f"no answer {number} within {seconds} s")
