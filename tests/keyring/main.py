"""The cases, each with its own home, session, and keyring. `run` runs this."""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from world import World, until

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
IN_KEYRING = "a file, its key in the keyring"
IN_FILE = "an encrypted file"
IN_MEMORY = "memory, until the daemon ends"


def signed_in(world: World) -> dict[str, bytes]:
    """Sets up a machine where a user has signed in and the host has ended; returns what is stored then."""
    world.start_bus()
    world.start_keyring(unlocked=True)
    host = world.start_host()
    host.line("mcp-host login a")
    assert host.login() == IN_KEYRING
    host.line("✓ a")
    host.stop()
    files = world.files()
    assert files and all(name.startswith("keyring/") for name in files), files.keys()
    return files


def same(kept: dict[str, bytes], world: World) -> None:
    assert world.files() == kept, f"the stored files have changed: {kept.keys()} {world.files().keys()}"


def restarted(world: World, files: dict[str, bytes], **vars: str) -> None:
    """Checks that the login is there without another sign-in."""
    given = world.site.given
    host = world.start_host(**vars)
    host.line("✓ a")
    assert (host.kept(), world.site.given) == ("keyring", given)
    host.stop()
    same(files, world)


def store(world: World) -> None:
    """store: one key in the keyring, tokens of 4 KB encrypted beside it, nothing in the clear"""
    signed_in(world)
    key = world.in_keyring()
    assert re.fullmatch(r"1:[A-Za-z0-9+/]{43}", key), "one key, and nothing else"
    assert not world.in_the_clear()
    assert not any(key.encode() in path.read_bytes() for path in (world.home / "state").rglob("*") if path.is_file())


def restart(world: World) -> None:
    """restart: another process reads the login, without another sign-in"""
    restarted(world, signed_in(world))


def reboot(world: World) -> None:
    """restart of all: session and keyring start again, are unlocked by password, and the login is there"""
    files = signed_in(world)
    world.stop_keyring()
    world.stop_bus()
    world.start_bus()
    world.start_keyring(unlocked=True)
    restarted(world, files)


def lock(world: World) -> dict[str, bytes]:
    files = signed_in(world)
    world.stop_keyring()
    world.start_keyring(unlocked=False)
    return files


def locked(world: World) -> None:
    """locked: the server is unauthorized and says why, nothing is removed; unlocked, it comes back by itself"""
    files = lock(world)
    host = world.start_host()
    host.line("the keyring is locked")
    state, told = host.state()
    assert state == "unauthorized" and "the keyring is locked" in told, told
    same(files, world)
    given = world.site.given
    world.unlock()
    host.line("✓ a", 90)
    assert host.call()
    assert (host.kept(), world.site.given) == ("keyring", given)
    host.stop()
    same(files, world)


def locked_login(world: World) -> None:
    """locked, signed in again: the token is used from memory, the login in the keyring stays unchanged"""
    files = lock(world)
    host = world.start_host(MCP_HOST_SECRET_KEY=KEY)
    host.line("the keyring is locked")
    assert host.login() == IN_MEMORY
    host.line("✓ a")
    host.line("is lost when this program ends")
    assert host.kept() == "memory"
    host.stop()
    same(files, world)
    world.unlock()
    restarted(world, files)


def absent(world: World) -> None:
    """absent (no bus): a login is held in memory, with one warning that says what to do"""
    host = world.start_host()
    host.line("mcp-host login a")
    assert host.login() == IN_MEMORY
    host.line("✓ a")
    warnings = [line for line in host.lines if "in memory only" in line]
    assert len(warnings) == 1 and "MCP_HOST_SECRET_KEY" in warnings[0], host.lines
    host.stop()
    assert not world.files() and not world.in_the_clear()
    world.start_host().line("mcp-host login a")


def no_service(world: World) -> None:
    """absent (a bus without a keyring): with the user's own key, an encrypted file, which a restart reads"""
    world.start_bus()
    host = world.start_host(MCP_HOST_SECRET_KEY=KEY)
    host.line("mcp-host login a")
    assert host.login() == IN_FILE
    host.line("✓ a")
    host.stop()
    files = world.files()
    assert files and all(name.startswith("file/") for name in files) and not world.in_the_clear()
    host = world.start_host(MCP_HOST_SECRET_KEY=KEY)
    host.line("✓ a")
    assert host.kept() == "file"
    host.stop()
    same(files, world)


