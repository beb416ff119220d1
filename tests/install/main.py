"""A registry of MCP servers on loopback, real packages, and small packages whose archives change."""

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zipfile
from pathlib import Path

# Servers that start without a login, each with the arguments that it needs.
SERVERS = {
    "npm": [
        ("@modelcontextprotocol/server-filesystem", "2026.8.31", ["{folder}"]),
        ("@modelcontextprotocol/server-memory", "2026.8.31", []),
        ("@modelcontextprotocol/server-everything", "2026.8.31", ["stdio"]),
    ],
    "pypi": [
        ("mcp-server-time", "2026.10.19", []),
        ("mcp-server-fetch", "2026.10.24", []),
        ("mcp-server-git", "2026.10.19", []),
    ],
}
# A server in one file: enough to be started once.
NODE = """#!/usr/bin/env node
const answers = {
  initialize: { protocolVersion: "2025-06-18", capabilities: { tools: {} }, serverInfo: { name: "notes", version: "1" } },
  "tools/list": { tools: [{ name: "note", inputSchema: { type: "object" } }] },
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method } = JSON.parse(line);
  if (id === undefined) return;
  const result = answers[method];
  const rest = result ? { result } : { error: { code: -32601, message: "unknown" } };
  console.log(JSON.stringify({ jsonrpc: "2.0", id, ...rest }));
});
"""
PYTHON = """import json, sys
ANSWERS = {
    "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}},
    "tools/list": {"tools": [{"name": "note", "inputSchema": {"type": "object"}}]},
}
def main():
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" not in asked:
            continue
        result = ANSWERS.get(asked["method"])
        rest = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **rest}), flush=True)
"""
OWN = {"npm": "mcp-notes-of-the-test", "pypi": "mcp-notes-of-the-test"}
# Packages that run a program of their own while they are installed: a script of npm, and a build from source.
BUILT = {"npm": "mcp-built-of-the-test", "pypi": "mcp-built-of-the-test"}
# A build backend in the archive itself, so that nothing else is fetched.
BACKEND = """import os, zipfile
def build_wheel(folder, settings=None, metadata=None):
    open(os.path.join(os.environ["HOME"], "built-pypi"), "a").write("built\\n")
    name = "mcp_built_of_the_test-1.0.0"
    files = {
        "built_of_the_test.py": open("built_of_the_test.py").read(),
        f"{name}.dist-info/METADATA": "Metadata-Version: 2.1\\nName: mcp-built-of-the-test\\nVersion: 1.0.0\\n",
        f"{name}.dist-info/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        f"{name}.dist-info/entry_points.txt": "[console_scripts]\\nmcp-built-of-the-test = built_of_the_test:main\\n",
    }
    record = "".join(f"{file},,\\n" for file in [*files, f"{name}.dist-info/RECORD"])
    with zipfile.ZipFile(os.path.join(folder, f"{name}-py3-none-any.whl"), "w") as archive:
        for file, text in {**files, f"{name}.dist-info/RECORD": record}.items():
            archive.writestr(file, text)
    return f"{name}-py3-none-any.whl"
"""


class Fault(Exception):
    pass


def short(name):
    return name.rsplit("/", 1)[-1]


