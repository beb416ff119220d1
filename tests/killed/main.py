"""Each check: a state, a command that changes it, and what must hold after it was killed at any point."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What a change of a state file consists of.
CALLS = ["openat", "flock", "write", "fchmod", "fsync", "rename", "mkdir", "unlink"]
LIMIT = 5
TOGETHER = 8


class World:
    """A home folder with a config, a server and the state of earlier commands."""

    def __init__(self, binary, folder, host, names, **tools):
        self.binary, self.folder = binary, folder
        self.before = folder.with_name(folder.name + "-before")
        folder.mkdir()
        # An edit of a file with another name waits a second, to see whether its client writes over it.
        self.tools, self.ran, self.config = folder / "tools", folder / "ran", folder / "mcp-host.json"
        self.tools.write_text("\n".join(names))
        self.ran.write_text("")
        entry = {"command": sys.executable, "args": [str(HERE / "server.py"), str(self.tools), str(self.ran)]}
        if tools:
            entry["tools"] = tools
        self.config.write_text(json.dumps({"mcpServers": {"it": entry}, "host": host}))

    @property
    def state(self):
        return self.folder / ".local/state/mcp-host"

    def command(self, *words):
        return [self.binary, *words, "--config", str(self.config)]

    def environment(self):
        return {"HOME": str(self.folder), "PATH": os.environ["PATH"]}

    def start(self, *words):
        return subprocess.Popen(
            self.command(*words), cwd=self.folder, env=self.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def run(self, *words):
        """Runs a command; returns its exit code and what it said."""
        child = self.start(*words)
        said = child.communicate(timeout=60)[0]
        return child.returncode, said

    def must(self, code, *words):
        got, said = self.run(*words)
        if got != code:
            raise Fault(f"`{' '.join(words)}` ended with {got}, not {code}: {said.strip()}")
        return said

    def keep(self):
        """Takes the world as it is for the state before the change."""
        shutil.copytree(self.folder, self.before)

    def reset(self):
        shutil.rmtree(self.folder)
        shutil.copytree(self.before, self.folder)

    def killed(self, call, number, paths, *words):
        """Runs a command that is killed before its `number`-th `call` on one of the paths, in which PID is its process
        id. Returns whether it came to that, and the exit code."""
        log = self.folder.with_name("trace")
        log.unlink(missing_ok=True)
        # The program has the id of the shell, since the tracer is not its parent (`-D`).
        watched = " ".join(f'-P"{path}"' for path in paths).replace("PID", "$$")
        trace = f"exec strace -D -f -qq -o {log} -e trace={','.join(CALLS)} {watched} "
        trace += f"-e inject={call}:signal=SIGKILL:when={number} "
        child = subprocess.Popen(
            ["sh", "-c", trace + shlex.join(self.command(*words))], cwd=self.folder, env=self.environment(),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        code = child.wait(timeout=60)
        if code not in (0, -signal.SIGKILL):
            raise Fault(f"`{' '.join(words)}` ended with {code}")
        return code != 0

    def files(self):
        """Checks that each file of the state is whole."""
        for path in sorted(self.state.rglob("*.json")):
            try:
                json.loads(path.read_bytes())
            except ValueError as error:
                raise Fault(f"{path.relative_to(self.folder)} is not whole: {error}") from None


class Fault(Exception):
    pass


def every_point(world, paths, words, holds):
    """Kills a command before each of its system calls on these paths, one after the other."""
    points = {}
    for call in CALLS:
        while True:
            world.reset()
            number = points.get(call, 0) + 1
            if not world.killed(call, number, paths, *words):
                break
            try:
                world.files()
                holds()
            except Fault as fault:
                raise Fault(f"killed before {call} {number}: {fault}") from None
            points[call] = number
    if not {"write", "fsync", "rename"} <= points.keys():
        raise Fault(f"these are not the files that it writes: it was killed before {points} only")
    return f"{sum(points.values())} points"


def beside(path):
    """The paths that a change of a state file touches."""
    return [path, path.with_name(f".{path.name}.new"), path.with_suffix(".lock"), path.parent]


def approvals(binary, folder):
    """`first` is approved before, and `second` by the program that is killed."""
    world = World(binary, folder, {"approval": "ask"}, ["first", "second"])
    world.must(6, "call", "it__first")
    world.must(0, "approve", "it", "--tool", "first", "--yes")
    world.keep()

    def holds():
        world.must(0, "call", "it__first")
        code, said = world.run("call", "it__second")
        if code not in (0, 6):
            raise Fault(f"`call it__second` ended with {code}: {said.strip()}")
        world.must(0, "approve", "it", "--yes")
        world.must(0, "call", "it__second")

    return every_point(world, beside(pins_of(world)), ("approve", "it", "--yes"), holds)


def pins_of(world):
    """The one file of approvals."""
    pins = list((world.state / "pins").glob("*.json"))
    if len(pins) != 1:
        raise Fault(f"one file of approvals was expected: {pins}")
    return pins[0]


def sights(binary, folder):
    """A server is seen for the first time: what it lists then counts as approved, and what it lists later does not."""
    world = World(binary, folder, {"approval": "tofu"}, ["first"])
    world.keep()
    world.must(0, "tools")
    pins = pins_of(world)

    def holds():
        world.must(0, "call", "it__first")
        world.tools.write_text("first second")
        world.must(6, "call", "it__second")
        world.must(0, "call", "it__first")
        world.must(0, "approve", "it", "--yes")
        world.must(0, "call", "it__second")

    return every_point(world, beside(pins), ("tools",), holds)


def changes(binary, folder):
    """A server lists something new: it is not approved, whether the host has recorded it or not."""
    world = World(binary, folder, {"approval": "tofu"}, ["first"])
    world.must(0, "tools")
    world.tools.write_text("first second")
    world.keep()

    def holds():
        world.must(0, "call", "it__first")
        world.must(6, "call", "it__second")
        # What was approved before is approved as well after something else was listed in its place.
        world.tools.write_text("second")
        world.must(6, "call", "it__second")
        world.tools.write_text("first")
        world.must(0, "call", "it__first")

    return every_point(world, beside(pins_of(world)), ("tools",), holds)


def revoked(binary, folder):
    """The approval of one tool is taken back: it is approved as before, or not any more, and another stays approved."""
    world = World(binary, folder, {"approval": "ask"}, ["first", "second"])
    world.must(6, "call", "it__first")
    world.must(0, "approve", "it", "--yes")
    world.keep()
    revoke = ("approve", "it", "--revoke", "--tool", "first")

    def holds():
        world.must(0, "call", "it__second")
        code, said = world.run("call", "it__first")
        if code not in (0, 6):
            raise Fault(f"`call it__first` ended with {code}: {said.strip()}")
        world.must(0, *revoke)
        world.must(6, "call", "it__first")
        world.must(0, "call", "it__second")

    return every_point(world, beside(pins_of(world)), revoke, holds)


def locks(binary, folder):
    """The lock of a repository is written anew after its server has changed."""
    world = World(binary, folder, {}, ["first"])
    world.must(0, "lock")
    lock = world.folder / "mcp-host.lock"
    world.tools.write_text("first second")
    world.must(6, "check", "--locked")
    world.keep()

    def holds():
        code, said = world.run("check", "--locked")
        if code not in (0, 6):
            raise Fault(f"`check --locked` ended with {code}: {said.strip()}")
        world.must(0, "lock")
        world.must(0, "check", "--locked")

    return every_point(world, [lock, lock.with_name(".mcp-host.lock.PID")], ("lock",), holds)


def rates(binary, folder):
    """Of LIMIT calls a day some are made, one is killed, and then the rest. The killed one may count or not."""
    world = World(binary, folder, {}, ["first"], first={"rate": f"{LIMIT}/day"})
    for _ in range(LIMIT - 2):
        world.must(0, "call", "it__first")
    world.keep()

    def holds():
        for _ in range(LIMIT):
            if world.run("call", "it__first")[0] != 0:
                break
        ran = len(world.ran.read_text().split())
        if not LIMIT - 1 <= ran <= LIMIT + 1:
            raise Fault(f"{ran} calls of {LIMIT} a day ran")

    rates = world.state / "rates.json"
    return every_point(world, beside(rates), ("call", "it__first"), holds)


class Adder(World):
    """A world in which what follows `--` is not an option of ours."""

    def command(self, *words):
        if words[0] == "add":
            return [self.binary, *words, "--config", str(self.config), "--", "cat"]
        return super().command(*words)


def config_edit(binary, folder):
    """A world whose config is edited, its text before and after the edit, and the paths that an edit touches."""
    world = Adder(binary, folder, {}, ["first"])
    add = ("add", "new", "--no-check", "-e", "LEVEL=debug", "-t", "stdio")
    # The config with its comments and its layout is the user's.
    text = json.dumps(json.loads(world.config.read_text()), indent=4) + "\n// mine\n"
    world.config.write_text(text)
    backups = world.state / "backups"
    ours = [backups / f"{number:06}.{what}" for number in (1, 2) for what in ("before", "after")]
    paths = [path for file in [world.config, *ours] for path in (file, file.with_name(f".{file.name}.new"))]
    return world, add, [*paths, *beside(backups / "journal.json"), backups / "edit.lock"]


def back(world, before, after):
    """The config is as before an edit or as after it, and `undo` brings back what was before."""
    text = world.config.read_text()
    if text not in (before, after):
        raise Fault(f"the config is neither as before nor as after: {text!r}")
    world.must(0 if text == after else 2, "undo")
    if world.config.read_text() != before:
        raise Fault("`undo` did not bring back the config")


def added(binary, folder):
    """A server is added: the config is as before, or has it, and `undo` brings back what was there."""
    world, add, paths = config_edit(binary, folder)
    before = world.config.read_text()
    world.keep()
    world.must(0, *add)
    after = world.config.read_text()

    def holds():
        back(world, before, after)
        world.must(0, *add)
        if world.config.read_text() != after:
            raise Fault("`add` wrote something else")

    return every_point(world, paths, add, holds)


def undone(binary, folder):
    """An edit is taken back: the config is as before that or after it, and nothing else can be taken back by mistake."""
    world, add, paths = config_edit(binary, folder)
    before = world.config.read_text()
    world.must(0, *add)
    after = world.config.read_text()
    world.keep()

    return every_point(world, paths, ("undo",), lambda: back(world, before, after))


CURSOR = '{\n\t"mcpServers": {} // mine\n}\n'


def client_files(folder):
    """The files of two clients: JSON with a comment, and TOML with the line ends of Windows."""
    cursor, codex = folder / ".cursor/mcp.json", folder / ".codex/config.toml"
    for path, text in ((cursor, CURSOR), (codex, '# mine\r\nmodel = "x"\r\n')):
        path.parent.mkdir()
        path.write_bytes(text.encode())
    return [cursor, codex]


def edited(world, files, words):
    """A command edits files, and is killed at each point: each file is as before or as after, and `undo` takes back whatever
    was written of it."""

    def texts():
        return [path.read_bytes() for path in files]

    before = texts()
    world.keep()
    world.must(0, *words)
    after = texts()
    if before == after:
        raise Fault(f"`{' '.join(words)}` left all files as they were")

    def holds():
        now = texts()
        for path, *versions in zip(files, now, before, after):
            if versions[0] not in versions[1:]:
                raise Fault(f"{path.name} is neither as before nor as after: {versions[0]!r}")
        world.must(2 if now == before else 0, "undo")
        if texts() != before:
            raise Fault("`undo` did not bring back all files")
        world.must(0, *words)
        if texts() != after:
            raise Fault(f"`{' '.join(words)}` wrote something else")

    backups = world.state / "backups"
    numbers = ["", *(f"-{number}" for number in range(1, len(files)))]
    ours = [backups / f"000001{number}.{what}" for number in numbers for what in ("before", "after")]
    paths = [path for file in [*files, *ours] for path in (file, file.with_name(f".{file.name}.new"))]
    return every_point(world, [*paths, *beside(backups / "journal.json"), backups / "edit.lock"], words, holds)


def linked(binary, folder):
    """Two clients are linked, which changes the config, too."""
    world = World(binary, folder, {}, ["first"])
    return edited(world, [world.config, *client_files(folder)], ("link", "cursor", "codex", "--yes"))


def unlinked(binary, folder):
    """The links are taken out again."""
    world = World(binary, folder, {}, ["first"])
    files = client_files(folder)
    world.must(0, "link", "cursor", "codex", "--yes")
    # As if that was long ago: `undo` takes back the last edit.
    shutil.rmtree(world.state / "backups")
    return edited(world, files, ("unlink", "cursor", "codex", "--yes"))


def imported(binary, folder):
    """A server of a client is taken over."""
    world = World(binary, folder, {}, ["first"])
    cursor, _ = client_files(folder)
    cursor.write_text(CURSOR.replace("{}", '{ "theirs": { "command": "cat" } }'))
    return edited(world, [world.config], ("import", "cursor", "--yes"))


def migrated(binary, folder):
    """A server of a client is started once, taken over, and taken out of the client's file, which leads here then."""
    world = World(binary, folder, {}, ["first"])
    cursor, _ = client_files(folder)
    entry = json.loads(world.config.read_text())["mcpServers"]["it"]
    cursor.write_text(CURSOR.replace("{}", json.dumps({"theirs": {**entry, "env": {"A": "b"}}})))
    return edited(world, [world.config, cursor], ("migrate", "cursor", "--yes"))


