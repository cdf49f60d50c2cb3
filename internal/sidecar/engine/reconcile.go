package engine

// reconcile does the background work that is due for an attachment.
func (e *Engine) reconcile(a *entry) {
	a, err := e.getOrCreate(a.Key, a.user)
	if err != nil {
		return
	}
	op := &operation{engine: e, Journal: e.journal, entry: a, waitCtx: e.ctx}
	if op.waitForLock() != nil {
		return
	}
	defer op.unlock()
	op.reconcileAndRecord()
	op.finish()
}

// reconcileAndRecord reconciles, and logs, counts and records the outcome.
func (op *operation) reconcileAndRecord() {
	was := op.describe()
	families := op.families()
	err := op.protocol.Reconcile()
	if op.engine.ctx.Err() == nil || err == nil {
		op.reportBackground(was, families, err)
	}
	op.recordResult(err)
}
