package doctor

import "fmt"

// How much room is little. A record takes 4 KiB, with several contexts a multiple of
// that, and is written beside the old one before it takes its place; the file of an
// address takes one block of mostly 4 KiB. So below wanted not even the some hundred
// addresses of a full node fit, and below needed the next few writes fail, which every
// allocation and release needs.
const (
	wantedBytes, neededBytes   = 16 << 20, 1 << 20
	wantedInodes, neededInodes = 1024, 64
)

// room judges what is left in a folder.
func (f Folder) room(pool string) []Finding {
	if f.Err != nil {
		return nil // said where the folder is judged
	}
	found := Finding{Check: CheckRoom, Pool: pool, State: OK, Seen: f.roomText()}
	limited := f.Inodes > 0
	switch {
	case f.Free < neededBytes, limited && f.FreeInodes < neededInodes:
		found.State = Error
	case f.Free < wantedBytes, limited && f.FreeInodes < wantedInodes:
		found.State = Warning
	}
	if found.State != OK {
		found.Do = fmt.Sprintf("make room on the file system of %s: at least %d MiB and %d inodes; without it nothing can be allocated or released", f.At, wantedBytes>>20, wantedInodes)
	}
	return []Finding{found}
}

func (f Folder) roomText() string {
	text := fmt.Sprintf("%d MiB", f.Free>>20)
	if f.Free < 10<<20 {
		text = fmt.Sprintf("%d KiB", f.Free>>10)
	}
	if f.Inodes > 0 {
		text += fmt.Sprintf(" and %d inodes", f.FreeInodes)
	}
	return fmt.Sprintf("%s left for %s", text, f.Path)
}
