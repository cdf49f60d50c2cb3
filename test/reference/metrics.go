package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/doctor"
	daemon "github.com/delegated-ipam/delegated-ipam/internal/daemon/metrics"
	"github.com/delegated-ipam/delegated-ipam/internal/nodenetwork"
	"github.com/delegated-ipam/delegated-ipam/test/catalog"
)

func programs() map[string]prometheus.Gatherer {
	return map[string]prometheus.Gatherer{
		"daemon": daemon.Definitions(), "bridge": bridge.Definitions(), "network": nodenetwork.Definitions(),
	}
}

// metricTables returns the table of the metrics of each program.
func metricTables(string) (map[string]string, error) {
	tables := map[string]string{}
	for program, definitions := range programs() {
		all, err := catalog.Of(definitions)
		if err != nil {
			return nil, err
		}
		var rows [][]string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			m := all[name]
			rows = append(rows, []string{code(name), m.Type + labels(m.Labels), strings.TrimSuffix(m.Help, ".")})
		}
		tables["metrics of "+program] = table(rows, "name", "type and labels", "meaning")
	}
	return tables, nil
}

// labels returns the labels with the values that are known in advance.
func labels(all map[string][]string) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := code(name)
		if all[name] != nil {
			text += " (" + strings.Join(all[name], ", ") + ")"
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return ""
	}
	return ": " + strings.Join(texts, ", ")
}

// checkTable returns the table of the checks of doctor.
func checkTable(string) (map[string]string, error) {
	var rows [][]string
	for _, c := range doctor.Checks() {
		rows = append(rows, []string{code(c.Name), c.Finds})
	}
	return map[string]string{"checks": table(rows, "check", "what holds")}, nil
}
