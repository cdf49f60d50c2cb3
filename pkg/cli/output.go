package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Formats of what client commands print (-o).
const (
	outputTable = "table"
	outputJSON  = "json"
)

// printJSON prints a value, indented for people.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printOutcome prints v as JSON, or the line.
func (f clientFlags) printOutcome(w io.Writer, v any, line string) error {
	if f.output == outputJSON {
		return printJSON(w, v)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// ago is how long ago something was; empty if it never was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return length(now.Sub(t)) + " ago"
}

// length shows a duration in at most two units, as a person would say it.
// Clocks of two processes differ a little, so a negative one is 0s.
func length(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return units(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return units(d, time.Hour, "h", time.Minute, "m")
	}
	return units(d, day, "d", time.Hour, "h")
}

// units shows a duration in a large and a small unit; the small one only if it
// is not 0.
func units(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}
