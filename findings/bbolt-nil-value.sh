#!/bin/sh
# bbolt-nil-value.sh: does bbolt's Get find a key that has been put without a value?
#
# Version: go.etcd.io/bbolt v1.5.0.
#
# One would guess: yes, as an empty value. Get returns nil for a key that does not exist and an empty slice for one
# without a value, and a transaction reads its own writes. So a bucket whose keys alone matter works as a set.
#
# Observed: not before the commit. Put keeps the nil of the caller, so Get in the same transaction returns nil, as for a
# missing key, and ForEach passes the key as it passes a nested bucket, which is to be recognized by a nil value. From
# the next transaction on, the value is empty and not nil (Put and Get in bucket.go). Here an allocator marks the lowest
# free address in such a set: two callers in two transactions get two addresses, two callers in one transaction, such as
# one that Batch has merged, get the same address. With []byte{} in place of nil it works.
#
# Output:
#   value nil, two transactions: 10.1.0.1 10.1.0.2, in the set: 10.1.0.1 10.1.0.2
#   value nil, one transaction: 10.1.0.1 10.1.0.1, in the set: 10.1.0.1
#   value []byte{}, two transactions: 10.1.0.1 10.1.0.2, in the set: 10.1.0.1 10.1.0.2
#   value []byte{}, one transaction: 10.1.0.1 10.1.0.2, in the set: 10.1.0.1 10.1.0.2
#
# Usage: bbolt-nil-value.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the output above, and
# 2 if something is missing.
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
	"net/netip"

	"go.etcd.io/bbolt"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// allocate marks the lowest address that is not in the set, and prints it.
func allocate(set *bbolt.Bucket, mark []byte) {
	ip := netip.MustParseAddr("10.1.0.1")
	for set.Get([]byte(ip.String())) != nil {
		ip = ip.Next()
	}
	must(set.Put([]byte(ip.String()), mark))
	fmt.Print(" ", ip)
}

// transactions makes a new set, and two allocations in so many transactions.
func transactions(name string, count int, mark []byte) {
	db, err := bbolt.Open(name, 0o600, nil)
	must(err)
	defer db.Close()
	set := []byte("allocated")
	fmt.Printf("%s:", name)
	for range count {
		must(db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists(set)
			must(err)
			for range 2 / count {
				allocate(bucket, mark)
			}
			return nil
		}))
	}
	fmt.Print(", in the set:")
	must(db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(set).ForEach(func(k, _ []byte) error {
			fmt.Printf(" %s", k)
			return nil
		})
	}))
	fmt.Println()
}

func main() {
	transactions("value nil, two transactions", 2, nil)
	transactions("value nil, one transaction", 1, nil)
	transactions("value []byte{}, two transactions", 2, []byte{})
	transactions("value []byte{}, one transaction", 1, []byte{})
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
