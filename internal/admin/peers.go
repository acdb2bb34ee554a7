package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/setting"
)

// Peer is another relay whose status the page shows next to ours.
type Peer struct {
	URL   string         // base address of its admin server
	Token setting.Secret // that it asks for; it may be none
}

// PeerStatus is one line about another relay.
type PeerStatus struct {
	URL string `json:"url"`
	// Error says why there is nothing else; "" when it answered.
	Error         string   `json:"error"`
	Version       string   `json:"version"`
	State         string   `json:"state"` // of its status; "" when it did not answer
	UptimeSeconds float64  `json:"uptime_seconds"`
	LagSeconds    *float64 `json:"lag_seconds"`
	Rate          float64  `json:"rate_per_second"`
	Pending       int64    `json:"pending_rows"`
	Failed        int64    `json:"failed_rows"`
	Problems      []string `json:"problems"`
}

const (
	peerTimeout = 2 * time.Second // for all peers together; one that hangs must not make the page wait
	peerAge     = 2 * time.Second
	maxAnswer   = 4 << 20
)

// peers asks other relays for their state. It asks only on a request for it, asks all of them at once, and waits at most
// peerTimeout.
type peers struct {
	list   []Peer
	client *http.Client
	age    time.Duration // a look is as good for everybody who asks in this time

	mu   sync.Mutex
	at   time.Time
	last []PeerStatus
}

func newPeers(list []Peer) *peers {
	return &peers{list: list, age: peerAge, client: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true},
		// A redirect could carry the token to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// look returns the lines in the order of the configuration.
func (p *peers) look(ctx context.Context) []PeerStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil && time.Since(p.at) < p.age {
		return p.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), peerTimeout) // who asks first may go while others wait
	defer cancel()
	now := make([]PeerStatus, len(p.list))
	var asking sync.WaitGroup
	for i, peer := range p.list {
		asking.Go(func() { now[i] = p.ask(ctx, peer) })
	}
	asking.Wait()
	p.last, p.at = now, time.Now()
	return now
}

func (p *peers) ask(ctx context.Context, peer Peer) PeerStatus {
	status, err := p.status(ctx, peer)
	if err != nil {
		line := PeerStatus{URL: peer.URL, Problems: []string{}, Error: err.Error()}
		if errors.Is(err, context.DeadlineExceeded) {
			line.Error = fmt.Sprintf("no answer within %v", peerTimeout)
		}
		return line
	}
	return PeerOf(peer.URL, status)
}

// PeerOf is the line about a relay that has answered.
func PeerOf(url string, s operator.Status) PeerStatus {
	line := PeerStatus{
		URL: url, Version: s.Version, State: s.State, UptimeSeconds: s.UptimeSeconds, LagSeconds: s.Source.LagSeconds, Rate: s.Throughput.Rate,
		Problems: append([]string{}, s.Problems...),
	}
	for _, t := range s.Tables {
		line.Pending, line.Failed = line.Pending+t.Rows["pending"], line.Failed+t.Rows["failed"]
	}
	return line
}

// AskPeers asks other relays, all at once, and returns a line for each in their order, after two seconds at the latest.
func AskPeers(ctx context.Context, list []Peer) []PeerStatus { return newPeers(list).look(ctx) }

func (p *peers) status(ctx context.Context, peer Peer) (s operator.Status, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(peer.URL, "/")+"/api/v1/status", nil)
	if err != nil {
		return s, err
	}
	if token := peer.Token.Get(); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return s, fmt.Errorf("it answered %s: set admin.peers[].token or token_file to its admin.token", response.Status)
	default:
		return s, fmt.Errorf("it answered %s: is this the admin address of a relay?", response.Status)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&s); err != nil {
		return s, fmt.Errorf("its answer is no status: %w", err)
	}
	return s, nil
}
