# Sourced: runs the parts of a long script, remembers how long each took and
# whether it passed, and prints that at the end.
minutes_rows=()
minutes_failed=0

# part NAME COMMAND... : COMMAND's failure is remembered and returned.
part() {
  local name=$1 start=$SECONDS status=0
  shift
  printf '== %s\n' "$name" >&2
  "$@" </dev/null || status=$?
  local taken=$((SECONDS - start)) outcome=ok
  if ((status)); then
    outcome="FAILED ($status)"
    minutes_failed=1
  fi
  minutes_rows+=("$(printf '%4d.%d min  %-10s  %s' $((taken / 60)) $((taken % 60 / 6)) "$outcome" "$name")")
  return "$status"
}

print_minutes() {
  printf '== minutes\n' >&2
  printf '%s\n' "${minutes_rows[@]}" >&2
}
