#!/bin/bash
# generate.sh SOURCE: writes v1.19.patch, for SOURCE, the sources of v1.19.0, from v1.20.patch and
# the rules of v1.19.sed to standard output. Needs git.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$1" "$work/cilium"
chmod -R u+w "$work/cilium"
# No configuration of the user, whose formats of diffs and dates may be others.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git() { command git -C "$work/cilium" "$@"; }
git init -q
git config user.name base
git config user.email base@delegated-ipam.invalid
git add -A -f .
git commit -q -m base
git mailsplit -o"$work" "$here/v1.20.patch" >"$work/count"
for mail in "$work"/[0-9]*; do
  git mailinfo "$work/message" "$work/diff" <"$mail" >"$work/info"
  author() { sed -n "s/^$1: //p" "$work/info"; }
  # A blank line at the end would count as context.
  sed -f "$here/v1.19.sed" "$work/diff" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' |
    git apply -C1 --recount --index 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
  GIT_COMMITTER_DATE=$(author Date) git commit -q --author="$(author Author) <$(author Email)>" --date="$(author Date)" \
    -m "$(author Subject)" -m "$(cat "$work/message")"
done
git format-patch --stdout --zero-commit --no-signature --full-index -U2 HEAD~"$(cat "$work/count")"
