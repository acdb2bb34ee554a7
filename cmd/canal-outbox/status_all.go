package main

import (
	"cmp"
	"context"
	"io"
	"slices"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// fleet is the JSON of status --all.
type fleet struct {
	Relays []admin.PeerStatus `json:"relays"` // this one and its peers, those with problems first
	Total  fleetTotal         `json:"total"`
}

type fleetTotal struct {
	Relays       int     `json:"relays"`
	WithProblems int     `json:"with_problems"` // also those that did not answer
	Rate         float64 `json:"rate_per_second"`
	Pending      int64   `json:"pending_rows"`
	Failed       int64   `json:"failed_rows"`
}

// ownURL stands for the relay of this configuration.
const ownURL = "this relay"

// statusOfAll shows this relay and those of admin.peers. A relay that does not answer is a line with the reason, and keeps no other from being
// shown.
func (c *cli) statusOfAll(ctx context.Context) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	own := admin.PeerStatus{URL: ownURL, Problems: []string{}}
	client, err := c.client()
	if err == nil {
		status, asked := client.Status(ctx)
		if err = asked; err == nil {
			own = admin.PeerOf(ownURL, status)
		}
	}
	if err != nil {
		own.Error = err.Error()
	}
	peers := make([]admin.Peer, len(cfg.Admin.Peers))
	for i, p := range cfg.Admin.Peers {
		peers[i] = admin.Peer{URL: p.URL, Token: p.Token}
	}
	f := fleetOf(append([]admin.PeerStatus{own}, admin.AskPeers(ctx, peers)...))
	if err := c.explain(f, func(w io.Writer) { writeFleet(w, f) }); err != nil {
		return err
	}
	if f.Total.WithProblems > 0 {
		return errProblems
	}
	return nil
}

// badness orders relays: without an answer, stuck, degraded, the others.
func badness(p admin.PeerStatus) int {
	switch {
	case p.Error != "":
		return 3
	case p.State == "stuck":
		return 2
	case p.State != "working" && p.State != "standby":
		return 1
	}
	return 0
}

func fleetOf(lines []admin.PeerStatus) fleet {
	slices.SortStableFunc(lines, func(a, b admin.PeerStatus) int {
		lag := func(p admin.PeerStatus) float64 {
			if p.LagSeconds == nil {
				return 0
			}
			return *p.LagSeconds
		}
		return cmp.Or(badness(b)-badness(a), cmp.Compare(lag(b), lag(a)), cmp.Compare(a.URL, b.URL))
	})
	f := fleet{Relays: lines}
	for _, p := range lines {
		f.Total.Relays++
		if badness(p) > 0 {
			f.Total.WithProblems++
		}
		f.Total.Rate, f.Total.Pending, f.Total.Failed = f.Total.Rate+p.Rate, f.Total.Pending+p.Pending, f.Total.Failed+p.Failed
	}
	return f
}

func writeFleet(w io.Writer, f fleet) {
	line(w, "relay\tstate\tlag\trows/s\tpending\tfailed\tversion")
	for _, p := range f.Relays {
		if p.Error != "" {
			line(w, "%s\tno answer\t-\t-\t-\t-\t-", p.URL)
			line(w, "  !\t%s", p.Error)
			continue
		}
		line(w, "%s\t%s\t%s\t%.0f\t%d\t%d\t%s", p.URL, p.State, seconds(p.LagSeconds), p.Rate, p.Pending, p.Failed, p.Version)
		for _, problem := range p.Problems {
			line(w, "  !\t%s", problem)
		}
	}
	line(w, "%d relays\t%d with problems\t\t%.0f\t%d\t%d\t", f.Total.Relays, f.Total.WithProblems, f.Total.Rate, f.Total.Pending, f.Total.Failed)
}
