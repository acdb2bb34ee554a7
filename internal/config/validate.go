package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// validate reports every fault. Where a limit is not obvious the message gives the reason.
func (r *report) validate(c *Config) {
	r.source(&c.Source)
	r.tables(c.Tables)
	r.sink(&c.Sink)
	r.checkpoint(&c.Checkpoint)
	r.retry(&c.Retry)
	r.fallback(&c.Fallback)
	r.retention(c)
	r.goneBefore(c)
	r.reconcile(&c.Reconcile)
	r.lease(&c.Lease, c.Tables)
	r.pipeline(&c.Pipeline)
	r.readBack(&c.ReadBack)
	r.admin(&c.Admin)
	r.alerts(&c.Alerts)
	if c.Tracing.Endpoint != "" {
		r.webAddress("tracing.endpoint", c.Tracing.Endpoint)
	}
	r.OneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	r.OneOf("log.format", c.Log.Format, "json", "text")
}

func (r *report) source(s *Source) {
	if !strings.HasPrefix(s.Address, "/") {
		if s.Address != "" && !strings.Contains(s.Address, ":") {
			s.Address += ":3306"
		}
		r.HostPort("source.address", s.Address, false)
	}
	r.Required("source.user", s.User)
	r.TLS("source.tls", s.TLS, "disabled", "preferred", "required", "verify-ca", "verify-identity")
	r.Between("source.heartbeat", s.Heartbeat, 100*time.Millisecond, 5*time.Minute)
}

// maxSocketPath is the kernel's limit for the path of a unix socket (sun_path), without the final zero.
const maxSocketPath = 107

func (r *report) checkpoint(c *Checkpoint) {
	r.Required("checkpoint.dir", c.Dir)
	if n := len(c.Socket()); n > maxSocketPath {
		r.add("checkpoint.dir", c.Dir, "is too long: the socket in it would have a path of %d bytes, and %d are possible", n,
			maxSocketPath)
	}
}

func (r *report) retry(c *Retry) {
	r.Count("retry.max", c.Max, 0, 1000)
	if c.Backoff.Base != 0 {
		r.Between("retry.backoff.base", c.Backoff.Base, 10*time.Millisecond, 24*time.Hour)
	}
	if c.Backoff.Max != 0 {
		r.Between("retry.backoff.max", c.Backoff.Max, max(c.Backoff.Base, 10*time.Millisecond), 30*24*time.Hour)
	}
	if c.Jitter < 0 || c.Jitter > 0.5 {
		r.add("retry.jitter", fmt.Sprint(c.Jitter), "must be from 0 to 0.5")
	}
	r.schedule("retry.schedule", c.Schedule)
	r.failedEvery("retry.failed_every", c.FailedEvery)
	for _, topic := range slices.Sorted(maps.Keys(c.Topics)) {
		r.attempts("retry.topics."+topic, c.Topics[topic])
	}
	for _, kind := range slices.Sorted(maps.Keys(c.Types)) {
		r.attempts("retry.types."+kind, c.Types[kind])
	}
	if c.Backoff != (Backoff{}) && len(c.Schedule) > 0 {
		r.add("retry.schedule", "", "is set together with retry.backoff: set one of the two")
	}
}

func (r *report) schedule(path string, waits []time.Duration) {
	for i, d := range waits {
		r.Between(fmt.Sprintf("%s[%d]", path, i), d, 10*time.Millisecond, 30*24*time.Hour)
	}
}

// failedEvery checks how often FAILED rows are tried again. Less than a second would be a loop.
func (r *report) failedEvery(path string, every time.Duration) {
	if every != 0 {
		r.Between(path, every, time.Second, 30*24*time.Hour)
	}
}

func (r *report) attempts(path string, a Attempts) {
	r.Count(path+".max", a.Max, 0, 1000)
	r.schedule(path+".schedule", a.Schedule)
}

func (r *report) fallback(f *Fallback) {
	r.Between("fallback.interval", f.Interval, 100*time.Millisecond, 24*time.Hour)
	r.Between("fallback.threshold", f.Threshold, time.Second, 24*time.Hour)
	r.Between("fallback.patience", f.Patience, 100*time.Millisecond, time.Hour)
	r.Count("fallback.batch", f.Batch, 1, 500)
	r.Count("fallback.workers", f.Workers, 1, 16)
	r.Count("fallback.rate", f.Rate, 0, 1_000_000)
	if f.ReadFrom != "" {
		r.HostPort("fallback.read_from", f.ReadFrom, false)
	}
	// A claim must last longer than a message may wait for its answer, or a second process would send it again.
	r.Between("fallback.claim_timeout", f.ClaimTimeout, 10*time.Second, 24*time.Hour)
}

func (r *report) lease(l *Lease, tables []Table) {
	// Less leaves no time to query a busy database a second time.
	r.Between("lease.time", l.Time, time.Second, 10*time.Minute)
	if l.Table == "" {
		return
	}
	r.tableName("lease.table", l.Table)
	if table.IsPattern(l.Table) {
		r.add("lease.table", l.Table, "is a pattern: name one table")
	}
	for i, t := range tables {
		if strings.EqualFold(t.Name, l.Table) {
			r.add("lease.table", l.Table, "is the outbox table tables[%d]: name another one", i)
		}
	}
}

