package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// point has the times of an allocation for a new owner with a number of other attachments, in
// milliseconds: the plugin's calls, and the rest. held is an allocation within the verify interval: no
// plugin, no disk.
type point struct {
	attachments       int
	plugin, own, held sample
}

// measureGrowth measures the points in turns, so that load on the machine affects all of them.
func (b *bench) measureGrowth() {
	var turns []func() point
	for _, size := range []int{10, 100, 1000, 10000} {
		n := b.newNode(fmt.Sprintf("growth-%d", size))
		s := n.daemon(verifyNever, "--log-level=debug", "--log-format=json")
		defer s.stop()
		s.seed(size - 1) // the last one is allocated and kept
		s.allocate(owner)
		log := must(os.Open(n.log()))
		defer log.Close()
		b.growth = append(b.growth, point{attachments: size})
		turns = append(turns, func() point {
			pluginTime(log)
			ip, total := s.allocate("default/new")
			plugin := pluginTime(log)
			s.release(ip)
			_, held := s.allocate(owner)
			return point{plugin: sample{plugin}, own: sample{total - plugin}, held: sample{held}}
		})
	}
	for i := range max(b.pairs/5, 5) + warmUp {
		for k, turn := range turns {
			if now, p := turn(), &b.growth[k]; i >= warmUp {
				p.plugin, p.own, p.held = append(p.plugin, now.plugin...), append(p.own, now.own...), append(p.held, now.held...)
			}
		}
	}
	few, many := b.growth[0], b.growth[len(turns)-1]
	b.add(
		compared("our own time per allocation (total less the plugin's), 10,000 attachments", "ours with 10", comparison{many.own, few.own}, "ratio <= 1.20"),
		compared("held, verified within `--verify-interval`, 10,000 attachments", "ours with 10", comparison{many.held, few.held}, "report"),
	)
}

// pluginTime returns how many ms the plugin calls took in the rest of a daemon's log, which has each of them
// before the response.
func pluginTime(log io.Reader) (sum float64) {
	lines := json.NewDecoder(log)
	for {
		var line struct {
			Msg      string
			Duration time.Duration
		}
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return sum // no further line yet
		}
		failIf(err)
		if line.Msg == "Plugin call ended" {
			sum += ms(line.Duration)
		}
	}
}
