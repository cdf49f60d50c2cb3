#!/bin/sh
# Plays the faults and prints what was done, class by class, and one line of
# result. Usage: campaign.sh flags-of-go-test...
# What is played follows from DELEGATED_IPAM_FAULTS and DELEGATED_IPAM_FAULTS_SEED
# (docs/development.md). Fails if any test does.
set -u
DELEGATED_IPAM_FAULTS_REPORT=$(mktemp)
export DELEGATED_IPAM_FAULTS_REPORT
trap 'rm -f "$DELEGATED_IPAM_FAULTS_REPORT"' EXIT

began=$(date +%s)
go test "$@"
code=$?

sort -n "$DELEGATED_IPAM_FAULTS_REPORT" | awk -F '\t' \
  -v took=$(($(date +%s) - began)) -v seed="${DELEGATED_IPAM_FAULTS_SEED:-1}" -v code=$code '
  # One line of each test: number and name of its class, cases, kills, violations,
  # empty files left by killed plugins, cases that could not be played, seconds.
  { name[$1] = $2; cases[$1] += $3; kills[$1] += $4; wrong[$1] += $5; empty[$1] += $6; skipped[$1] += $7; busy[$1] += $8
    last = $1; C += $3; K += $4; V += $5; S += $7 }
  END {
    print "| class | cases | kills | violations | empty files | time |"
    print "|---|---|---|---|---|---|"
    for (i = 0; i <= last; i++) if (i in name)
      printf "| %s | %d | %d | %d | %d | %.0f s |\n", name[i], cases[i], kills[i], wrong[i], empty[i], busy[i]
    for (i = 0; i <= last; i++) if (skipped[i])
      printf "skipped: %d cases of \"%s\", for want of what the machine does not have\n", skipped[i], name[i]
    printf "faults: %d cases, %d kills, %d violations in %d s, seed %s%s\n", C, K, V, took, seed, code ? " - FAILED" : ""
  }'
exit $code
