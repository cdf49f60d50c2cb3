#!/bin/sh
# gotest.sh GROUP COMMAND...: runs "go test" and prints one line about the packages of a group, and the output
# of those that fail. "gotest.sh" alone prints the total of the groups that ran since "gotest.sh -".
set -eu
dir=$(dirname "$0")/../.cache/tested
mkdir -p "$dir"
case ${1-} in
-)
  rm -f "$dir"/*
  exit
  ;;
'')
  cat "$dir"/* | awk '{ packages += $1; seconds += $2 } END { printf "ok   %-9s %3d packages %5d s\n", "total", packages, seconds }'
  exit
  ;;
esac
group=$1
shift
begun=$(date +%s)
{
  status=0
  "$@" 2>&1 || status=$?
  echo "gotest.sh: $status $(($(date +%s) - begun))"
} | awk -v group="$group" -v passed="$dir/$group" '
  $1 == "gotest.sh:" {
    if ($2 != 0) printf "%s", output
    else print packages, $3 > passed
    printf "%-4s %-9s %3d packages %5d s\n", $2 ? "FAIL" : "ok", group, packages, $3
    exit $2
  }
  $1 == "ok" { packages++; output = ""; next }
  { output = output $0 "\n" }
  $1 == "FAIL" && NF > 1 { printf "%s", output; output = "" }'
