package journal

import (
	"errors"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/pkg/killpoint"
)

// replace makes data the content of a file in attachments/: a file that is no record
// gets it, and then the name. The one that had the name becomes the next spare.
//
// Each attempt has a file of its own: after a failed fsync the kernel may call the
// lost pages of the old descriptor clean, and a second fsync of it would succeed.
func (j *Journal) replace(name string, data []byte) error {
	d, err := j.attachments.descriptor()
	if err != nil {
		return err
	}
	defer d.shut()
	before, err := d.look(name)
	first := errors.Is(err, fs.ErrNotExist)
	if err != nil && !first {
		return err
	}
	killpoint.Reach(killpoint.WriteBegins)
	f, err := j.spares.scratch(d, len(data), first)
	if err != nil {
		return err
	}
	killpoint.Reach(killpoint.WriteMade)
	err = f.write(data)
	if err == nil {
		killpoint.Reach(killpoint.WriteWritten)
		err = f.flush(f.overwritten)
	}
	err = errors.Join(err, f.shut())
	exchanged := false
	if err == nil {
		killpoint.Reach(killpoint.WriteSynced)
		exchanged, err = d.give(name, f.name, f.place && fit(before))
	}
	if err == nil {
		killpoint.Reach(killpoint.WriteRenamed)
		err = d.sync()
	}
	if err != nil {
		// What has the name now, the file that was written or the one that was the
		// record, may be on disk as it is not in memory. It is never used again.
		_ = d.unlink(f.name)
	}
	killpoint.Reach(killpoint.WriteDurable)
	switch {
	case err == nil && exchanged:
		j.spares.put(f.name)
	case f.place:
		j.spares.giveUp()
	}
	return err
}

// give gives the name of a record to the file that is called from now, which
// then is the other's name, if the two are to be exchanged and the file system can.
func (d dir) give(name, from string, exchange bool) (exchanged bool, err error) {
	if exchange {
		err := d.exchange(from, name)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return err == nil, err
		}
	}
	return false, d.rename(from, name)
}

// remove takes the name of a record from its file, which becomes a spare if it
// can. One that is not there is no error: an earlier removal may have got as far as
// that and failed in its fsync.
func (j *Journal) remove(name string) error {
	d, err := j.attachments.descriptor()
	if err != nil {
		return err
	}
	defer d.shut()
	before, err := d.look(name)
	gone := errors.Is(err, fs.ErrNotExist)
	if err != nil && !gone {
		return err
	}
	spare, place := "", false
	if fit(before) {
		spare, place = j.spares.name()
	}
	killpoint.Reach(killpoint.RemoveBegins)
	switch {
	case gone:
		err = nil
	case place:
		err = d.rename(name, spare)
	default:
		err = d.unlink(name)
	}
	if err == nil {
		killpoint.Reach(killpoint.RemoveDone)
		err = d.sync()
	}
	if err != nil && place {
		_ = d.unlink(spare)
	}
	killpoint.Reach(killpoint.RemoveDurable)
	switch {
	case err == nil && place:
		j.spares.put(spare)
	case place:
		j.spares.giveUp()
	}
	return err
}

// probe writes, syncs and removes a file beside the records. It is a new one, for
// which there must be room.
func (j *Journal) probe() error {
	d, err := j.attachments.descriptor()
	if err != nil {
		return err
	}
	defer d.shut()
	killpoint.Reach(killpoint.ProbeBegins)
	f, err := j.spares.scratch(d, len(probeText), false)
	if err != nil {
		return err
	}
	killpoint.Reach(killpoint.ProbeMade)
	err = f.write([]byte(probeText))
	if err == nil {
		err = f.flush(false)
	}
	killpoint.Reach(killpoint.ProbeWritten)
	err = errors.Join(err, f.shut(), d.unlink(f.name))
	killpoint.Reach(killpoint.ProbeGone)
	if f.place {
		j.spares.giveUp()
	}
	return err
}

// probeText is shorter than a spare, so that no spare gets it.
const probeText = "probe\n"
