// Package attachment decides what is done with the addresses of one owner, so that no crash, failed write or late
// plugin process leaks an address or allocates it twice. It has no clock, no I/O, no goroutine and no lock: an
// Operation reads and changes its World, and nothing else. Package engine executes the calls of the World; the
// exploration (make model) runs the same code and tries every order, outcome, fault and kill.
//
// # Wanted and known
//
// An attachment is what one owner in one pool is promised. Its Record is durable; Status adds what is known in this
// run. A request changes what is wanted, and the background (Settle) makes plugin, journal and memory agree with that;
// both take the same roads:
//
//	what is wanted                  road             ends with
//	addresses, and none are held    hold             write adding, DEL, ADD, reserve, write held
//	addresses, and some are held    verify           a lookup, CHECK or ADD; hold if they are lost
//	nothing                         free             write releasing, DEL, remove the record
//	nothing yet                     unclaim          write cooldown; at its deadline free
//
// The owner of an address is an owner of the API or, with the prefix cni/, a container interface that a container
// runtime adds. Both are attachments of one kind, but for three rules: the container ID of a container interface is its
// runtime's, so that it cannot be changed (ids.go); only an ADD of its runtime, or what that returned before, is run
// for it; and its response is the whole result of the plugin.
//
// # States on disk
//
//	none        The plugin has nothing. (A store that can be read may have a lease of a lost journal: adopt.)
//	adding      An ADD may have run; the plugin may hold nothing, these, or other addresses.
//	held        The plugin has returned the addresses, and a response may have contained them.
//	cooldown    The owner has released them; the plugin has them until ReleaseAt.
//	releasing   A DEL may have run; the plugin may hold the addresses or nothing.
//	tombstone   The plugin has nothing; a DEL may still act on the container ID, and the next ADD uses another one.
//
// Claims are the families that a response has contained and no release has ended. Adding with claims is a
// reacquisition: its owner may use the addresses, so nobody else gets them, and the background completes it. Adding
// without claims was never answered, so the background releases it.
//
// Lost is not on disk: it is what this run has found out about a held attachment. While a DEL is to confirm a loss
// that CHECK reported, the disk says held, confirming: no DEL, no loss.
//
// # The order of writes
//
// A step that changes the plugin's store runs only under a durable record that undoes it, and a response is sent only
// for what is durable:
//
//  1. adding is durable before the DEL and the ADD; releasing before the DEL; confirming before a DEL that is to
//     confirm a loss.
//  2. held is durable before the response.
//  3. The record is removed after the last DEL has succeeded, and no ADD can act any more.
//
// # What each fault means
//
// A plugin call was not started, was refused, or has an unknown outcome. After an unknown one the verb may act later,
// for as long as the profile says (AddOutlivesSeconds):
//
//   - An ADD may: AddActsUntil of its Invocation. A DEL before that moment proves nothing, so the record stays, and a
//     last DEL follows.
//   - A DEL may: LateDel. Until then its container ID is not used: the next ADD uses the next Generation (suffix
//     -g1), a container interface waits, and a CHECK proves nothing.
//
// A start does not know what was in flight, so it assumes the worst of each record: an adding one has an ADD that may
// act, any but a held one has DELs that may act, and so has one that is confirming (inferInFlight). A reboot has ended
// all processes of the node, but not what a server does for them.
//
// A failed check is not evidence of loss. A loss is proven by a lookup in the plugin's store, or by a DEL after a CHECK
// that reported it, since a plugin without its server may report one, too.
//
// A failed write leaves the old or the new record on disk (Dirty): no response rests on memory before a write has
// succeeded, and no DEL runs under a record that may be held on disk.
//
// # Killed at any step
//
// Each row is a kill after a step: what is on disk and in the plugin's store, what the next start does, how that ends,
// and how it ends if the request is repeated before the start has come to it. "g1" is the generation of the container
// ID. The last two plugins have a remote store: no lookup, and a verb may act late ("later"). The
// exploration draws it (make explore DRAW=-draw):
//
//	Allocate, without addresses; host-local
//	  killed after  disk           store     the start                                ends with      or the request again
//	  nothing       -              -         -                                        nothing        held 10.0.0.1
//	  lookup        -              -         -                                        nothing        held 10.0.0.1
//	  write adding  adding         -         write releasing, DEL, remove the record  nothing        held 10.0.0.1
//	  ADD           adding         10.0.0.1  write releasing, DEL, remove the record  nothing        held 10.0.0.1
//	  write held    held 10.0.0.1  10.0.0.1  lookup                                   held 10.0.0.1  held 10.0.0.1
//
//	Allocate, the lease has vanished; host-local
//	  killed after  disk             store     the start                                   ends with      or the request again
//	  nothing       held 10.0.0.1    -         lookup, write adding, DEL, ADD, write held  held 10.0.0.1  held 10.0.0.1
//	  lookup        held 10.0.0.1    -         lookup, write adding, DEL, ADD, write held  held 10.0.0.1  held 10.0.0.1
//	  write adding  adding 10.0.0.1  -         write adding, DEL, ADD, write held          held 10.0.0.1  held 10.0.0.1
//	  DEL           adding 10.0.0.1  -         write adding, DEL, ADD, write held          held 10.0.0.1  held 10.0.0.1
//	  ADD           adding 10.0.0.1  10.0.0.1  write adding, DEL, ADD, write held          held 10.0.0.1  held 10.0.0.1
//	  write held    held 10.0.0.1    10.0.0.1  lookup                                      held 10.0.0.1  held 10.0.0.1
//
//	Release; host-local
//	  killed after       disk                store     the start               ends with      or the request again
//	  nothing            held 10.0.0.1       10.0.0.1  lookup                  held 10.0.0.1  nothing
//	  write releasing    releasing 10.0.0.1  10.0.0.1  DEL, remove the record  nothing        nothing
//	  DEL                releasing 10.0.0.1  -         DEL, remove the record  nothing        nothing
//	  remove the record  -                   -         -                       nothing        error: not found
//
//	ADD of a container; host-local
//	  killed after  disk           store     the start                                ends with      or the request again
//	  nothing       -              -         -                                        nothing        held 10.0.0.1
//	  write adding  adding         -         write releasing, DEL, remove the record  nothing        held 10.0.0.1
//	  ADD           adding         10.0.0.1  write releasing, DEL, remove the record  nothing        held 10.0.0.1
//	  write held    held 10.0.0.1  10.0.0.1  lookup                                   held 10.0.0.1  held 10.0.0.1
//
//	DEL of a container; host-local
//	  killed after       disk                store     the start                       ends with      or the request again
//	  nothing            held 10.0.0.1       10.0.0.1  lookup                          held 10.0.0.1  nothing
//	  write releasing    releasing 10.0.0.1  10.0.0.1  lookup, DEL, remove the record  nothing        nothing
//	  DEL                releasing 10.0.0.1  -         lookup, DEL, remove the record  nothing        nothing
//	  remove the record  -                   -         -                               nothing        nothing
//
//	Allocate, without addresses; a remote store
//	  killed after  disk           store     the start                                           ends with      or the request again
//	  nothing       -              -         -                                                   nothing        held 10.0.0.1
//	  lookup        -              -         -                                                   nothing        held 10.0.0.1
//	  write adding  adding         -         write releasing, DEL; later DEL, remove the record  nothing        held 10.0.0.1, g1
//	  DEL           adding         -         write releasing, DEL; later DEL, remove the record  nothing        held 10.0.0.1, g1
//	  ADD           adding         10.0.0.1  write releasing, DEL; later DEL, remove the record  nothing        held 10.0.0.1, g1
//	  write held    held 10.0.0.1  10.0.0.1  CHECK                                               held 10.0.0.1  held 10.0.0.1
//
//	Allocate, CHECK reports a loss; a remote store
//	  killed after            disk                       store     the start                                                                           ends with          or the request again
//	  nothing                 held 10.0.0.1              -         CHECK, write held, confirming, DEL, write adding, ADD, write held                   held 10.0.0.1      held 10.0.0.1
//	  CHECK                   held 10.0.0.1              -         CHECK, write held, confirming, DEL, write adding, ADD, write held                   held 10.0.0.1      held 10.0.0.1
//	  write held, confirming  held, confirming 10.0.0.1  -         wait; later CHECK, write held, confirming, DEL, DEL, write adding, ADD, write held  held 10.0.0.1, g1  error: failed
//	  DEL                     held, confirming 10.0.0.1  -         wait; later CHECK, write held, confirming, DEL, DEL, write adding, ADD, write held  held 10.0.0.1, g1  error: failed
//	  write adding            adding 10.0.0.1            -         write adding, DEL, DEL, ADD, write held; later DEL, write held                      held 10.0.0.1, g1  held 10.0.0.1, g1
//	  ADD                     adding 10.0.0.1            10.0.0.1  write adding, DEL, DEL, ADD, write held; later DEL, write held                      held 10.0.0.1, g1  held 10.0.0.1, g1
//	  write held              held 10.0.0.1              10.0.0.1  CHECK                                                                               held 10.0.0.1      held 10.0.0.1
//
//	Release; a remote store
//	  killed after       disk                store     the start                                      ends with      or the request again
//	  nothing            held 10.0.0.1       10.0.0.1  CHECK                                          held 10.0.0.1  nothing
//	  write releasing    releasing 10.0.0.1  10.0.0.1  DEL, write tombstone; later remove the record  nothing        tombstone
//	  DEL                releasing 10.0.0.1  -         DEL, write tombstone; later remove the record  nothing        tombstone
//	  remove the record  -                   -         -                                              nothing        error: not found
//
// # Fields
//
// Of Record, all are durable; a start derives anew: AddActsUntil and LateDel (above), ReleaseAt and the deadline of an
// Expiration if the clock was ahead, Confirming (the attachment is lost until verified), the state of a container
// interface after a reboot (cooldown, or releasing).
//
// Of Status, a start derives: ID and Rec from the record; VerifyDue for what is held; Lost for what was confirming or
// is younger than another record with its address; Dirty where the derived record differs. It forgets Verified,
// WaitsForOwner, Failures, RetryAt, and ReleaseAs but for owners that --retire-owners names.
//
// # Files
//
//	record.go     what is durable             claim.go     requests for addresses
//	status.go     what is known, the start    hold.go      acquisition; try.go: what follows a failed ADD
//	world.go      all that is seen and done   verify.go    is it still held
//	operation.go  publish, write, remove      free.go      release, DEL
//	ids.go        container IDs, invocations  settle.go    the background
//	want.go       what a request wants        pod.go       addresses that a pod keeps
package attachment