def of_entry(words, **more):
    """A check: a command edits the entry of a server."""

    def check(binary, folder):
        world = World(binary, folder, {}, ["first"])
        config = json.loads(world.config.read_text())
        config["mcpServers"]["it"].update(more)
        world.config.write_text(json.dumps(config, indent=4) + "\n// mine\n")
        return edited(world, [world.config], words)

    check.__name__ = words[0]
    return check


def together(binary, folder):
    """Several programs approve tools of one server at once. Meanwhile others are killed while they do, and hosts record that
    the server lists one tool more or less."""
    names = [f"tool{number}" for number in range(TOGETHER)]
    world = World(binary, folder, {"approval": "ask"}, [*names, "unlucky"])
    world.must(6, "call", "it__tool0")
    chance = random.Random(7)
    victims, hosts, rounds = 0, 0, 3
    world.keep()
    for _ in range(rounds):
        world.reset()
        works = {name: world.start("approve", "it", "--tool", name, "--yes") for name in names}
        while any(work.poll() is None for work in works.values()):
            hosts += 1
            listed = world.tools.with_name("listed")
            listed.write_text("\n".join([*names, "unlucky", *(["fickle"] if hosts % 2 else [])]))
            listed.rename(world.tools)
            host = world.start("tools")
            victim = world.start("approve", "it", "--tool", "unlucky", "--yes")
            time.sleep(chance.uniform(0, 0.4))
            victim.kill()
            victim.communicate()
            victims += 1
            said = host.communicate()[0]
            if host.returncode != 0:
                raise Fault(f"`tools` ended with {host.returncode}: {said.strip()}")
        for name, work in works.items():
            said = work.communicate()[0]
            if work.returncode != 0:
                raise Fault(f"`approve --tool {name}` ended with {work.returncode}: {said.strip()}")
        world.files()
        for name in names:
            world.must(0, "call", f"it__{name}")
    return f"{rounds * TOGETHER} approvals at once, {victims} kills, {hosts} hosts beside them"


