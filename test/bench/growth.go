package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// sizes are the numbers of attachments at which growth is measured.
var sizes = []int{10, 100, 1000, 10000}

// point is the time of an allocation for a new owner with a number of other attachments,
// in milliseconds: the time of the plugin's calls, and the rest.
type point struct {
	Attachments int
	Plugin, Own sample
	// Held is an allocation within the verify interval: no plugin, no disk.
	Held sample
}

// loadedServer is a daemon with a number of attachments, and its log.
type loadedServer struct {
	*server
	log *bufio.Reader
	point
}

// growth measures the points in turns, so that load on the machine affects all of them.
func (b *bench) growth() {
	var all []*loadedServer
	for _, size := range sizes {
		n := b.newNode(fmt.Sprintf("growth-%d", size))
		n.seed(size - 1) // the last one is allocated and kept
		s := n.daemon(verifyNever, "--log-level=debug", "--log-format=json")
		defer s.stop()
		s.allocate(owner)
		all = append(all, &loadedServer{server: s, log: bufio.NewReader(must(os.Open(n.log()))), point: point{Attachments: size}})
	}
	for i := range max(b.pairs/5, 5) + warmUp {
		for _, g := range all {
			g.measure(i >= warmUp)
		}
	}
	for _, g := range all {
		b.report.Growth = append(b.report.Growth, g.point)
	}
	few, many := b.report.Growth[0], b.report.Growth[len(sizes)-1]
	b.report.add(
		compared("our own time per allocation (total less the plugin's), 10,000 attachments", "ours with 10", comparison{many.Own, few.Own}, atMost(1.2)),
		compared("held, verified within `--verify-interval`, 10,000 attachments", "ours with 10", comparison{many.Held, few.Held}, reportOnly()),
	)
}

// measure allocates and releases an address for a new owner, and requests a held one.
func (g *loadedServer) measure(counts bool) {
	g.pluginTime()
	ip, total := g.allocate("default/new")
	plugin := g.pluginTime()
	g.release(ip)
	_, held := g.allocate(owner)
	if counts {
		g.Plugin = append(g.Plugin, ms(plugin))
		g.Own = append(g.Own, ms(total-plugin))
		g.Held = append(g.Held, ms(held))
	}
}

// pluginTime returns how long plugin processes ran since the last call, as the daemon logs it for
// each before it responds.
func (g *loadedServer) pluginTime() (sum time.Duration) {
	for {
		line, err := g.log.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return sum // no further line yet
		}
		failIf(err)
		var entry struct {
			Duration time.Duration `json:"duration"`
		}
		if strings.Contains(line, `"Plugin call ended"`) {
			failIf(json.Unmarshal([]byte(line), &entry))
			sum += entry.Duration
		}
	}
}
