"""Real servers that ask, from npm and PyPI: which clients share one, and which are asked.

Clients that a server cannot ask share its process. The host learns from the server's questions what it asks: `Q`, a set of
roots, sampling, and elicitation. Each check says which key of a process follows from that.
"""

from __future__ import annotations

import asyncio
import http.server
import itertools
import json
import subprocess
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from census import Census, Counted
from mcp import Client
from peers import ABLE, Peer, call, enter, ran, tools
from processes import LEFT, spawn
from world import Report, World, free_port, until


class Library(http.server.BaseHTTPRequestHandler):
    """A substitute for the service behind context7: it says that a client may be asked to sign in, and can be slow."""

    held = threading.Event()
    came = threading.Event()

    def do_GET(self) -> None:
        name = parse_qs(urlsplit(self.path).query).get("libraryName", ["?"])[0]
        if name.startswith("slow"):
            Library.came.set()
            Library.held.wait(30)
        body = json.dumps({"results": [], "error": f"nothing called {name}"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if name.startswith("ask"):
            self.send_header("X-Context7-Auth-Prompt", "1")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def expect(condition: object, what: object) -> None:
    if not condition:
        raise AssertionError(str(what)[:700])


async def shows(client: Client, tool: str, folder: Path) -> str:
    """The server asks for roots after its start and answers calls meanwhile with what it knows, also without a host."""
    text = ""
    for _ in range(50):
        _, text = await call(client, tool)
        if str(folder) in text:
            return text
        await asyncio.sleep(0.2)
    raise AssertionError(f"for 10 s without {folder}: {text}")


def filesystem(world: World, report: Report, host: Counted) -> None:
    """Q is roots from the start: the key is the list of roots, and a client without roots uses the first process."""
    folders = [world.root / "lists" / name for name in ("one", "two", "three", "four")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "note.txt").write_text(f"in {folder.name}")
    tool = "filesystem__list_allowed_directories"

    async def visit() -> None:
        peers = [Peer(folder.name, ("roots",), [folder]) for folder in folders[:3]]
        alike, without = Peer("alike", ("roots", "sampling"), [folders[0]]), Peer("without")
        async with AsyncExitStack() as stack:
            *three, same, plain = await enter(stack, host.url, *peers, alike, without)
            with report.check("sharing: filesystem, three lists of roots: each client has its own folder and no other"):
                said = await asyncio.gather(*(shows(client, tool, folder) for client, folder in zip(three, folders, strict=False)))
                for folder, text in zip(folders, said, strict=False):
                    others = [each.name for each in folders if each != folder and str(each) in text]
                    expect(not others, f"{folder.name}: {text}")
                _, foreign = await call(three[0], "filesystem__read_text_file", {"path": str(folders[1] / "note.txt")})
                expect("in two" not in foreign, foreign)
            with report.check("sharing: filesystem, a client without roots: the folder of the config"):
                fine, text = await call(plain, tool)
                expect(fine and str(world.files) in text and "/lists/" not in text, text)
            with report.check("sharing: filesystem, the same list again: no new process, whatever else a client declares"):
                await shows(same, tool, folders[0])
                expect(census.look()["filesystem"] <= 4, f"{census.look()['filesystem']} processes: 3 lists, and the start's")
            with report.check("sharing: filesystem, roots that change: the new folder, and the others keep theirs"):
                peers[2].roots = [folders[3]]
                await three[2].send_roots_list_changed()
                text = await shows(three[2], tool, folders[3])
                expect(str(folders[2]) not in text, text)
                text = await shows(three[0], tool, folders[0])
                expect(str(folders[3]) not in text, text)

    with Census({"filesystem": host.marks["filesystem"]}) as census:
        ran(visit())
    with report.check("sharing: filesystem: at most one process per list, and the one of the start"):
        # The client whose roots changed keeps its process if it is alone there, or moves to another one.
        census.one_each({"filesystem": 5})


def everything(world: World, report: Report, host: Counted, alias: str, sample: str, elicit: str | None) -> None:
    """Q grows with each question of a call: a client that can answer then has its own process, all others share one."""
    sampler, other = Peer("sampler", ("sampling",)), Peer("other", ("sampling",))
    form = Peer("form", ("elicitation",), content={"name": "form", "integer": 7})
    none = Peer("none")

    async def visit() -> None:
        async with AsyncExitStack() as stack:
            first, second, filler, plain = await enter(stack, host.url, sampler, other, form, none)
            for client in (first, second, filler, plain):
                await tools(client)
            with report.check(f"sharing: {alias}: a question of a call reaches its client, and only that one"):
                fine, text = await call(first, f"{alias}__{sample}", {"prompt": "from first", "maxTokens": 5})
                expect(fine and "sampled by sampler" in text, text)
                fine, text = await call(second, f"{alias}__{sample}", {"prompt": "from second", "maxTokens": 5})
                expect(fine and "sampled by other" in text, text)
                expect(len(sampler.asked) == len(other.asked) == 1, (sampler.asked, other.asked))
                expect("from first" in sampler.asked[0] and "from second" in other.asked[0], "crossed")
            if elicit is not None:
                with report.check(f"sharing: {alias}: so does a form"):
                    fine, text = await call(filler, f"{alias}__{elicit}")
                    expect(fine and "form" in text and len(form.asked) == 1, (text, form.asked))
            with report.check(f"sharing: {alias}: a client without the capability gets its call's answer, and no client is asked for it"):
                async with asyncio.timeout(30):
                    fine, text = await call(plain, f"{alias}__{sample}", {"prompt": "from none", "maxTokens": 5})
                expect("sampled by" not in text and not none.asked, text)
                heard = [each for peer in (sampler, other, form) for each in peer.asked if "from none" in each]
                expect(not fine and not heard, heard or text)
                fine, text = await call(plain, f"{alias}__echo", {"message": "none"})
                expect(fine and text.startswith("Echo: none"), text)

    able = 2 if elicit is None else 3
    with Census({alias: host.marks[alias]}) as census:
        ran(visit())
    with report.check(f"sharing: {alias}: at most one process for each of {able} clients that can answer, and one for the others"):
        census.one_each({alias: 1 + able})


def context7(world: World, report: Report, host: Counted) -> None:
    """It asks, and answers the call without waiting: the question goes to its caller if that is alone there, else to no client."""
    asker = Peer("asker", ("elicitation",), action="decline")
    busy = Peer("busy", ("elicitation",), action="decline")
    tool = "context7__resolve-library-id"

    async def visit() -> None:
        async with AsyncExitStack() as stack:
            one, two = await enter(stack, host.url, asker, busy)
            for round in (1, 2):
                Library.held.clear()
                Library.came.clear()
                slow = asyncio.create_task(call(two, tool, {"query": "q", "libraryName": f"slow-{round}"}))
                await asyncio.to_thread(Library.came.wait, 30)
                before = len(asker.asked)
                _, text = await call(one, tool, {"query": "q", "libraryName": f"ask-{round}"})
                await asyncio.sleep(1)  # the server does not wait for this question, so it may come after the answer
                Library.held.set()
                _, held = await slow
                with report.check(f"sharing: context7, question {round}: both calls have their own answer"):
                    expect(f"ask-{round}" in text and f"slow-{round}" in held, (text, held))
                with report.check(f"sharing: context7, question {round}: it is not put to the client whose call is in flight"):
                    expect(not busy.asked, busy.asked)
                if round == 2:
                    # By now the host knows that it asks, so the client has its own process.
                    with report.check("sharing: context7, question 2: it is put to the caller, once"):
                        expect(len(asker.asked) == before + 1, asker.asked)

    with Census({"context7": host.marks["context7"]}) as census:
        ran(visit())
    with report.check("sharing: context7: at most one process for each client that can answer, and one for the others"):
        census.one_each({"context7": 3})


def offline(world: World, report: Report) -> None:
    """context7 without a network: it lists, its calls are answered, and clients that cannot be asked share one process."""
    script = str(world.npm / "node_modules" / "@upstash" / "context7-mcp" / "dist" / "index.js")
    closed, more = ["unshare", "--user", "--map-root-user", "--net"], {}
    if subprocess.run([*closed, "true"], capture_output=True, timeout=20, check=False).returncode != 0:
        # If no network namespace can be made, its requests go to a port where nothing listens.
        closed, more = [], {"CONTEXT7_API_URL": f"http://127.0.0.1:{free_port()}"}
    entry = spawn([*closed, "node", script]) | {"env": {"OTEL_SDK_DISABLED": "true", **more}}
    host = Counted(world, "offline", {"context7": entry})
    sets = [tuple(itertools.compress(ABLE, bits)) for bits in itertools.product((False, True), repeat=len(ABLE))]
    peers = [Peer("+".join(can) or "none", can, [world.files]) for can in sets]
    said: list[tuple[str, bool, str]] = []

    async def used(peer: Peer, everybody: asyncio.Barrier) -> None:
        async with peer.client(host.url) as client:
            names = await tools(client)
            expect("context7__resolve-library-id" in names, (peer.can, names))
            await everybody.wait()
            fine, text = await call(client, "context7__resolve-library-id", {"query": "q", "libraryName": "react"})
            said.append((peer.name, fine, text))
            await everybody.wait()

    async def visit() -> None:
        everybody = asyncio.Barrier(len(sets))
        async with asyncio.TaskGroup() as group:
            for peer in peers:
                group.create_task(used(peer, everybody))

    with report.check("sharing: context7 without a network: it is connected, and all eight sets of capabilities list"):
        host.wait_connected()
        with Census(host.marks) as census:
            ran(visit())
    with report.check("sharing: context7 without a network: each call is answered that nothing was found, and no client was asked"):
        expect(len(said) == len(sets) and all(text and "/react" not in text for _, _, text in said), said)
        expect(not any(peer.asked for peer in peers), [(peer.name, peer.asked) for peer in peers])
    with report.check("sharing: context7 without a network: one process for all of them"):
        census.one_each()
    with report.check("sharing: context7 without a network: none is left"):
        host.over()


def couchbase(world: World, report: Report, host: Counted) -> None:
    """It asks for confirmation if elicitation is declared, else it acts without asking: each client answers only for itself."""
    tool = "couchbase__get_server_configuration_status"
    yes = Peer("yes", ("elicitation",), content={"confirm": True})
    no = Peer("no", ("elicitation",), action="decline")
    none = Peer("none")

    async def visit() -> None:
        async with AsyncExitStack() as stack:
            accepts, declines, plain = await enter(stack, host.url, yes, no, none)
            with report.check("sharing: couchbase, a client that confirms: asked once, and the work is done"):
                fine, text = await call(accepts, tool)
                expect(fine and "read_only_mode" in text and len(yes.asked) == 1, (text, yes.asked))
            with report.check("sharing: couchbase, a client that declines: asked once, and the work is not done"):
                fine, text = await call(declines, tool)
                expect(not fine and "read_only_mode" not in text and len(no.asked) == 1, (text, no.asked))
            with report.check("sharing: couchbase, a client that cannot be asked: its call is answered, and no other client is asked"):
                _, text = await call(plain, tool)
                expect(text and len(yes.asked) == 1 and len(no.asked) == 1, (text, yes.asked, no.asked))

    with Census({"couchbase": host.marks["couchbase"]}) as census:
        ran(visit())
    with report.check("sharing: couchbase: at most one process for each of 2 clients that can confirm, and one for the others"):
        census.one_each({"couchbase": 3})


def brittle(world: World, report: Report) -> None:
    """It asks at its start and dies if refused. The next start no longer declares what it is known to ask."""
    book = world.root / "brittle.book"
    host = Counted(world, "brittle", {"brittle": spawn(["node", str(world.node_scripts / "brittle.mjs"), str(book)])})

    async def visit() -> str:
        async with AsyncExitStack() as stack:
            for client in await enter(stack, host.url, Peer("none"), Peer("roots", ("roots",))):
                fine, text = await call(client, "brittle__pid")
                expect(fine and text.isdigit(), text)
            return text

    with report.check("sharing: a server that dies of a refusal: its second start succeeds, and it stays"):
        until(f"connected: {host.states()}", 30, lambda: host.states().get("brittle") == "connected")
        ran(visit())
        starts = len(book.read_text().splitlines())
        expect(starts <= 2, f"started {starts} times")
    with report.check("sharing: a server that dies of a refusal: none is left"):
        host.over()


def checks(world: World, report: Report) -> None:
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Library)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    modules = world.npm / "node_modules"
    tool = "get_server_configuration_status"
    host = Counted(world, "sharing", {
        "filesystem": spawn(["node", world.package("server-filesystem", "dist/index.js"), str(world.files)]),
        "everything": spawn(["node", world.package("server-everything", "dist/index.js"), "stdio"]),
        "everything-old": spawn(["node", str(modules / "everything-old" / "dist" / "index.js")]),
        # Of its two eras, only the older one asks.
        "context7": spawn(["node", str(modules / "@upstash" / "context7-mcp" / "dist" / "index.js")])
        | {"era": "legacy", "env": {"CONTEXT7_API_URL": f"http://127.0.0.1:{service.server_address[1]}", "OTEL_SDK_DISABLED": "true"}},
        "couchbase": spawn([str(world.npm.parent / "couchbase" / "bin" / "couchbase-mcp-server"), "--confirmation-required-tools", tool]),
    })  # fmt: skip
    try:
        with report.check("sharing: servers that ask are connected, one process each"):
            host.wait_connected()
            host.back_to_one(5)
        filesystem(world, report, host)
        everything(world, report, host, "everything", "trigger-sampling-request", "trigger-elicitation-request")
        everything(world, report, host, "everything-old", "sampleLLM", None)
        context7(world, report, host)
        couchbase(world, report, host)
        with report.check("sharing: one process per server after the last client"):
            host.back_to_one(LEFT)
    finally:
        service.shutdown()
        with report.check("sharing: none is left"):
            host.over()
    offline(world, report)
    brittle(world, report)
