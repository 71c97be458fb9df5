# tool NAME [JSON] calls a tool of the batch and prints its output. A call that failed prints why to stderr, and has
# the status 1.
tool() {
  local LC_ALL=C IFS=' ' name=${1-} input=${2-} code='' length='' text fd
  [ -n "$input" ] || input='{}'
  exec {fd}<>/dev/tcp/127.0.0.1/@PORT@ || return 1
  printf '%s %d\n%s' "$name" "${#input}" "$input" >&"$fd"
  read -r code length <&"$fd" || true
  text=$(cat <&"$fd"; printf x)
  exec {fd}>&-
  text=${text%x}
  case $code in
    ok) printf '%s\n' "$text" ;;
    '') printf '%s\n' 'no answer: too many connections at a time, or the script is ending' >&2; return 1 ;;
    *) printf '%s: %s\n' "$code" "$text" >&2; return 1 ;;
  esac
}
export -f tool
