# Sourced: makes .deps/tools, the pinned programs of the checks, and sets
# tools_bin. Does nothing where they are there already.
clang_format_version=19.1.7
tools_bin=$repo/.deps/tools/bin

make_tool_venv() {
  if [[ "$("$tools_bin/clang-format" --version 2>/dev/null)" == *"version $clang_format_version"* ]]; then
    return
  fi
  echo "tools: pip install clang-format==$clang_format_version into .deps/tools" >&2
  mkdir -p "$repo/.deps"
  rm -rf "$repo/.deps/tools"
  python3 -m venv "$repo/.deps/tools"
  "$tools_bin/python3" -m pip --disable-pip-version-check --no-input install --quiet \
    --only-binary=:all: "clang-format==$clang_format_version" </dev/null >&2
}
