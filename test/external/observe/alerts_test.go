package observe

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// evaluation is the interval of rule evaluations and of samples.
const evaluation = time.Minute

func readAlerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(repository("deploy", "prometheus", "alerts.yaml"), false)
	for _, err := range errs {
		t.Fatal(err)
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice || r.Alert == "" {
				t.Errorf("group %s has a duplicate or unnamed alert %q", g.Name, r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

func TestAlertAnnotations(t *testing.T) {
	known := metrics(t)
	for name, r := range readAlerts(t) {
		for _, problem := range problems(known, r.Expr) {
			t.Errorf("%s: %s", name, problem)
		}
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", name, s)
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", name)
		}
		if want := "https://github.com/delegated-ipam/delegated-ipam/blob/main/docs/troubleshooting.md#" + strings.ToLower(name); r.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook %q; want %q", name, r.Annotations["runbook_url"], want)
		}
	}
}

// of has the labels of every series of a daemon; ofBridge and ofNetwork the
// labels of a bridge and of delegated-ipam-bridge network.
const (
	of        = `job="delegated-ipam",instance="a:1"`
	ofBridge  = `job="delegated-ipam-bridge",instance="a:2"`
	ofNetwork = `job="delegated-ipam-network",instance="a:3"`
)

// Each alert is evaluated on series with one sample per minute, in the notation of promtool, and
// must fire at the end, or must not.
func TestAlerts(t *testing.T) {
	calls := func(outcome, verb, values string) string {
		return `delegated_ipam_plugin_calls_total{` + of + `,plugin="host-local",verb="` + verb + `",outcome="` + outcome + `"} ` + values
	}
	waits := func(under20, all string) []string {
		series := `delegated_ipam_queue_wait_seconds_bucket{` + of + `,queue="process",le=`
		return []string{series + `"10"} ` + under20, series + `"30"} ` + all, series + `"+Inf"} ` + all}
	}
	exhausted := func(free, values string) []string {
		return []string{
			`delegated_ipam_bridge_free_addresses{` + ofBridge + `} ` + free,
			`delegated_ipam_bridge_acquisitions_total{` + ofBridge + `,outcome="exhausted"} ` + values,
		}
	}
	published := func(under30, all string) []string {
		series := `delegated_ipam_bridge_publish_delay_seconds_bucket{` + ofBridge + `,le=`
		return []string{series + `"30"} ` + under30, series + `"60"} ` + all, series + `"+Inf"} ` + all}
	}
	const ofPool = of + `,pool="default",family="ipv4"`
	ranges := func(total, free string) []string {
		return []string{`delegated_ipam_range_addresses{` + ofPool + `} ` + total + `x20`, `delegated_ipam_range_free_addresses{` + ofPool + `} ` + free}
	}
	type inputs map[string][]string
	tests := map[string]struct{ fires, silent inputs }{
		"DelegatedIPAMDown": {
			inputs{"down": {`up{` + of + `} 0x20`}},
			inputs{"up": {`up{` + of + `} 1x20`}, "restarted": {`up{` + of + `} 1x15 0x3`}, "another job": {`up{job="node"} 0x20`}},
		},
		"DelegatedIPAMNotReady": {
			inputs{"not ready": {`delegated_ipam_ready{` + of + `} 0x20`}},
			inputs{"ready": {`delegated_ipam_ready{` + of + `} 1x20`}, "for a moment": {`delegated_ipam_ready{` + of + `} 1x16 0x3`}},
		},
		"DelegatedIPAMReleasePending": {
			inputs{"for half an hour": {`delegated_ipam_pending_release_age_seconds{` + of + `,pool="default"} 0+60x30`}},
			inputs{
				"none":               {`delegated_ipam_pending_release_age_seconds{` + of + `,pool="default"} 0x30`},
				"for ten minutes":    {`delegated_ipam_pending_release_age_seconds{` + of + `,pool="default"} 0+60x10`},
				"just long enough":   {`delegated_ipam_pending_release_age_seconds{` + of + `,pool="default"} 0+60x17`},
				"ended a while ago":  {`delegated_ipam_pending_release_age_seconds{` + of + `,pool="default"} 0+60x30 0x5`},
				"one after the next": {`delegated_ipam_pending_release_age_seconds{` + of + `,pool="default"} 0+60x9 0+60x9 0+60x9`},
			},
		},
		"DelegatedIPAMSpooledDelPending": {
			inputs{"for half an hour": {`delegated_ipam_spooled_del_age_seconds{` + of + `} 0+60x30`}, "since the daemon is back": {`delegated_ipam_spooled_del_age_seconds{` + of + `} 7200+60x10`}},
			inputs{
				"none":               {`delegated_ipam_spooled_del_age_seconds{` + of + `} 0x30`},
				"for ten minutes":    {`delegated_ipam_spooled_del_age_seconds{` + of + `} 0+60x10`},
				"drained at a start": {`delegated_ipam_spooled_del_age_seconds{` + of + `} 7200+60x2 0x5`},
			},
		},
		"DelegatedIPAMRangeAlmostFull": {
			inputs{"a tenth": ranges("253", "25x20"), "nothing": ranges("253", "0x20"), "the only address": ranges("1", "0x20")},
			inputs{"enough": ranges("253", "26x20"), "for five minutes": ranges("253", "26x14 25x5"), "no range": ranges("0", "0x20"), "ranges unknown": {`delegated_ipam_range_used_addresses{` + ofPool + `} 9x20`}},
		},
		"DelegatedIPAMAddressLost": {
			inputs{"lost": {`delegated_ipam_lost_attachments{` + of + `,pool="default"} 0x3 1x10`}},
			inputs{"none": {`delegated_ipam_lost_attachments{` + of + `,pool="default"} 0x20`}, "just lost": {`delegated_ipam_lost_attachments{` + of + `,pool="default"} 0x3 1x3`}, "reacquired": {`delegated_ipam_lost_attachments{` + of + `,pool="default"} 1x20 0x1`}},
		},
		"DelegatedIPAMDuplicateAddress": {
			inputs{"one": {`delegated_ipam_duplicate_addresses_total{` + of + `} 0x10 1x3`}},
			inputs{"none": {`delegated_ipam_duplicate_addresses_total{` + of + `} 0x20`}, "yesterday": {`delegated_ipam_duplicate_addresses_total{` + of + `} 0x3 1x60`}},
		},
		"DelegatedIPAMRecordQuarantined": {
			inputs{"one": {`delegated_ipam_quarantined_records{` + of + `} 1x10`}},
			inputs{"none": {`delegated_ipam_quarantined_records{` + of + `} 0x10`}, "just found": {`delegated_ipam_quarantined_records{` + of + `} 0x10 1x2`}},
		},
		"DelegatedIPAMJournalFailing": {
			inputs{"writes": {`delegated_ipam_journal_failures_total{` + of + `,operation="write"} 0+1x10`, `delegated_ipam_journal_failures_total{` + of + `,operation="remove"} 0x10`}},
			inputs{"none": {`delegated_ipam_journal_failures_total{` + of + `,operation="write"} 0x10`}, "an hour ago": {`delegated_ipam_journal_failures_total{` + of + `,operation="write"} 0 1x60`}},
		},
		"DelegatedIPAMPluginFailing": {
			inputs{
				"every ADD":   {calls("refused", "ADD", "0+1x40"), calls("success", "ADD", "0x40")},
				"most DELs":   {calls("unknown", "DEL", "0+3x40"), calls("success", "DEL", "0+1x40")},
				"not started": {calls("not-started", "ADD", "0+1x40"), calls("success", "ADD", "5x40")},
			},
			inputs{
				"some":                {calls("refused", "ADD", "0+1x40"), calls("success", "ADD", "0+3x40")},
				"CHECK that says no":  {calls("refused", "CHECK", "0+1x40"), calls("success", "CHECK", "0x40")},
				"a failure and quiet": {calls("refused", "ADD", "0 1x40"), calls("success", "ADD", "0x40")},
				"for five minutes":    {calls("refused", "ADD", "0x20 0+1x5"), calls("success", "ADD", "0x26")},
				"nothing is called":   {calls("refused", "ADD", "0x40"), calls("success", "ADD", "0x40")},
			},
		},
		"DelegatedIPAMQueueSlow": {
			inputs{"slow": waits("0+1x40", "0+2x40")},
			inputs{"fast": waits("0+2x40", "0+2x40"), "quiet": waits("0x40", "0x40"), "for five minutes": waits("0x20 0+1x5", "0x20 0+2x5")},
		},
		"DelegatedIPAMBridgeDown": {
			inputs{"down": {`up{` + ofBridge + `} 0x20`}},
			inputs{"up": {`up{` + ofBridge + `} 1x20`}, "restarted": {`up{` + ofBridge + `} 1x20 0x8`}, "the daemon is down": {`up{` + of + `} 0x20`}},
		},
		"DelegatedIPAMBridgeExhausted": {
			inputs{"nothing free": exhausted("0x30", "0+1x30")},
			inputs{"some free": exhausted("3x30", "0+1x30"), "just used up": exhausted("3x20 0x2", "0+1x24"), "nothing free, and not asked in vain": exhausted("0x30", "0x30")},
		},
		"DelegatedIPAMBridgeFailing": {
			inputs{"always": {`delegated_ipam_bridge_reconcile_errors_total{` + ofBridge + `,reason="NotPermitted"} 0+1x40`}},
			inputs{"never": {`delegated_ipam_bridge_reconcile_errors_total{` + ofBridge + `,reason="NotPermitted"} 0x40`}, "once": {`delegated_ipam_bridge_reconcile_errors_total{` + ofBridge + `,reason="NotPermitted"} 0x20 1x8`}},
		},
		"DelegatedIPAMBridgeBlind": {
			inputs{"for an hour": {`delegated_ipam_bridge_observation_age_seconds{` + ofBridge + `} 0+60x60`}},
			inputs{"observes": {`delegated_ipam_bridge_observation_age_seconds{` + ofBridge + `} 30x60`}, "for eight minutes": {`delegated_ipam_bridge_observation_age_seconds{` + ofBridge + `} 0+60x8`}},
		},
		"DelegatedIPAMBridgeWatchDown": {
			inputs{"CiliumNode": {`delegated_ipam_bridge_watch_connected{` + ofBridge + `,resource="ciliumnodes"} 0x20`}},
			inputs{
				"works":         {`delegated_ipam_bridge_watch_connected{` + ofBridge + `,resource="ciliumnodes"} 1x20`},
				"for a moment":  {`delegated_ipam_bridge_watch_connected{` + ofBridge + `,resource="ciliumnodes"} 1x20 0x5`},
				"pods: not on":  {`delegated_ipam_bridge_watch_connected{` + ofBridge + `,resource="pods"} 0x20`},
				"back since 1m": {`delegated_ipam_bridge_watch_connected{` + ofBridge + `,resource="ciliumnodes"} 0x20 1x1`},
			},
		},
		"DelegatedIPAMBridgeShortage": {
			inputs{"for an hour": {`delegated_ipam_bridge_exhausted_seconds{` + ofBridge + `} 0+60x60`}},
			inputs{"none": {`delegated_ipam_bridge_exhausted_seconds{` + ofBridge + `} 0x60`}, "for half an hour": {`delegated_ipam_bridge_exhausted_seconds{` + ofBridge + `} 0+60x30`}},
		},
		"DelegatedIPAMBridgeSlow": {
			inputs{"slow": published("0+1x40", "0+2x40")},
			inputs{"fast": published("0+2x40", "0+2x40"), "nothing published": published("0x40", "0x40"), "for five minutes": published("0x20 0+1x5", "0x20 0+2x5")},
		},
		"DelegatedIPAMBridgeAgentSilent": {
			inputs{"for an hour": {`delegated_ipam_bridge_agent_silence_seconds{` + ofBridge + `} 0+60x60`}},
			inputs{"responds": {`delegated_ipam_bridge_agent_silence_seconds{` + ofBridge + `} 15x60`}, "for a quarter": {`delegated_ipam_bridge_agent_silence_seconds{` + ofBridge + `} 0+60x15 0x30`}},
		},
		"DelegatedIPAMNetworkDown": {
			inputs{"down": {`up{` + ofNetwork + `} 0x20`}},
			inputs{"up": {`up{` + ofNetwork + `} 1x20`}, "restarted": {`up{` + ofNetwork + `} 1x20 0x8`}, "the bridge is down": {`up{` + ofBridge + `} 0x20`}},
		},
		"DelegatedIPAMNetworkNotRendered": {
			inputs{"never": {`delegated_ipam_network_rendered{` + ofNetwork + `} 0x20`}},
			inputs{"rendered": {`delegated_ipam_network_rendered{` + ofNetwork + `} 1x20`}, "for a moment": {`delegated_ipam_network_rendered{` + ofNetwork + `} 1x20 0x8`}},
		},
	}
	alerts := readAlerts(t)
	for name, r := range alerts {
		tt, ok := tests[name]
		if !ok || len(tt.fires) == 0 || len(tt.silent) == 0 {
			t.Errorf("%s lacks a test in which it fires, or is silent", name)
			continue
		}
		for want, cases := range map[bool]inputs{true: tt.fires, false: tt.silent} {
			for input, series := range cases {
				t.Run(name+"/"+input, func(t *testing.T) {
					got := firing(t, r, series)
					if (len(got) > 0) != want {
						t.Errorf("the alert fires %d times; want it to fire: %v", len(got), want)
					}
					for _, a := range got {
						wantExpanded(t, a)
					}
				})
			}
		}
	}
	for name := range tests {
		if _, ok := alerts[name]; !ok {
			t.Errorf("%s is tested and is not an alert", name)
		}
	}
}

// firing evaluates an alert from the first to the last sample, as the server does, and returns the
// alerts that fire then.
func firing(t *testing.T, r rulefmt.Rule, series []string) []*rules.Alert {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load "+evaluation.String()+"\n  "+strings.Join(series, "\n  "))
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	expr, err := parser.ParseExpr(r.Expr)
	check.Must(t, err)
	rule := rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), time.Duration(r.KeepFiringFor),
		labels.FromMap(r.Labels), labels.FromMap(r.Annotations), labels.EmptyLabels(), "", false, promslog.NewNopLogger())
	samples := 0
	for _, s := range series {
		_, values, err := parser.ParseSeriesDesc(s)
		check.Must(t, err)
		samples = max(samples, len(values))
	}
	for i := range samples {
		at := time.Unix(0, 0).Add(time.Duration(i) * evaluation)
		if _, err := rule.Eval(context.Background(), 0, at, rules.EngineQueryFunc(engine, storage), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	return slices.DeleteFunc(rule.ActiveAlerts(), func(a *rules.Alert) bool { return a.State != rules.StateFiring })
}

// wantExpanded wants annotations without unexpanded or empty templates.
func wantExpanded(t *testing.T, a *rules.Alert) {
	t.Helper()
	a.Annotations.Range(func(l labels.Label) {
		for _, trace := range []string{"{{", "<error", "<no value>", " ,", "  ", "of  "} {
			if strings.Contains(l.Value, trace) {
				t.Errorf("the annotation %s reads %q", l.Name, l.Value)
			}
		}
	})
	if a.Labels.Get("instance") == "" {
		t.Errorf("the labels lack the instance: %s", a.Labels)
	}
}
