# Installs third-party software into the cache: SDKs, servers, and a recent Node, each once per set of pins. A script that has
# set `root` and defined `die` sources it; it sets `interop`, `cache`, `rmcp` and PATH. Talks to package registries if
# something is missing. Scripts use `once` to install more.
interop=$root/tests/interop
cache=${MCP_HOST_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcp-host-interop}
node_pin=24.21.0 # used if the system's Node is too old for the Inspector

missing() {
  local each lack=
  for each in python3 node npm git; do command -v "$each" >/dev/null || lack+=" $each"; done
  if command -v python3 >/dev/null; then python3 -c 'import ensurepip, venv' 2>/dev/null || lack+=" python3-venv"; fi
  echo "${lack# }"
}
if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing: $(missing)" >&2
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y python3 python3-venv nodejs npm git; } >/dev/null 2>&1 || true
fi
[ -z "$(missing)" ] || die "not found: $(missing)"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || die "Python 3.11 or newer is needed, this is $(python3 -V)"

export npm_config_loglevel=error npm_config_fund=false npm_config_audit=false npm_config_update_notifier=false
export PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
# once NAME PINS COMMAND...: runs the command in an empty $cache/NAME, unless that was done for the same pins.
once() {
  local name=$1 stamp
  stamp=$(printf '%s' "$2" | sha256sum | cut -d' ' -f1)
  shift 2
  [ "$(cat "$cache/$name/.stamp" 2>/dev/null)" = "$stamp" ] && return
  echo "installing $name" >&2
  rm -rf "${cache:?}/$name"
  mkdir -p "$cache/$name"
  (cd "$cache/$name" && timeout 900 "$@") >"$cache/$name.log" 2>&1 || { tail -n 5 "$cache/$name.log" >&2; die "cannot install $name"; }
  echo "$stamp" >"$cache/$name/.stamp"
}
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 19) ? 0 : 1)'; then
  case $(uname -m) in x86_64) arch=x64 ;; aarch64 | arm64) arch=arm64 ;; *) die "Node 22.19 or newer is needed, this is $(node -v)" ;; esac
  once node "$node_pin $arch" npm install --no-save "node-linux-$arch@$node_pin"
  export PATH=$cache/node/node_modules/node-linux-$arch/bin:$PATH
fi
install_npm() { cp "$interop/package.json" . && npm install --no-package-lock --ignore-scripts; }
install_python() { python3 -m venv . && bin/pip install -q -r "$interop/requirements.txt"; }
# For uvx, which uses an installed tool as it is. The tool contains its own path, so it is installed in place.
install_uvtools() {
  grep '^mcp-server-time==' "$interop/requirements.txt" | UV_TOOL_DIR=$PWD/tools UV_TOOL_BIN_DIR=$PWD/bin UV_CACHE_DIR=$PWD/cache \
    xargs -n 1 "$cache/python/bin/uv" --no-config tool install --python "$cache/python/bin/python"
}
export -f install_npm install_python install_uvtools
export interop cache
once npm "$(node -v) $(cat "$interop/package.json")" bash -ec install_npm
once python "$(python3 -V) $(cat "$interop/requirements.txt")" bash -ec install_python
once uvtools "$(python3 -V) $(cat "$interop/requirements.txt")" bash -ec install_uvtools

rmcp=${MCP_HOST_INTEROP_RMCP:-}
if [ -z "$rmcp" ]; then
  command -v cargo >/dev/null || die "not found: cargo, to build the rmcp client"
  rmcp=$(cd "$root" && cargo build --quiet --example interop_rmcp --message-format=json-render-diagnostics |
    python3 -c 'import json, sys; print([m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")][-1])') || die "cannot build the rmcp client"
fi
