package observe

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// dashboard has the fields of Grafana's format that are tested.
type dashboard struct {
	Title, UID string
	Panels     []panel
	Templating struct {
		List []struct {
			Name, Type string
			Query      json.RawMessage
		}
	}
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource *datasource
	GridPos    struct{ H, W, X, Y int }
	Targets    []struct {
		RefID      string
		Expr       string
		Datasource *datasource
	}
}

type datasource struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	data, err := os.ReadFile(repository("deploy", "grafana", "delegated-ipam.json"))
	check.Must(t, err)
	var d dashboard
	check.Must(t, json.Unmarshal(data, &d))
	return d
}

func TestDashboardQueries(t *testing.T) {
	known, queries := metrics(t), 0
	used := map[string]bool{}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			queries++
			// Grafana replaces this variable by a duration.
			query := strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
			for _, problem := range problems(known, query) {
				t.Errorf("panel %q, %s: %s: %s", p.Title, target.RefID, problem, target.Expr)
			}
			for name := range known {
				if strings.Contains(query, name) {
					used[name] = true
				}
			}
		}
	}
	if queries < 30 || len(used) < 25 {
		t.Errorf("the dashboard has %d queries of %d metrics; want at least 30 of 25", queries, len(used))
	}
}

func TestDashboardPanels(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || len(d.Panels) == 0 {
		t.Fatalf("title %q, uid %q, %d panels", d.Title, d.UID, len(d.Panels))
	}
	ids := map[int]string{}
	cells := map[[2]int]string{}
	for _, p := range d.Panels {
		if other, twice := ids[p.ID]; twice || p.ID == 0 {
			t.Errorf("panel %q has the id %d of %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		if p.Title == "" || p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q lies at %+v", p.ID, p.Title, p.GridPos)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken {
					t.Fatalf("panel %q covers %q", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.RefID == "" || target.Datasource == nil || target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: target %+v", p.Title, target)
			}
			refs[target.RefID] = true
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
	}
}

// labelValues matches the query of a variable: label_values(series, label).
var labelValues = regexp.MustCompile(`^label_values\((.+), ([a-z]+)\)$`)

func TestDashboardVariables(t *testing.T) {
	d, known := readDashboard(t), metrics(t)
	var queries strings.Builder
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			queries.WriteString(target.Expr + "\n")
		}
	}
	declared := map[string]bool{"$__rate_interval": true}
	for _, v := range d.Templating.List {
		declared["$"+v.Name] = true
		if v.Type != "query" {
			continue
		}
		if !strings.Contains(queries.String(), "$"+v.Name+`"`) {
			t.Errorf("no panel uses $%s", v.Name)
		}
		var q struct{ Query string }
		if err := json.Unmarshal(v.Query, &q); err != nil {
			t.Errorf("$%s: %v", v.Name, err)
		}
		m := labelValues.FindStringSubmatch(q.Query)
		if m == nil {
			t.Errorf("the query of $%s is %q", v.Name, q.Query)
			continue
		}
		for _, problem := range problems(known, "sum by ("+m[2]+") ("+m[1]+")") {
			t.Errorf("$%s: %s", v.Name, problem)
		}
	}
	for _, used := range regexp.MustCompile(`\$[a-z_]+`).FindAllString(queries.String(), -1) {
		if !declared[used] {
			t.Errorf("%s is used and not declared", used)
		}
	}
	for _, want := range []string{"$datasource", "$instance", "$pool"} {
		if !declared[want] {
			t.Errorf("the variable %s is missing", want)
		}
	}
}
