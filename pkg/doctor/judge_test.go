package doctor

import (
	"slices"
	"strings"
	"testing"
)

// judged is one thing that was seen, and what must be found in it.
type judged struct {
	found []Finding
	// want are state and check of each finding.
	want []string
	// says are what the findings that are not ok, or else the first, must name.
	says []string
}

// judge compares a table of them.
func judge(t *testing.T, tests map[string]judged) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			var text strings.Builder
			for _, f := range tt.found {
				got = append(got, string(f.State)+" "+string(f.Check))
				text.WriteString(f.Seen + " | " + f.Do + "\n")
				if f.Seen == "" || (f.State != OK) != (f.Do != "") {
					t.Errorf("%+v does not say what was seen, or what to do and nothing else", f)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q; want %q\n%s", got, tt.want, text.String())
			}
			for _, says := range tt.says {
				if !strings.Contains(text.String(), says) {
					t.Errorf("found\n%swhich does not say %q", text.String(), says)
				}
			}
		})
	}
}