def main(binary, *more):
    checks = {
        "approvals survive a kill at each point": approvals,
        "the first sight of a server survives a kill at each point": sights,
        "a change of a server survives a kill at each point": changes,
        "an approval that is taken back survives a kill at each point": revoked,
        "a lock survives a kill at each point": locks,
        "counts of a day survive a kill at each point": rates,
        "a config survives a kill at each point of `add`": added,
        "a config survives a kill at each point of `undo`": undone,
        "a config survives a kill at each point of `remove`": of_entry(("remove", "it")),
        "a config survives a kill at each point of `rename`": of_entry(("rename", "it", "that")),
        "a config survives a kill at each point of `disable`": of_entry(("disable", "it")),
        "a config survives a kill at each point of `enable`": of_entry(("enable", "it"), disabled=True),
        "a config survives a kill at each point of `import`": imported,
        "files of clients survive a kill at each point of `link`": linked,
        "hosts lose no approval of each other": together,
    }
    if "--whole" in more:
        checks["files of clients survive a kill at each point of `unlink`"] = unlinked
        checks["files of clients survive a kill at each point of `migrate`"] = migrated
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, check in checks.items():
            begun = time.monotonic()
            try:
                told, word = check(binary, Path(folder).resolve() / check.__name__), "ok    "
            except (Fault, OSError, subprocess.TimeoutExpired) as fault:
                told, word = fault, "FAILED"
                failed += 1
            print(f"{word} {name}: {told}, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
