package main

// edit replaces a place in a file of the protocol.
type edit struct{ file, old, with string }

// limits bound the repetitions of the protocol: two of anything behave as more.
var limits = []edit{
	{"settle.go", "wholeRetries = 4", "wholeRetries = 1"},
}

// rule is a rule of the protocol: the edits that remove it, where the exploration must fail then, and how.
type rule struct {
	name  string
	edits []edit
	// in is the configuration, bounds its other bounds.
	in, bounds string
	violates   string
}

const (
	notCovered = "not covered"
	leak       = "leaks"
	two        = " use "
)

var rules = []rule{
	{"adding is durable before DEL and ADD", []edit{{"hold.go", "	if err := t.write(r); err != nil {\n		return fmt.Errorf(\"%s: %w; the ADD", "	t.setRecord(r)\n	if err := error(nil); err != nil {\n		return fmt.Errorf(\"%s: %w; the ADD"}}, "local", "", notCovered},
	{"held is durable before the response", []edit{{"hold.go", "	if err := t.write(r); err != nil {\n		t.World.Reserve", "	t.setRecord(r)\n	if err := error(nil); err != nil {\n		t.World.Reserve"}}, "another", "", two},
	{"a response after a failed write needs a successful one", []edit{{"claim.go", "!op.Dirty && before.State", "before.State"}}, "delay", "-faults 2 -calls 3", two},
	{"releasing is durable before the DEL", []edit{{"free.go", "	if err := op.write(r); err != nil {\n		return fmt.Errorf(\"%s: %w; the plugin", "	op.setRecord(r)\n	if err := error(nil); err != nil {\n		return fmt.Errorf(\"%s: %w; the plugin"}}, "local", "", notCovered},
	{"a lease of an owner without a record is adopted", []edit{{"try.go", "	if len(found.Addresses) == 0 {", "	if true {"}}, "local", "", two},
	{"the record stays until no ADD can act", []edit{{"free.go", "!began[i].Before(inv.AddActsUntil)", "true"}}, "same", "", leak},
	{"the last DEL begins after that moment", []edit{{"free.go", "!began[i].Before(inv.AddActsUntil)", "!op.World.Now().Before(inv.AddActsUntil)"}}, "same", "-calls 1", leak},
	{"no ADD uses an ID on which a DEL may act", []edit{{"free.go", "	if inv.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {", "	if false && inv.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {"}}, "remote", "", two},
	{"a released attachment remembers its generation", []edit{{"operation.go", "tombstone := op.World", "tombstone := false && op.World"}}, "same", "-calls 3", two},
	{"an interrupted ADD may still act at a start", []edit{{"status.go", "return r.State == Adding && !last.AddRefused ||", "return false && r.State == Adding && !last.AddRefused ||"}}, "same", "", leak},
	{"a reboot ends nothing off the node", []edit{{"status.go", "if rebooted && inv.Profile.OnNode() {", "if rebooted {"}}, "same", "", leak},
	{"only a definite answer is a loss", []edit{{"verify.go", "	case !call.IsLost(inv, err):", "	case false:"}}, "remote", "", two},
	{"a DEL confirms a loss", []edit{{"verify.go", "	return reported, nil", "	return doubtful, nil"}}, "remote", "", two},
	{"a DEL that is to confirm a loss may act at a start", []edit{{"status.go", "isHeld(r.State) && !r.Confirming", "isHeld(r.State)"}}, "remote", "-faults 2", two},
	{"after a reboot presence proves nothing", []edit{{"verify.go", "return op.Rec.BootID != op.Opts.BootID && inv", "return false && op.Rec.BootID != op.Opts.BootID && inv"}}, "check", "", two},
	{"an address of another attachment is released again", []edit{{"try.go", "	case !ip.IsValid():", "	case true:"}}, "loss", "", two},
	{"adding is written before a DEL while the disk may say held", []edit{{"operation.go", "	if !op.Dirty {\n		return nil", "	if true {\n		return nil"}}, "another", "-faults 2", notCovered},
	{"deadlines are capped at a start", []edit{{"status.go", "	r = capDeadlines(r.Clone(), o, now)", "	_ = capDeadlines\n	r = r.Clone()"}}, "same", "-faults 2", "further ahead"},
	{"where DELs are queued each ADD uses a new ID", []edit{{"ids.go", "	if p.SingleUseIDs() {\n		return containerid", "	if false {\n		return containerid"}}, "queued", "-calls 3", two},
	{"an address that was given up stays reserved", []edit{{"hold.go", "			r.GivenUp = append(r.GivenUp, was.Addr())\n", ""}}, "given-up", "", two},
	{"an excluded address is not allocated", []edit{{"want.go", "i >= 0 {\n		return &rejectedResult", "i >= len(came) {\n		return &rejectedResult"}, {"want.go", "		case excluded(a.Addr()) &&", "		case false && excluded(a.Addr()) &&"}}, "exclude", "", "excluded"},
	{"an address outside the ranges is replaced", []edit{{"claim.go", "(restore || !op.anyOutside", "(true || !op.anyOutside"}}, "ranges", "", "outside"},
	{"the address inside the ranges is acquired again", []edit{{"settle.go", "if (whole || len(claimed) > 0 && !OfContainer(op.Owner)) &&", "if whole &&"}}, "ranges-part", "-faults 2", "not acquired again"},
	{"no ADD uses a runtime's ID on which a DEL may act", []edit{{"hold.go", "	if t.idInUseByDel(inv) { // use", "	if !OfContainer(t.Owner) && t.idInUseByDel(inv) { // use"}}, "container-remote", "", two},
	{"a container that was added again is not ended", []edit{{"free.go", "op.Rec.State != Cooldown && !op.spare() {", "false {"}}, "fixed", "", two},
	{"a lease that is kept for a pod is verified", []edit{{"status.go", "loaded.State == Held || loaded.State == Cooldown && loaded.Lent != nil", "loaded.State == Held"}}, "warm-away", "", two},
	{"no container survives a reboot", []edit{{"status.go", "	if OfContainer(r.Owner) &&", "	if false && OfContainer(r.Owner) &&"}}, "container", "", "after a reboot"},
	{"after a rollback a lost container interface is released", []edit{{"settle.go", "	case rolledBack:", "	case false:"}}, "container-rollback", "", "without a request"},
	{"a DEL confirms the loss of a container interface", []edit{{"claim.go", "	w.confirm = found == reported\n	return false, nil", "	return false, nil"}}, "container-remote", "", two},
	{"a lost container interface stays reserved", []edit{{"settle.go", "	case rolledBack:", "	default:"}}, "container-lost", "", two},
	{"what is added again stays reserved after a failure", []edit{{"hold.go", "	case t.inUse():", "	case t.inUse() && !OfContainer(t.Owner):"}}, "container-lost", "-faults 2", two},
	{"a container that lives survives another boot ID", []edit{{"status.go", "	alive = alive && r", "	alive = false && r"}}, "container-boot", "", two},
	{"what the plugin has added again is not freed", []edit{{"settle.go", "	stored, err := op.stored()", "	stored, err := []netip.Addr(nil), error(nil)"}, {"free.go", "	if op.Action == Cleanup {", "	if false {"}}, "container-rollback", "", two},
	{"what cannot be added again is as it was", []edit{{"hold.go", "		if OfContainer(t.Owner) && t.proven != nil && ended {", "		if false {"}}, "container-back", "", two},
	{"a DEL is durable before it waits", []edit{{"free.go", "	if err := op.writeReleasing(); err != nil {", "	if err := op.World.Process(); err != nil {\n		return err\n	}\n	if err := op.writeReleasing(); err != nil {"}}, "container-leaves", "", "was received"},
	{"a DEL whose record could not be written is carried out", []edit{{"free.go", "return op.finishLater(op.delOnce())", "return op.delOnce()"}}, "container-leaves", "", "was received"},
	{"a repeated ADD is durable before its response", []edit{{"claim.go", "	if err := op.write(r); err != nil {\n		return fmt.Errorf(\"%s: %w\", op, err)\n	}\n	return nil", "	op.setRecord(r)\n	return nil"}}, "container-again", "", "of an earlier ADD"},
	{"an attachment is verified by the ADD that has run", []edit{{"claim.go", "	r.Invocations = append(r.Invocations, last)\n", "	r.Invocations = slices.Insert(r.Invocations, max(0, len(r.Invocations)-1), last)\n"}}, "container-args", "", two},
	{"a container that lost one address keeps the other", []edit{{"verify.go", "	case OfContainer(op.Owner) && slices", "	case false && slices"}}, "container-loss", "", two},
	{"a repeated ADD gets what it requests", []edit{{"claim.go", "	case found == stillHeld && missing < 0:", "	case found == stillHeld:"}}, "container-requests", "", "instead of the requested"},
	{"the plugin keeps what a container lost in part", []edit{{"try.go", "		if r.missing = lost &&", "		if r.missing = false && lost &&"}}, "container-lost-part", "", "gets nothing"},
	{"what keeps it is durable", []edit{{"lost.go", "	if err := op.write(r); err != nil {\n		return err\n	}\n	res, err", "	op.setRecord(r)\n	res, err"}}, "container-lost-part", "", notCovered},
	{"what keeps it may act at a start", []edit{{"status.go", "added := inv.KeepsLost || i", "added := i"}}, "container-lost-part-same", "-faults 2 -calls 1", leak},
	{"a DEL keeps another container of the pod", []edit{{"pod.go", "if !ok || op.World.Settle(other, Kept, true) {", "if true || !ok || op.World.Settle(other, Kept, true) {"}}, "container-pod", "", two},
	{"a DEL waits for an ADD of the pod", []edit{{"pod.go", "	if op.World.Now().Before(inv.AddActsUntil) {", "	if false {"}}, "container-pod", "", two},
	{"a DEL keeps another interface of the container", []edit{{"pod.go", "		_, skip = op.World.Keeper(inv)\n		return skip, nil", "		return false, nil"}}, "container-interfaces", "", two},
	{"a repeated ADD of a pod may act at a start", []edit{{"status.go", "verified = last.Profile.Key() ==", "verified = false && last.Profile.Key() =="}}, "container-pod", "", leak},
	{"only an ADD verifies what is in cooldown", []edit{{"claim.go", "	if op.Rec.State == Cooldown && inv", "	if false && inv"}}, "container-add", "", two},
	{"what an interrupted release began is finished", []edit{{"settle.go", "	case r.State == Cooldown, r.State == Releasing, r", "	case r.State == Cooldown, r"}}, "local", "", "goes on for ever"},
	{"an ADD is repeated before a DEL that is refused for good", []edit{{"free.go", "	return op.Action == Cleanup &&", "	return false && op.Action == Cleanup &&"}}, "strict-del", "-calls 1", "goes on for ever"},
	{"that ADD is durable", []edit{{"free.go", "	r.State = Adding\n	if err := op.write(r); err != nil {\n		return errors.Join(refusal, err)\n	}", "	r.State = Adding"}}, "strict-del", "-calls 1", notCovered},
	{"that ADD waits for a late DEL", []edit{{"free.go", " && !began.Before(r.LateDel.Until)", ""}}, "strict-del", "", "goes on for ever"},
	{"a lease ahead changes its owner by one write", []edit{{"operation.go", "op.World.Write(r, op.owners()[1:]...)", "op.World.Write(r)"}}, "warm", "", "two records"},
	{"a lease ahead is taken once", []edit{{"warm.go", "	op.Status = Status{ID: op.ID}\n	op.publish()\n	return true\n}\n\n// Give", "	return true\n}\n\n// Give"}}, "warm", "", two},
	{"a lease ahead that the store lacks is not handed over", []edit{{"warm.go", "		held, err := op.held(o.Record)", "		held, err := true, error(nil)"}}, "warm-lost", "", two},
	{"after a failed return either record is removed", []edit{{"warm.go", "		op.Dirty, op.Instead = true, r.Owner", "		op.Dirty = true"}}, "warm", "-faults 2", "two records"},
	{"after a failed hand-over either record is removed", []edit{{"warm.go", "op.Dirty, op.Instead = true, from.Owner", "op.Dirty, op.Instead = true, \"\""}}, "warm", "", "two records"},
}
