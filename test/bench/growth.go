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

// point is what an allocation for a new owner takes beside so many attachments,
// in milliseconds: the plugin's processes (DEL and ADD), and the rest.
type point struct {
	Attachments int
	Plugin, Own sample
	// Held is an allocation within the verify interval: no plugin, no disk.
	Held sample
}

// growing is a sidecar with a number of attachments whose log is read.
type growing struct {
	*server
	log *bufio.Reader
	point
}

// growth measures the points in turns, so that all meet the same machine.
func (b *bench) growth() error {
	var all []*growing
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
				if err := g.turn(i >= warmUp); err != nil {
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
		compared("our own time per allocation (total less the plugin's), 10,000 attachments", "ours with 10", contest{many.Own, few.Own}, atMost(1.2)),
		compared("held, verified within `--verify-interval`, 10,000 attachments", "ours with 10", contest{many.Held, few.Held}, reported()),
	)
	return nil
}

// grown starts a sidecar with so many attachments.
func (b *bench) grown(size int) (*growing, error) {
	n, err := b.newNode(fmt.Sprintf("growth-%d", size))
	if err == nil {
		err = n.seed(size - 1) // the last one is allocated and kept
	}
	if err != nil {
		return nil, err
	}
	s, err := n.sidecar(never, "--log-level=debug", "--log-format=json")
	if err != nil {
		return nil, err
	}
	log, err := os.Open(n.log())
	if err == nil {
		_, _, err = s.allocate(owner)
	}
	return &growing{server: s, log: bufio.NewReader(log), point: point{Attachments: size}}, err
}

// turn allocates for a new owner, releases again, and asks for what is held.
func (g *growing) turn(counts bool) error {
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

// pluginTime is how long plugin processes have run since it was last asked, by
// what the sidecar logs of each before it answers.
func (g *growing) pluginTime() (time.Duration, error) {
	var sum time.Duration
	for {
		line, err := g.log.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return sum, nil // the end of what is logged by now
		}
		if err != nil {
			return 0, err
		}
		var said struct {
			Message  string        `json:"msg"`
			Duration time.Duration `json:"duration"`
		}
		if !strings.Contains(line, `"plugin call ended"`) {
			continue
		}
		if err := json.Unmarshal([]byte(line), &said); err != nil {
			return 0, err
		}
		sum += said.Duration
	}
}