def packed(files):
    """An archive of these files."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text.encode()), 0o755
            archive.addfile(info, io.BytesIO(text.encode()))
    # Without the time, so that it is the same each time.
    return gzip.compress(data.getvalue(), mtime=0)


def tarball(note):
    """A package of npm."""
    manifest = json.dumps({"name": OWN["npm"], "version": "1.0.0", "bin": "cli.js"})
    return packed({"package/package.json": manifest, "package/cli.js": NODE + note})


def with_script():
    """A package of npm with an install script."""
    script = "echo ran >> \"$HOME/built-npm\"; echo '// built' > built.js"
    manifest = {"name": BUILT["npm"], "version": "1.0.0", "bin": "cli.js", "scripts": {"postinstall": script}}
    return packed({"package/package.json": json.dumps(manifest), "package/cli.js": NODE})


def source():
    """A package of PyPI that has no wheel."""
    folder = "mcp_built_of_the_test-1.0.0"
    return packed({
        f"{folder}/PKG-INFO": f"Metadata-Version: 2.1\nName: {BUILT['pypi']}\nVersion: 1.0.0\n",
        f"{folder}/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        f'[project]\nname = "{BUILT["pypi"]}"\nversion = "1.0.0"\n',
        f"{folder}/backend.py": BACKEND,
        f"{folder}/built_of_the_test.py": PYTHON,
    })  # fmt: skip


def wheel(note):
    """A package of PyPI."""
    about = "mcp_notes_of_the_test-1.0.0.dist-info"
    files = {
        "notes_of_the_test.py": PYTHON + note,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {OWN['pypi']}\nVersion: 1.0.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{OWN['pypi']} = notes_of_the_test:main\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return data.getvalue()


class Site:
    """The registry of MCP servers, and npm and PyPI for the small packages."""

    def __init__(self):
        self.note = ""
        # What the indexes say of the archives, as they were in the beginning.
        self.said = {"npm": tarball(""), "pypi": wheel("")}
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body, kind = site.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path):
        if path.startswith("/v0.1/servers/"):
            for kind, servers in SERVERS.items():
                for name, version, args in [*servers, (OWN[kind], "1.0.0", []), (BUILT[kind], "1.0.0", [])]:
                    if path == f"/v0.1/servers/io.example.{kind}%2F{short(name)}/versions/latest":
                        return self.entry(kind, name, version, args), "application/json"
        if path == f"/npm/{OWN['npm']}":
            return self.of_npm(OWN["npm"], "notes.tgz", self.said["npm"])
        if path == f"/npm/{BUILT['npm']}":
            return self.of_npm(BUILT["npm"], "built.tgz", with_script(), hasInstallScript=True)
        if path == "/npm/notes.tgz":
            return tarball(self.note), "application/octet-stream"
        if path == "/npm/built.tgz":
            return with_script(), "application/octet-stream"
        if path == f"/pypi/{BUILT['pypi']}/":
            link = "mcp_built_of_the_test-1.0.0.tar.gz"
            return f'<a href="/pypi/{link}#sha256={hashlib.sha256(source()).hexdigest()}">{link}</a>'.encode(), "text/html"
        if path == "/pypi/mcp_built_of_the_test-1.0.0.tar.gz":
            return source(), "application/octet-stream"
        if path == f"/pypi/{OWN['pypi']}/":
            # Without a hash, pip would take what comes.
            link = "mcp_notes_of_the_test-1.0.0-py3-none-any.whl"
            return f'<a href="/pypi/{link}#sha256={hashlib.sha256(wheel(self.note)).hexdigest()}">{link}</a>'.encode(), "text/html"
        if path.endswith(".whl"):
            return wheel(self.note), "application/octet-stream"
        return None, "text/plain"

    def of_npm(self, name, file, archive, **more):
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
        dist = {"tarball": f"{self.url}/npm/{file}", "integrity": integrity}
        version = {"name": name, "version": "1.0.0", "bin": {name: "cli.js"}, "dist": dist, **more}
        about = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        return json.dumps(about).encode(), "application/json"

    def entry(self, kind, name, version, args):
        package = {
            "registryType": kind, "identifier": name, "version": version, "transport": {"type": "stdio"},
            "packageArguments": [{"type": "positional", "value": word.format(folder=tempfile.gettempdir())} for word in args],
        }  # fmt: skip
        server = {"name": f"io.example.{kind}/{short(name)}", "description": "A server.", "version": version}
        return json.dumps({"server": {**server, "packages": [package]}}).encode()


class Home:
    """A home directory with a config that names the registry."""

    def __init__(self, binary, folder, site, **more):
        self.binary, self.folder, self.more = binary, folder, more
        self.config = folder / ".config/mcp-host/config.json"
        self.config.parent.mkdir(parents=True)
        self.config.write_text(json.dumps({"host": {"registry": {"url": site.url}}, "mcpServers": {"none": {"command": "true"}}}, indent=2))
        (folder / "work").mkdir()

    def run(self, *words, code=0, alone=False):
        names = ("PATH", "LANG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "npm_config_registry", "npm_config_cafile")
        given = {name: value for name, value in os.environ.items() if name in names or name.startswith("PIP_")}
        words = [str(self.binary), *words]
        if alone:
            words = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *words]
        done = subprocess.run(
            words, cwd=self.folder / "work", env={**given, **self.more, "HOME": str(self.folder)}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=900,
        )  # fmt: skip
        if done.returncode != code:
            raise Fault(f"`{' '.join(words[1:] if not alone else words[7:])}` ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def install(self, kind, name):
        told = self.run("install", f"io.example.{kind}/{short(name)}", "--yes", "--json")
        return json.loads(next(line for line in told.splitlines() if line.startswith("{")))

    def trees(self, *words):
        told = self.run("install", *words, "--locked", "--json")
        rows = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        return {row["server"]: row["tree"] for row in rows}

    def store(self):
        return self.folder / ".local/share/mcp-host/store"


def is_alone_possible():
    return subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL).returncode == 0


def real_servers(binary, root, site, check, tool, path):
    """`tool` locks and installs what is of its kind."""
    home = Home(binary, root / f"home-{tool}", site, PATH=path)
    kind = "npm" if tool == "npm" else "pypi"
    trees = {}

    def install(kind, name):
        told = home.install(kind, name)
        if told["state"] != "connected" or not told["tools"]:
            raise Fault(f"it does not start: {told}")
        trees[told["server"]] = told["tree"]
        return f"{told['tools']} tools, tree {told['tree'][:19]}"

    for name, _, _ in SERVERS[kind]:
        check(f"{tool}: {name} is installed and starts", lambda name=name: install(kind, name))

    def without_network():
        for name in trees:
            home.run("check", name, "--connect", alone=is_alone_possible())
        return "in a network namespace without a network" if is_alone_possible() else "with a network: unshare is not allowed"

    check(f"{tool}: each starts again without a network", without_network)

    def elsewhere():
        other = Home(binary, root / f"elsewhere-{tool}", site, PATH=path)
        shutil.rmtree(other.config.parent)
        shutil.copytree(home.config.parent, other.config.parent)
        found = other.trees()
        if found != trees or len(found) != 3:
            raise Fault(f"the trees differ: {found} is not {trees}")
        for name in trees:
            other.run("check", name, "--connect")
        return f"{len(found)} trees"

    check(f"{tool}: --locked elsewhere gives the same tree hashes", elsewhere)

    def changed():
        for name in trees:
            package = json.loads(home.config.read_text())["mcpServers"][name]["package"]
            place = next((home.store() / package["type"]).glob(f"*-{package['digest'][7:23]}"))
            file = next(path for path in sorted((place / "tree").rglob("*")) if path.suffix in (".js", ".py"))
            file.write_bytes(file.read_bytes() + b"\n")
            said = home.run("check", name, "--connect", code=4)
            if "differs from its lock" not in said:
                raise Fault(said)
        if home.trees() != trees:
            raise Fault("the trees are not as before")
        return f"{len(trees)} trees, and installed again"

    check(f"{tool}: a changed file is refused", changed)


def own_packages(binary, root, site, check, tool, path):
    kind = "npm" if tool == "npm" else "pypi"
    more = {"PATH": path, "npm_config_registry": f"{site.url}/npm/", "PIP_INDEX_URL": f"{site.url}/pypi/", "PIP_FIND_LINKS": "", "npm_config_cache": str(root / "cache"), "npm_config_fetch_retries": "0", "UV_DEFAULT_INDEX": f"{site.url}/pypi/", "UV_NO_CACHE": "1"}
    home = Home(binary, root / f"own-{tool}", site, **more, PIP_NO_CACHE_DIR="1")

    def scripts():
        name = f"io.example.{kind}/{BUILT[kind]}"
        ran = home.folder / f"built-{kind}"
        without = 0 if kind == "npm" else 1
        said = home.run("install", name, "--yes", code=without)
        if ran.exists():
            raise Fault(f"its own program ran: {said}")
        if kind == "npm":
            home.run("remove", BUILT[kind])
        told = home.run("install", name, "--yes", "--scripts", "--json")
        told = json.loads(next(line for line in told.splitlines() if line.startswith("{")))
        if not ran.exists() or told["state"] != "connected":
            raise Fault(f"it was not built: {told}")
        home.run("check", told["server"], "--connect")
        home.run("remove", told["server"])
        return "not run, and then run" if kind == "npm" else f"refused, and then built: {error_of(said)}"

    def changed():
        site.note = ""
        name = home.install(kind, OWN[kind])["server"]
        shutil.rmtree(home.store())
        shutil.rmtree(root / "cache", ignore_errors=True)
        before = home.trees(name)
        shutil.rmtree(home.store())
        shutil.rmtree(root / "cache", ignore_errors=True)
        site.note = "\n# changed\n" if kind == "pypi" else "\n// changed\n"
        said = home.run("install", name, "--locked", code=1)
        home.run("check", name, "--connect", code=4)
        home.run("remove", name)
        line = error_of(said)
        if before and not any(word in line.lower() for word in ("integrity", "hash", "sha512")):
            raise Fault(said)
        return line

    check(f"{tool}: a changed archive is refused", changed)
    check(f"{tool}: programs of a package run with --scripts alone", scripts)


def error_of(said):
    return next(line for line in said.splitlines() if line.startswith("error: "))


def paths(root, uv):
    """Returns the PATH for npm, for pip, and for uv: pip is used where there is no uv."""
    folder = root / "uv"
    folder.mkdir()
    (folder / "uv").symlink_to(uv)
    without = [part for part in os.environ["PATH"].split(os.pathsep) if not (Path(part) / "uv").exists()]
    plain = os.pathsep.join(without)
    return {"npm": plain, "pip": plain, "uv": os.pathsep.join([str(folder), *without])}


def main(binary, uv):
    results = []

    def check(name, run):
        try:
            said = run()
            results.append(True)
            print(f"ok    {name}: {said}", flush=True)
        except (Fault, OSError, ValueError, KeyError, StopIteration, subprocess.SubprocessError) as error:
            results.append(False)
            print(f"FAIL  {name}: {error!r}" if not isinstance(error, Fault) else f"FAIL  {name}: {error}", flush=True)

    root = Path(tempfile.mkdtemp(prefix="mcp-host-install-"))
    site = Site()
    try:
        for tool, path in paths(root, uv).items():
            real_servers(binary, root, site, check, tool, path)
            own_packages(binary, root, site, check, tool, path)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
