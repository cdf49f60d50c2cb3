#!/bin/sh
# bbolt-put.sh: may a buffer be used again after bbolt's Put?
#
# Version: go.etcd.io/bbolt v1.5.0.
#
# One would guess: yes for both arguments, or for none. Put copies the key, so a loop that fills one buffer
# for each record looks right, and a Get in the same transaction returns the first record's key.
#
# Observed: the key is copied and the value is not: it is read from the caller's memory at Commit. Two
# records that were put from one buffer have the value of the last one, without an error, and bbolt's own
# check of the file finds nothing (Put in bucket.go, node.write).
#
# Output:
#   put a=first, put b=second, from one buffer
#   committed: a=second b=second
#   errors of the check: 0
#
# Usage: bbolt-put.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output
# above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'GO'
package main

import (
	"fmt"
	"strings"

	"go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	db, err := bbolt.Open("example.db", 0o600, nil)
	must(err)
	must(db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket([]byte("records"))
		must(err)
		key, value := make([]byte, 1), make([]byte, 6)
		var puts []string
		for _, record := range [][2]string{{"a", "first "}, {"b", "second"}} {
			copy(key, record[0])
			copy(value, record[1])
			must(bucket.Put(key, value))
			puts = append(puts, "put "+record[0]+"="+strings.TrimSpace(record[1]))
		}
		fmt.Println(strings.Join(puts, ", ") + ", from one buffer")
		return nil
	}))
	must(db.View(func(tx *bbolt.Tx) error {
		fmt.Print("committed:")
		must(tx.Bucket([]byte("records")).ForEach(func(k, v []byte) error {
			fmt.Printf(" %s=%s", k, v)
			return nil
		}))
		failed := 0
		for range tx.Check() {
			failed++
		}
		fmt.Printf("\nerrors of the check: %d\n", failed)
		return nil
	}))
}
GO
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
go mod init example >/dev/null 2>&1
go get go.etcd.io/bbolt@v1.5.0 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
