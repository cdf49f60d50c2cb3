#!/bin/sh
# campaign.sh FLAGS...: runs "go test" with the flags, and prints a table with a row
# for each fault class and a line of totals. DELEGATED_IPAM_FAULTS and
# DELEGATED_IPAM_FAULTS_SEED select the cases (docs/design/development.md). Fails if a test fails.
set -u
DELEGATED_IPAM_FAULTS_REPORT=$(mktemp)
export DELEGATED_IPAM_FAULTS_REPORT
trap 'rm -f "$DELEGATED_IPAM_FAULTS_REPORT"' EXIT

start=$(date +%s)
go test "$@"
code=$?

sort -n "$DELEGATED_IPAM_FAULTS_REPORT" | awk -F '\t' \
  -v took=$(($(date +%s) - start)) -v seed="${DELEGATED_IPAM_FAULTS_SEED:-1}" -v code=$code '
  # A line of each test: number and name of its class, cases, kills, violations,
  # empty files left by killed plugins, skipped cases, seconds.
  { name[$1] = $2; cases[$1] += $3; kills[$1] += $4; wrong[$1] += $5; empty[$1] += $6; skipped[$1] += $7; busy[$1] += $8
    last = $1; C += $3; K += $4; V += $5; S += $7 }
  END {
    print "| class | cases | kills | violations | empty files | time |"
    print "|---|---|---|---|---|---|"
    for (i = 0; i <= last; i++) if (i in name)
      printf "| %s | %d | %d | %d | %d | %.0f s |\n", name[i], cases[i], kills[i], wrong[i], empty[i], busy[i]
    for (i = 0; i <= last; i++) if (skipped[i])
      printf "skipped: %d cases of \"%s\", which this machine does not support\n", skipped[i], name[i]
    printf "faults: %d cases, %d kills, %d violations in %d s, seed %s%s\n", C, K, V, took, seed, code ? " - FAILED" : ""
  }'
exit $code
