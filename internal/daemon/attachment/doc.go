// Package attachment decides what is done with the addresses of one owner, so that no crash, failed write or late
// plugin process leaks an address or allocates it twice. It has no clock, no I/O, no goroutine and no lock: an
// Operation reads and changes its World, and nothing else. Package engine executes the calls of the World; the
// exploration (make model) runs the same code and tries every order, outcome, fault and kill.
//
// # Wanted and known
//
// An attachment is the addresses that one owner in one pool is promised. A pool is a name of the API for a network, whose
// plugin has the addresses. A verb is a run of the plugin (ADD, DEL, CHECK), an invocation what it gets: binary,
// configuration, container ID, arguments. A lookup reads the plugin's store without a verb, where its format is known.
// The profile is what is known of a plugin. The Record of an attachment is durable; Status adds what is known in this
// run. A request changes what is wanted, and the background (Settle) makes plugin, journal and memory agree with that.
// Both take the same roads, by the states below:
//
//	hold      Addresses are wanted, and none are held: write adding, DEL, ADD, reserve, write held. The DEL undoes what
//	          an earlier ADD of the ID may have left; the ADD runs even if it fails. No DEL is needed for an owner without
//	          a record for whose ID a lookup finds nothing, for a container interface without a record, and for a plugin
//	          that returns the same result to a repeated ADD. Reserve keeps the addresses from others, in memory. If it
//	          finds an attachment that has one and is not releasing, a DEL undoes the ADD, and that attachment is
//	          verified, or freed if it is in cooldown, and the ADD repeated. If the plugin refuses the ADD, the range may
//	          be full: the oldest attachment that no owner uses (in cooldown, then acquired ahead) is freed, and the ADD
//	          repeated.
//	verify    Addresses are wanted and held: a lookup in the plugin's store, or CHECK, or for a plugin that returns the
//	          same result an ADD. If they are lost: hold, with the same addresses; other ones only at a request.
//	free      Nothing is wanted: write releasing, DEL, remove the record.
//	unclaim   Nothing is wanted, and --release-delay is set: write cooldown; at its deadline, free.
//	adopt     An owner of the API has no record, and a lookup finds a lease under its container ID, because a journal
//	          was lost: write held. Without lookups the DEL of hold frees that lease. The DEL of a runtime for a container
//	          without a record runs the plugin's, under a new releasing record. What was acquired ahead keeps its
//	          addresses, under an ID that no request names: of host-local in our process until the first start after a
//	          reboot releases what no record has (daemon/leftovers.go), of other plugins until they are freed by hand.
//
// An owner is one of the API or, with the prefix cni/, a container interface that a container runtime adds. Their main
// differences: the container ID of a container interface is its runtime's and never changes (ids.go); the background
// adds it only with the addresses that its runtime has got already, or to release it; and its response is the plugin's
// whole result.
//
// # Leases that are acquired ahead
//
// With Options.WarmLeases the background acquires leases for containers that come later (warm.go). Each has an owner of
// its own, "warm/" and a text that is never used again, so the plugin has never seen its container ID, and no DEL of an
// earlier one can concern it. An ADD of a container takes a lease that is known to be held (verified in this run, and its
// record on disk) by one write: held under the container's owner, instead of the record of the warm one (Record.Lent
// names that). Its DEL, or the end of its cooldown, returns the lease to the warm owner by one write if it is known to be
// held and still wanted (the configuration is the same, and there are not enough others), or writes releasing, and the
// background runs the DEL. Neither the ADD nor the DEL of the container calls the plugin, which knows the lease by the
// same ID as long as it lasts. A kill before the write changed nothing; after it the lease is the other's. After a write
// whose outcome is unknown the disk may have either (Status.Instead), and the next write removes the other one. A
// container whose lease is lost is added under its runtime's ID, as any other.
//
// # States on disk
//
//	(none)      The plugin has nothing, or what adopt finds, or what a power cut brought back (daemon/leftovers.go).
//	adding      An ADD may have run; the plugin may hold nothing, the recorded addresses, or others.
//	held        The plugin has returned the addresses, and a response may have contained them.
//	cooldown    The owner has released them; the plugin has them until ReleaseAt.
//	releasing   A DEL may have run; the plugin may hold the addresses or nothing.
//	tombstone   The plugin has nothing. A DEL may still act on the container ID, so the next ADD uses another one.
//
// Claims are the families whose address a response may have contained: they are written with held, before the response,
// and end with a release. An adding record with claims is a reacquisition: its owner may use the recorded addresses, so
// no other owner gets them, and the background completes it. An address that was replaced stays reserved (GivenUp) until
// a response has the new one. Without claims no response had its addresses, and the background releases it. A request
// that finds a record continues from it: it waits for the work in progress, and then takes the road that the record
// needs, with the recorded addresses first.
//
// A held attachment that the plugin does not hold any more, as far as is known, is lost (Status.Lost). That is not on
// disk: a start finds it out again. On disk are Confirming and an invocation that keeps a lost address (below).
//
// # The order of writes
//
//  1. A step that changes the plugin's store runs only under a durable record that makes a start undo it: an ADD under
//     adding; a DEL under adding, releasing, or held with Confirming. An ADD that keeps what the record has runs under held,
//     with its invocation.
//  2. A response is sent after the write that it reports. For addresses that is held. For a release it is held without the
//     claim, while another one remains; cooldown; a tombstone; releasing, where a DEL has succeeded and one more has to
//     follow, and for a lease that was acquired ahead; otherwise the removal, which alone may be durable some milliseconds
//     later: a start that finds the record releases it again. A failed write is a failed request (500 or 502); a DEL of a
//     runtime that failed is continued by the background.
//  3. A record is removed when no ADD can act any more and a DEL that began after that has succeeded with each of its
//     invocations. If a DEL may still act, a tombstone stays until then.
//
// After a failed write the disk has the old or the new record (Dirty). Memory is used for no response until a write has
// succeeded, and before the next DEL the record is written again. So if held could not be written after an ADD, adding is
// written again, and then a DEL undoes the ADD. If that write fails, too, the plugin has the addresses until the background
// or the next request can write.
//
// # What each fault means
//
// A plugin call was not started, was refused, or has an unknown outcome: killed, timed out, no result. For a plugin
// whose profile has addOutlivesSeconds, such as one with a server behind it, a verb with an unknown outcome may act
// until so long after the end of its process. host-local's ends with its process. In that time
//
//   - an ADD may allocate (Invocation.AddActsUntil): a DEL proves nothing, the record stays, and one more DEL follows;
//   - a DEL may free (LateDel.Until): no ADD uses its container ID. The attachment goes over to the next generation of
//     its ID (suffix -g1, -g2, …) and stays with that, also when the time is over, until it has neither record nor
//     tombstone; what an ADD under an earlier ID may have left gets its own DEL. The ADD of a container interface is
//     refused as busy, and CHECK proves nothing, until LateDel.Until.
//
// If an ADD returns an address of another attachment that is lost, or whose plugin cannot be asked, the plugin has
// allocated it again. Then a DEL undoes this ADD, the other attachment gets the address again by a DEL and an ADD, and
// this ADD is repeated, in this order. A container that may hold another address does not get it, because the DEL would
// free that. Instead an ADD under a further ID makes the plugin keep the address until the container is released
// (Operation.KeepLost); its invocation is written to the container's record before. A start does not repeat that ADD: the
// next ADD that returns the address causes another.
//
// To a plugin that is keyed by the pod the containers of a pod are one, and an ADD replaces the ID by which it knows the
// addresses. So before a DEL the ADD of the other container that has them is repeated, under its held record; and a DEL
// waits until no ADD with its invocation may act.
//
// A plugin that refuses each DEL may do so because it holds nothing. Its profile says how it reports that (delNotHeld). Of a
// plugin without a profile it is assumed if it refused each ADD, too. If not, an ADD may have allocated, and an error does
// not say whether the plugin's server is away. So after four failures the background repeats the ADD of a releasing record,
// under adding, when no verb can act any more: now something is held, and a DEL releases all that an ID has. A plugin that
// refuses the DEL after this ADD has another reason, and the ADD is not repeated in this run (Status.DelInVain).
//
// A start does not know which verbs were in flight. Of a plugin with addOutlivesSeconds it takes as in flight until now:
// the ADD of an adding record, one that verifies a held record, and one that keeps an address; the DELs of any record but
// a held one, and of a held one with Confirming; the DELs of earlier generations. The time begins with the start. A
// reboot ends them all if the plugin's store is on the node.
//
// A failed check is not evidence of loss. A loss is proven by a lookup. CHECK may report one because the plugin's server
// is away, so a DEL must confirm it: held with Confirming is written, the DEL runs, and only if it succeeds the
// attachment is lost and acquired again. Otherwise it is held as before. A start that finds Confirming does not know
// whether the DEL acted: requests fail until it cannot act any more, then it is verified, under its old ID, and held, or
// confirmed and acquired under the next generation. A container of which a lookup finds nothing is acquired again, as an
// owner is. If CHECK reports its loss, or a lookup finds a part of its addresses, the background only marks it as lost,
// because a DEL could cost it one that it uses: the next ADD of its runtime acquires them, under the same ID. After a reboot
// a CHECK that compares no address proves nothing where the store is on the node and may have lost its last writes: the
// addresses are acquired anew if they can be requested.
//
// # Killed at any step
//
// Each row is a kill after a step of a request: the disk and the plugin's store at that moment; the steps of the next
// start, and after "later" what it does at a deadline; how that ends; and how the same request ends if it comes before
// those steps. One that comes between them and a deadline finds the record that they left. The client has a response
// only after the last step. A repeated release that finds a record completes it and is answered 200; without one it gets
// 404, but the DEL of a runtime, which then calls the plugin, succeeds. A runtime's GC is a DEL of each container that it
// does not list, and then the plugin's GC, with the IDs of all others. "g1" is the generation of the container ID.
// host-local has lookups and no late verbs; with it a container has the rows of an owner, without the first lookup.
// "remote" is a plugin without lookups (the step finds out nothing) whose verbs may act late; "DEL, DEL" is one for each
// container ID. There is no release delay. Before the DEL of a container whose addresses were held, the background looks
// them up, but no request does: if the plugin has others for the ID, it has added the container without the daemon,
// and only the record is removed. The exploration draws it (make explore DRAW=-draw):
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
//	Allocate, without addresses; remote
//	  killed after  disk           store     the start                                           ends with      or the request again
//	  nothing       -              -         -                                                   nothing        held 10.0.0.1
//	  lookup        -              -         -                                                   nothing        held 10.0.0.1
//	  write adding  adding         -         write releasing, DEL; later DEL, remove the record  nothing        held 10.0.0.1, g1
//	  DEL           adding         -         write releasing, DEL; later DEL, remove the record  nothing        held 10.0.0.1, g1
//	  ADD           adding         10.0.0.1  write releasing, DEL; later DEL, remove the record  nothing        held 10.0.0.1, g1
//	  write held    held 10.0.0.1  10.0.0.1  CHECK                                               held 10.0.0.1  held 10.0.0.1
//
//	Allocate, CHECK reports a loss; remote
//	  killed after            disk                       store     the start                                                                           ends with          or the request again
//	  nothing                 held 10.0.0.1              -         CHECK, write held, confirming, DEL, write adding, ADD, write held                   held 10.0.0.1      held 10.0.0.1
//	  CHECK                   held 10.0.0.1              -         CHECK, write held, confirming, DEL, write adding, ADD, write held                   held 10.0.0.1      held 10.0.0.1
//	  write held, confirming  held, confirming 10.0.0.1  -         wait; later CHECK, write held, confirming, DEL, DEL, write adding, ADD, write held  held 10.0.0.1, g1  error: failed
//	  DEL                     held, confirming 10.0.0.1  -         wait; later CHECK, write held, confirming, DEL, DEL, write adding, ADD, write held  held 10.0.0.1, g1  error: failed
//	  write adding            adding 10.0.0.1            -         write adding, DEL, DEL, ADD, write held; later DEL, write held                      held 10.0.0.1, g1  held 10.0.0.1, g1
//	  ADD                     adding 10.0.0.1            10.0.0.1  write adding, DEL, DEL, ADD, write held; later DEL, write held                      held 10.0.0.1, g1  held 10.0.0.1, g1
//	  write held              held 10.0.0.1              10.0.0.1  CHECK                                                                               held 10.0.0.1      held 10.0.0.1
//
//	ADD of a container; remote
//	  killed after  disk           store     the start                                           ends with      or the request again
//	  nothing       -              -         -                                                   nothing        held 10.0.0.1
//	  write adding  adding         -         write releasing, DEL; later DEL, remove the record  nothing        error: busy
//	  ADD           adding         10.0.0.1  write releasing, DEL; later DEL, remove the record  nothing        error: busy
//	  write held    held 10.0.0.1  10.0.0.1  CHECK                                               held 10.0.0.1  held 10.0.0.1
//
//	Release; remote
//	  killed after       disk                store     the start                                      ends with      or the request again
//	  nothing            held 10.0.0.1       10.0.0.1  CHECK                                          held 10.0.0.1  nothing
//	  write releasing    releasing 10.0.0.1  10.0.0.1  DEL, write tombstone; later remove the record  nothing        tombstone
//	  DEL                releasing 10.0.0.1  -         DEL, write tombstone; later remove the record  nothing        tombstone
//	  remove the record  -                   -         -                                              nothing        error: not found
//
// # Fields
//
// All of Record is durable. A start changes
//
//   - AddActsUntil, LateDel and Generation, as above;
//   - times ahead of the clock: ReleaseAt and the deadline of Expiration become now plus their delay at most, AddActsUntil
//     and LateDel now plus addOutlivesSeconds, Created and Changed now. A clock that is set back later moves none;
//   - Confirming: it is cleared, and Status.Lost set until the verification (of what is lost in part, also after it);
//   - a container interface of another boot, unless Options.NamespaceExists of the engine finds its network namespace:
//     held goes to cooldown, from now on, or without a --release-delay to releasing, as adding does. A repeated ADD, or
//     that of the pod's next container (pod.go), takes it from there.
//
// Of Status, ID and Rec come from the record, VerifyDue is set for what is held and for a lease that is kept for a pod,
// Dirty where the start has changed the record, and ReleaseAs for owners that --retire-owners releases. Instead, Verified,
// WaitsForOwner, DelInVain, Failures and RetryAt are forgotten.
//
// # Files
//
//	record.go     what is durable             claim.go     requests for addresses
//	status.go     what is known, the start    hold.go      acquisition; try.go: what follows a failed ADD
//	world.go      all that is seen and done   verify.go    is it still held
//	operation.go  publish, write, remove      free.go      release, DEL
//	ids.go        container IDs, invocations  settle.go    the background
//	want.go       what a request wants        pod.go       addresses that a pod keeps
//	warm.go       leases that are acquired ahead          lost.go  an address that a container has lost
package attachment
