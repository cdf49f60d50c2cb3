package main

// edit replaces a place in a file of the protocol.
type edit struct{ file, old, with string }

// limits bound the repetitions of the protocol: two of anything behave as more.
var limits = []edit{
	{"reconcile.go", "wholeRetries = 4", "wholeRetries = 1"},
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
	{"adding is durable before DEL and ADD", []edit{{"adding.go", "	if err := write(r); err != nil {", "	_ = write\n	op.setRecord(r)\n	if err := error(nil); err != nil {"}}, "local", "", notCovered},
	{"held is durable before the response", []edit{{"claim.go", "	if err := op.write(r); err != nil {\n		return err\n	}\n	if changed", "	op.setRecord(r)\n	if changed"}}, "another", "", two},
	{"a response after a failed write needs a successful one", []edit{{"claim.go", "!op.Dirty && before.State", "before.State"}}, "delay", "-faults 2 -calls 3", two},
	{"releasing is durable before the DEL", []edit{{"release.go", "	r.BootID = op.Opts.BootID\n	return op.write(r)", "	r.BootID = op.Opts.BootID\n	op.setRecord(r)\n	return nil"}}, "local", "", notCovered},
	{"a lease of an owner without a record is adopted", []edit{{"adopt.go", "	if len(found.Addresses) == 0 {", "	if true {"}}, "local", "", two},
	{"the record stays until no ADD can act", []edit{{"invocations.go", "return !op.World.Now().Before(op.addActsUntil())", "return true"}}, "same", "", leak},
	{"the last DEL begins after that moment", []edit{{"release.go", "	if !addsEnded {\n		return nil", "	if addsEnded = op.addsEnded(); !addsEnded {\n		return nil"}}, "same", "-calls 1", leak},
	{"no ADD uses an ID on which a DEL may act", []edit{{"del.go", "	if inv.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {", "	if false && inv.ContainerID == containerid.Generation(r.ContainerID, r.Generation) {"}}, "remote", "", two},
	{"a released attachment remembers its generation", []edit{{"write.go", "tombstone := op.World", "tombstone := false && op.World"}}, "same", "-calls 3", two},
	{"an interrupted ADD may still act at a start", []edit{{"load.go", "return s == Adding && !last.AddRefused ||", "return false && s == Adding && !last.AddRefused ||"}}, "same", "", leak},
	{"a reboot ends nothing off the node", []edit{{"load.go", "if rebooted && inv.Profile.OnNode() {", "if rebooted {"}}, "same", "", leak},
	{"only a definite answer is a loss", []edit{{"verify.go", "if call.IsLost(inv, err) {", "if err != nil {"}}, "remote", "", two},
	{"a DEL confirms a loss", []edit{{"verify.go", "if !inv.Profile.SingleUseIDs() { //", "if false { //"}}, "remote", "", two},
	{"after a reboot presence proves nothing", []edit{{"verify.go", "return op.Rec.BootID != op.Opts.BootID && inv", "return false && op.Rec.BootID != op.Opts.BootID && inv"}}, "check", "", two},
	{"an address of another attachment is released again", []edit{{"reserve.go", "	case !ip.IsValid():", "	case true:"}}, "loss", "", two},
	{"adding is written before a DEL while the disk may say held", []edit{{"write.go", "	if !op.Dirty {\n		return nil", "	if true {\n		return nil"}}, "another", "-faults 2", notCovered},
	{"deadlines are capped at a start", []edit{{"load.go", "	r = capDeadlines(r.Clone(), o, now)", "	_ = capDeadlines\n	r = r.Clone()"}}, "same", "-faults 2", "further ahead"},
	{"where DELs are queued each ADD uses a new ID", []edit{{"invocations.go", "	if p.SingleUseIDs() {\n		return op.World", "	if false {\n		return op.World"}}, "queued", "-calls 3", two},
	{"an address that was given up stays reserved", []edit{{"claim.go", "			r.GivenUp = append(r.GivenUp, was.Addr())\n", ""}}, "given-up", "", two},
	{"an excluded address is not allocated", []edit{{"exclude.go", "i >= 0 {", "i >= len(came) {"}, {"want.go", "		case excluded(a.Addr()) &&", "		case false && excluded(a.Addr()) &&"}}, "exclude", "", "excluded"},
	{"an address outside the ranges is replaced", []edit{{"allocate.go", "(restore || !op.anyOutside", "(true || !op.anyOutside"}}, "ranges", "", "outside"},
	{"no ADD uses a runtime's ID on which a DEL may act", []edit{{"acquire.go", "if inUse && ofContainer {", "if false {"}}, "container-remote", "", two},
	{"only addresses of an ended container are taken over", []edit{{"fixed.go", "r.State != Cooldown || !OfContainer", "!OfContainer"}, {"fixed.go", "op.Rec.State != Cooldown {", "false {"}}, "fixed", "", two},
	{"a container that was added again is not ended", []edit{{"fixed.go", "op.Rec.State != Cooldown {", "false {"}}, "fixed", "", two},
	{"no container survives a reboot", []edit{{"load.go", "	if OfContainer(r.Owner) &&", "	if false && OfContainer(r.Owner) &&"}}, "container", "", "after a reboot"},
	{"after a rollback a lost container interface is released", []edit{{"container.go", "	case rolledBack:", "	case false:"}}, "container-rollback", "", "without a request"},
	{"a DEL confirms the loss of a container interface", []edit{{"verify.go", "if !inv.Profile.SingleUseIDs() { //", "if false { //"}}, "container-remote", "", two},
	{"a lost container interface stays reserved", []edit{{"container.go", "	case rolledBack:", "	default:"}}, "container-lost", "", two},
	{"what is added again stays reserved after a failure", []edit{{"adding.go", "	case op.inUse():", "	case op.inUse() && !OfContainer(op.Owner):"}}, "container-lost", "-faults 2", two},
	{"a container that lives survives another boot ID", []edit{{"load.go", "	alive = alive && r", "	alive = false && r"}}, "container-boot", "", two},
	{"what the plugin has added again is not freed", []edit{{"container.go", "	stored, err := op.stored()", "	stored, err := []netip.Addr(nil), error(nil)"}, {"release.go", "	if op.Action == Cleanup {", "	if false {"}}, "container-rollback", "", two},
	{"what cannot be added again is as it was", []edit{{"adding.go", "		if OfContainer(op.Owner) && op.storeProven && delErr == nil && addsEnded {", "		if false {"}}, "container-back", "", two},
	{"a DEL is durable before it waits", []edit{{"release.go", "	if err := op.writeReleasing(op.Rec.Invocations); err != nil {\n		return fmt.Errorf(\"%s: %w; the plugin was not called\", op, err)\n	}\n	return op.World.Process()", "	return op.World.Process()"}}, "container-leaves", "", "was received"},
	{"a DEL whose record could not be written is carried out", []edit{{"container.go", "return op.releaseLaterAfter(op.delOnce())", "return op.delOnce()"}}, "container-leaves", "", "was received"},
	{"a repeated ADD is durable before its response", []edit{{"container.go", "	if err := op.write(r); err != nil {\n		return fmt.Errorf(\"%s: %w\", op, err)\n	}\n	return nil", "	op.setRecord(r)\n	return nil"}}, "container-again", "", "of an earlier ADD"},
	{"a container that lost one address keeps the other", []edit{{"verify.go", "known && (!OfContainer(op.Owner) || op.holdsNone(inv))", "known"}}, "container-loss", "", two},
	{"what an interrupted release began is finished", []edit{{"reconcile.go", "	case r.State == Cooldown, r.State == Releasing:", "	case r.State == Cooldown:"}}, "local", "", "goes on for ever"},
}
