// Package output prints the results of the client commands: JSON, tables and the status page.
package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// JSON prints a value with indentation.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// OneLine returns text without line breaks and repeated spaces, which would break a table.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Ago returns how long before now t was, such as "5m ago"; empty for the zero time.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Duration(now.Sub(t)) + " ago"
}

// Duration returns a duration in at most two units, such as "1d1h". A negative one is "0s": the
// clocks of two processes differ a little.
func Duration(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < time.Second:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return inUnits(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return inUnits(d, time.Hour, "h", time.Minute, "m")
	}
	return inUnits(d, day, "d", time.Hour, "h")
}

// inUnits returns a duration in a large and a small unit, the small one only if it is not 0.
func inUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d%s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf("%d%s", rest, smallName)
	}
	return text
}
