# Installs a tokenizer of OpenAI (o200k, by gpt-tokenizer from npm, which ships its vocabulary) into the cache, once. A script that
# has defined `die` sources it; it sets NODE_PATH. Talks to npm alone.
package="gpt-tokenizer@3.4.0"
cache=${MCP_HOST_TOKENS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mcp-host-tokens}
command -v node >/dev/null || die "not found: node"
if [ "$(cat "$cache/.stamp" 2>/dev/null)" != "$package" ]; then
  echo "installing $package" >&2
  rm -rf "${cache:?}"
  mkdir -p "$cache"
  (cd "$cache" && npm install --prefix . --no-save --no-package-lock --ignore-scripts "$package") >"$cache/log" 2>&1 ||
    { tail -n 5 "$cache/log" >&2; die "cannot install $package"; }
  echo "$package" >"$cache/.stamp"
fi
export NODE_PATH=$cache/node_modules
