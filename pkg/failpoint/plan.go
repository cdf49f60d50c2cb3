package failpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// EnvPlan is the environment variable that names the plan file. While there is
// no such file nothing happens and nothing is counted, so that a test can bring
// a process to where its scenario begins.
const EnvPlan = "KILLPOINT_PLAN"

// VisitsOf returns the file beside a plan file to which each visit is appended
// as a line with the point's name, by every process that follows the plan.
func VisitsOf(planFile string) string { return planFile + ".visits" }

// Plan says where a process dies: at which visit of which point, counted from 1
// since there was the plan. The zero Plan only counts.
type Plan struct {
	Point Point
	Visit int
}

// String is the content of a plan file, such as "write.renamed:2"; empty for the
// zero Plan.
func (p Plan) String() string {
	if p == (Plan{}) {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.Point, p.Visit)
}

// ParsePlan reads the content of a plan file.
func ParsePlan(text string) (Plan, error) {
	if text == "" {
		return Plan{}, nil
	}
	point, visit, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(visit)
	if point == "" || err != nil || n < 1 {
		return Plan{}, fmt.Errorf("plan of failpoints: got %q; expected a point and a visit, such as write.renamed:2", text)
	}
	return Plan{Point: Point(point), Visit: n}, nil
}
