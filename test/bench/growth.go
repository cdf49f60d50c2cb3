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
// in milliseconds: the time of the plugin's processes, and the rest.
type point struct {
	Attachments int
	Plugin, Own sample
	// Held is an allocation within the verify interval: no plugin, no disk.
	Held sample
}

// loadedServer is a sidecar with a number of attachments, and its log.
type loadedServer struct {
	*server
	log *bufio.Reader
	point
}

// growth measures the points in turns, so that load on the machine affects all of them.
func (b *bench) growth() error {
	var all []*loadedServer
	err := func() error {
		for _, size := range sizes {
			g, err := b.grown(size)
			if err != nil {
				return err
			}
			all = append(all, g)
		}
		for i := range max(b.pairs/5, 5) + warmUp {
			for _, g := range all {
				if err := g.measure(i >= warmUp); err != nil {
					return err
				}
			}
		}
		return nil
	}()
	for _, g := range all {
		err = errors.Join(err, g.stop())
		b.report.Growth = append(b.report.Growth, g.point)
	}
	if err != nil {
		return err
	}
	few, many := b.report.Growth[0], b.report.Growth[len(sizes)-1]
	b.report.add(
		compared("our own time per allocation (total less the plugin's), 10,000 attachments", "ours with 10", comparison{many.Own, few.Own}, atMost(1.2)),
		compared("held, verified within `--verify-interval`, 10,000 attachments", "ours with 10", comparison{many.Held, few.Held}, reportOnly()),
	)
	return nil
}

// grown starts a sidecar with a number of attachments.
func (b *bench) grown(size int) (*loadedServer, error) {
	n, err := b.newNode(fmt.Sprintf("growth-%d", size))
	if err == nil {
		err = n.seed(size - 1) // the last one is allocated and kept
	}
	if err != nil {
		return nil, err
	}
	s, err := n.sidecar(verifyNever, "--log-level=debug", "--log-format=json")
	if err != nil {
		return nil, err
	}
	log, err := os.Open(n.log())
	if err == nil {
		_, _, err = s.allocate(owner)
	}
	return &loadedServer{server: s, log: bufio.NewReader(log), point: point{Attachments: size}}, err
}

// measure allocates and releases an address for a new owner, and requests a held one.
func (g *loadedServer) measure(counts bool) error {
	if _, err := g.pluginTime(); err != nil {
		return err
	}
	ip, total, err := g.allocate("default/new")
	if err != nil {
		return err
	}
	plugin, err := g.pluginTime()
	if err != nil {
		return err
	}
	if _, err = g.release(ip); err != nil {
		return err
	}
	_, held, err := g.allocate(owner)
	if counts {
		g.Plugin.add(plugin)
		g.Own.add(total - plugin)
		g.Held.add(held)
	}
	return err
}

// pluginTime returns how long plugin processes ran since the last call, as the sidecar logs it for
// each before it responds.
func (g *loadedServer) pluginTime() (time.Duration, error) {
	var sum time.Duration
	for {
		line, err := g.log.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return sum, nil // no further line yet
		}
		if err != nil {
			return 0, err
		}
		var entry struct {
			Message  string        `json:"msg"`
			Duration time.Duration `json:"duration"`
		}
		if !strings.Contains(line, `"Plugin call ended"`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			return 0, err
		}
		sum += entry.Duration
	}
}
