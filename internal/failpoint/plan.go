package failpoint

import (
	"fmt"
	"strconv"
	"strings"
)

// EnvPlan is the environment variable with the path of the plan file. Without that file nothing is
// counted, so that a test can bring a process to the begin of its scenario first.
const EnvPlan = "FAILPOINT_PLAN"

// VisitsFile returns the path of the file to which every process with the plan appends its visits,
// one line with the name of the point each.
func VisitsFile(planFile string) string { return planFile + ".visits" }

// Plan is the visit at which a process is killed, counted from 1 since the plan file exists, over
// all processes. The zero Plan only counts.
type Plan struct {
	Point Point
	Visit int
}

// String returns the content of a plan file, such as "write.renamed:2"; empty for the zero Plan.
func (p Plan) String() string {
	if p == (Plan{}) {
		return ""
	}
	return fmt.Sprintf("%s:%d", p.Point, p.Visit)
}

// ParsePlan parses the content of a plan file.
func ParsePlan(text string) (Plan, error) {
	if text == "" {
		return Plan{}, nil
	}
	point, visit, _ := strings.Cut(text, ":")
	n, err := strconv.Atoi(visit)
	if point == "" || err != nil || n < 1 {
		return Plan{}, fmt.Errorf("failpoint plan %q; expected a point and a visit, such as write.renamed:2", text)
	}
	return Plan{Point: Point(point), Visit: n}, nil
}