func (r *report) pipeline(p *Pipeline) {
	r.Count("pipeline.max_in_flight", p.MaxInFlight, 1, 1_000_000)
	r.Size("pipeline.max_in_flight_bytes", p.MaxInFlightBytes, setting.MiB, 1<<40)
	r.Size("pipeline.max_transaction_bytes", p.MaxTransactionBytes, setting.MiB, 1<<40)
}

func (r *report) readBack(b *ReadBack) {
	r.Size("read_back.max_bytes", b.MaxBytes, setting.MiB, 1<<40)
	r.Between("read_back.max_time", b.MaxTime, 500*time.Millisecond, time.Minute)
}

// maxPeers is a number that a person can look at, and that may be queried at once.
const maxPeers = 50

func (r *report) peers(peers []Peer) {
	if len(peers) > maxPeers {
		r.add("admin.peers", fmt.Sprint(len(peers)), "has more than %d entries", maxPeers)
	}
	seen := map[string]bool{}
	for i, p := range peers {
		path := fmt.Sprintf("admin.peers[%d].url", i)
		u, err := url.Parse(p.URL)
		switch {
		case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
			r.add(path, p.URL, "is not an address: write http://host:port or https://host:port")
		case u.User != nil || u.RawQuery != "" || u.Fragment != "":
			r.add(path, setting.URL(p.URL).String(), "is not a base address: write scheme, host and port alone; a token goes into token or token_file")
		case seen[p.URL]:
			r.add(path, p.URL, "is there twice")
		}
		seen[p.URL] = true
	}
}

func (r *report) admin(a *Admin) {
	r.peers(a.Peers)
	token, readToken := a.Token.Get(), a.ReadToken.Get()
	if a.Listen == "" {
		if a.Token.Set() {
			r.add("admin.token", setting.Mask, "has no effect while admin.listen is empty")
		}
		if a.ReadToken.Set() {
			r.add("admin.read_token", setting.Mask, "has no effect while admin.listen is empty")
		}
		return
	}
	if !r.HostPort("admin.listen", a.Listen, true) {
		return
	}
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && !loopback(host) && !a.Token.Set() {
		r.add("admin.listen", a.Listen, "can be reached from other machines: set admin.token or admin.token_file, or listen on 127.0.0.1")
	}
	r.long("admin.token", a.Token)
	switch {
	case !a.ReadToken.Set():
	case !a.Token.Set():
		r.add("admin.read_token", setting.Mask, "needs admin.token too: without it every request from this machine may do everything")
	case readToken == token:
		r.add("admin.read_token", setting.Mask, "is the same as admin.token: a reader would have the rights of an operator")
	default:
		r.long("admin.read_token", a.ReadToken)
	}
}

// leastSecret is the number of characters of a secret that others could guess.
const leastSecret = 16

// long refuses a short secret, now and when its file has another one.
func (r *report) long(path string, s setting.Secret) {
	if !s.Set() {
		return
	}
	if text := s.Get(); text != "" && len(text) < leastSecret { // a file that cannot be read is a fault already
		r.add(path, setting.Mask, "is shorter than %d characters and could be guessed", leastSecret)
	}
	s.AtLeast(leastSecret)
}

func (r *report) alerts(a *Alerts) {
	r.Count("alerts.pending_over", a.PendingOver, 0, table.MaxCount-1)
	if a.OldestOver != 0 { // rows are counted every 10 seconds
		r.Between("alerts.oldest_over", a.OldestOver, 10*time.Second, 30*24*time.Hour)
	}
	if a.Webhook == "" {
		if a.Secret.Set() {
			r.add("alerts.secret", setting.Mask, "has no effect while alerts.webhook is empty")
		}
		if a.Digest != "" {
			r.add("alerts.digest", a.Digest, "has no effect while alerts.webhook is empty")
		}
		return
	}
	r.webAddress("alerts.webhook", a.Webhook)
	r.long("alerts.secret", a.Secret)
	if _, err := time.Parse("15:04", a.Digest); a.Digest != "" && (err != nil || len(a.Digest) != 5) {
		r.add("alerts.digest", a.Digest, "is not a time of day: write hours and minutes, such as 08:00")
	}
}

func (r *report) webAddress(path string, address setting.URL) {
	u, err := url.Parse(address.Reveal())
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		r.add(path, address.String(), "is not an address: write http://host/path or https://host/path")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// IsPattern reports whether the name matches several tables.
func (t Table) IsPattern() bool { return table.IsPattern(t.Name) }

func (r *report) tableName(path, name string) {
	schema, local, found := table.SplitName(name)
	switch {
	case name == "":
		r.add(path, "", "is missing: write schema.table")
	case !found || schema == "" || local == "" || strings.Contains(strings.ReplaceAll(local, "..", ""), "."):
		r.add(path, name, "is not a table name: write schema.table")
	case strings.ContainsAny(name, "?[]%"):
		r.add(path, name, "is not a valid pattern: `*` stands for any characters, {00..63} for numbers, {a,b} for words")
	case table.IsPattern(name):
		if err := table.CheckPattern(name); err != nil {
			r.add(path, name, "is no pattern: %v", err)
		}
	case strings.ContainsAny(name, "`\x00/\\") || len(schema) > 64 || len(local) > 64:
		r.add(path, name, "is not a name a table can have")
	}
}

// zone is an offset, or the form of a name; whether the server knows the name is seen when the table is looked at.
var zone = regexp.MustCompile(`^([+-](0\d|1[0-4]):[0-5]\d|[A-Za-z][A-Za-z0-9_/+-]*)$`)