def gone(world: World) -> None:
    """gone: the host reports a login of a keyring that is gone, and the next login goes to the file"""
    files = signed_in(world)
    world.stop_keyring()
    world.stop_bus()
    host = world.start_host(MCP_HOST_SECRET_KEY=KEY)
    host.line("there is no keyring")
    same(files, world)
    assert host.login() == IN_FILE
    host.line("✓ a")
    host.stop()
    assert all(name.startswith("file/") for name in world.files())


def hanging(world: World) -> None:
    """hanging: the host still answers, the server says why, the host ends quickly; awake, the server comes back by itself"""
    files = signed_in(world)
    world.ring.send_signal(signal.SIGSTOP)
    before = time.monotonic()
    host = world.start_host()
    while not any("did not answer within" in line for line in host.lines):
        assert host.healthy() and time.monotonic() - before < 30, host.lines
        time.sleep(0.1)
    assert host.state()[0] == "unauthorized"
    took = host.stop()
    assert took < 10, f"{took:.1f} s"
    host = world.start_host()
    host.line("did not answer within")
    world.ring.send_signal(signal.SIGCONT)
    given = world.site.given
    host.line("✓ a", 90)
    assert host.call()
    assert world.site.given == given
    host.stop()
    same(files, world)


def hanging_bus(world: World) -> None:
    """hanging (the bus itself): no call on it returns, and everything else continues"""
    files = signed_in(world)
    world.bus.send_signal(signal.SIGSTOP)
    host = world.start_host()
    host.line("did not answer within 2s")
    assert host.healthy() and host.state()[0] == "unauthorized"
    took = host.stop()
    assert took < 10, f"{took:.1f} s"
    world.bus.send_signal(signal.SIGCONT)
    restarted(world, files)


def hanging_login(world: World) -> None:
    """hanging at the first login: it ends within the ten seconds, the token is held in memory, and one warning says why"""
    world.start_bus()
    world.start_keyring(unlocked=True)
    host = world.start_host()
    host.line("mcp-host login a")
    world.ring.send_signal(signal.SIGSTOP)
    before = time.monotonic()
    assert host.login() == IN_MEMORY
    took = time.monotonic() - before
    assert took < 25, f"{took:.1f} s"
    host.line("✓ a")
    warnings = [line for line in host.lines if "in memory only" in line]
    assert len(warnings) == 1 and "did not answer" in warnings[0], host.lines
    host.stop()
    assert not world.in_the_clear()


def lost(world: World) -> None:
    """lost: the host reports a key that was removed from the keyring; a login makes another one"""
    signed_in(world)
    clear = ["secret-tool", "clear", "service", "mcp-host", "username", "file-key"]
    subprocess.run(clear, env=world.vars(), check=True, timeout=30)
    host = world.start_host()
    host.line("not in the keyring any more")
    assert host.login() == IN_KEYRING
    host.line("✓ a")
    host.stop()
    restarted(world, world.files())


def named(world: World) -> dict[str, bytes]:
    """Sets up a machine with a config that names an entry, stored by the command that `check` printed."""
    world.name_an_entry()
    world.start_bus()
    world.start_keyring(unlocked=True)
    code, said = world.check()
    assert code == 2, said
    command = re.search('the keyring has no entry "api" for us; put it there: (secret-tool .*)', said).group(1)
    subprocess.run(shlex.split(command), env=world.vars(), input=b"a-canary", check=True, timeout=30)
    return world.files()


def config(world: World) -> None:
    """config: a header is an entry of the keyring, stored by the command that `check` prints; nothing in the clear"""
    named(world)
    code, said = world.check()
    assert (code, "canary" in said) == (0, False), said
    host = world.start_host(RUST_LOG="trace")
    host.line("✓ a")
    assert host.call()
    host.stop()
    assert not world.in_the_clear() and not any("canary" in line for line in host.lines), host.lines


