package cniconf

import "context"

// Run reads the configurations after each change, until ctx ends; it then returns nil. The
// directory may be created later.
func (w *Watcher) Run(ctx context.Context) error { return w.files.Run(ctx) }

// Reload lets Run read the configurations immediately. It does not wait for that.
func (w *Watcher) Reload() { w.files.Reload() }