def config_own_key(world: World) -> None:
    """config: no config can read the key that encrypts tokens"""
    signed_in(world)
    world.name_an_entry()
    text = (world.home / "mcp.json").read_text()
    (world.home / "mcp.json").write_text(text.replace("keyring:api", "keyring:file-key"))
    code, said = world.check()
    assert code == 2 and 'no entry "file-key"' in said, said


def config_locked(world: World) -> None:
    """config, locked: its servers are failed and say why; unlocked and reloaded, they connect"""
    named(world)
    world.stop_keyring()
    world.start_keyring(unlocked=False)
    host = world.start_host()
    host.line('"api" of the keyring cannot be read: the keyring is locked')
    assert host.state()[0] == "failed", host.state()
    world.unlock()
    host.process.send_signal(signal.SIGHUP)
    host.line("✓ a")
    assert host.call()
    host.stop()


def config_absent(world: World) -> None:
    """config, absent: without a keyring, servers that name it cannot start, and say why"""
    world.name_an_entry()
    code, said = world.check()
    assert code == 2 and said.count("there is no keyring: no D-Bus session") == 2, said


def config_hanging(world: World) -> None:
    """config, hanging: the host waits once for a keyring that does not answer, ten seconds at most"""
    named(world)
    world.ring.send_signal(signal.SIGSTOP)
    before = time.monotonic()
    code, said = world.check()
    took = time.monotonic() - before
    assert code == 2 and said.count("did not answer within") == 2 and took < 14, f"{took:.1f} s: {said}"


def added(world: World) -> None:
    """added: `add --secret` asks without echo, keeps the value in the keyring, and writes a reference to it"""
    world.start_bus()
    world.start_keyring(unlocked=True)
    world.site.good.add("a-canary")
    words = ["add", "b", f"{world.site.url}/mcp", "--secret", "Authorization", "--config", str(world.home / "mcp.json")]
    code, said = world.types([world.binary, *words], "Authorization:", "Bearer a-canary")
    assert code == 0 and "added b: 1 tool" in said and "canary" not in said, said
    text = (world.home / "mcp.json").read_text()
    assert "${keyring:b/Authorization}" in text and not world.in_the_clear(), text
    look = ["secret-tool", "lookup", "service", "mcp-host-config", "username", "b/Authorization"]
    kept = subprocess.run(look, env=world.vars(), capture_output=True, text=True, timeout=30).stdout
    assert kept == "Bearer a-canary", "the entry of the keyring"


def added_absent(world: World) -> None:
    """added, absent: without a keyring nothing is written, and the error says what else would do"""
    before = (world.home / "mcp.json").read_text()
    words = ["add", "b", f"{world.site.url}/mcp", "--secret", "Authorization", "--config", str(world.home / "mcp.json")]
    code, said = world.types([world.binary, *words], "Authorization:", "Bearer a-canary")
    assert code == 1 and "the keyring cannot keep Authorization" in said and "${env:NAME}" in said, said
    assert "canary" not in said and (world.home / "mcp.json").read_text() == before


CASES = [store, restart, reboot, locked, locked_login, absent, no_service, gone, hanging, hanging_bus, hanging_login,
         lost, config, config_own_key, config_locked, config_absent, config_hanging, added,
         added_absent]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    passed = failed = 0
    for case in CASES:
        name, _, about = case.__doc__.partition(":")
        if options.only and not any(word in case.__doc__ for word in options.only):
            continue
        before = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="mcp-host-keyring-") as home:
            world = World(options.binary, Path(home))
            try:
                case(world)
                passed += 1
                print(f"ok      {time.monotonic() - before:4.0f} s  {name}:{about}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAILED  {time.monotonic() - before:4.0f} s  {name}:{about}", flush=True)
                where = traceback.extract_tb(error.__traceback__)
                line = next((each for each in where if each.filename.endswith("main.py") and each.name == case.__name__), where[-1])
                print(f"    line {line.lineno}: {line.line}\n    {type(error).__name__}: {error}", flush=True)
                if world.host:
                    print("\n".join(f"    | {line}" for line in world.host.lines), flush=True)
            finally:
                world.close()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
