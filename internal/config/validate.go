package config

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// validate reports everything that is wrong with the whole. Where a limit is not obvious the message gives the reason.
func (r *report) validate(c *Config) {
	r.source(&c.Source)
	r.tables(c.Tables)
	r.sink(&c.Sink)
	r.checkpoint(&c.Checkpoint)
	r.retry(&c.Retry)
	r.fallback(&c.Fallback)
	r.pipeline(&c.Pipeline)
	r.admin(&c.Admin)
	r.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	r.oneOf("log.format", c.Log.Format, "json", "text")
}

func (r *report) source(s *Source) {
	if !strings.HasPrefix(s.Address, "/") {
		if s.Address != "" && !strings.Contains(s.Address, ":") {
			s.Address += ":3306"
		}
		r.hostPort("source.address", s.Address)
	}
	r.required("source.user", s.User)
	r.tls("source.tls", s.TLS, "disabled", "preferred", "required", "verify-ca", "verify-identity")
	r.between("source.heartbeat", s.Heartbeat, 100*time.Millisecond, 5*time.Minute)
}

func (r *report) tls(path string, t TLS, modes ...string) {
	r.oneOf(path+".mode", t.Mode, modes...)
	for _, file := range []struct{ key, value string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if t.Mode == "disabled" && file.value != "" {
			r.add(path+"."+file.key, file.value, "has no effect while %s.mode is disabled", path)
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		r.add(path, "", "cert and key belong together: set both or none")
	}
	if t.CA != "" && (t.Mode == "required" || t.Mode == "preferred") {
		r.add(path+".ca", t.CA, "has no effect in the mode %s, which verifies nothing: use verify-ca or verify-identity", t.Mode)
	}
}

func (r *report) sink(s *Sink) {
	var set []string
	if s.RocketMQ != nil {
		set = append(set, "rocketmq")
		r.rocketMQ(s.RocketMQ)
	}
	if s.Kafka != nil {
		set = append(set, "kafka")
		r.kafka(s.Kafka)
	}
	if s.Stdout != nil {
		set = append(set, "stdout")
	}
	switch len(set) {
	case 0:
		r.add("sink", "", "no sink is set: write one of rocketmq, kafka, stdout")
	case 1:
	default:
		r.add("sink", strings.Join(set, ", "), "exactly one sink can be set")
	}
}

func (r *report) rocketMQ(s *RocketMQ) {
	r.hostPorts("sink.rocketmq.name_servers", s.NameServers)
	r.required("sink.rocketmq.group", s.Group)
	r.size("sink.rocketmq.max_message_bytes", s.MaxMessageBytes, 1<<10, 15*mebibyte) // a larger frame closes the connection
	r.oneOf("sink.rocketmq.durability", s.Durability, "lenient", "strict")
	if (s.AccessKey == "") != (s.SecretKey == "") {
		r.add("sink.rocketmq", "", "access_key and secret_key belong together: set both or none")
	}
	if s.TLS != nil {
		r.add("sink.rocketmq.tls", s.TLS.Mode, "the RocketMQ client has no TLS: connect over a private network or a tunnel "+
			"that encrypts, and remove this key")
	}
}

func (r *report) kafka(s *Kafka) {
	r.hostPorts("sink.kafka.brokers", s.Brokers)
	r.tls("sink.kafka.tls", s.TLS, "disabled", "required", "verify-ca", "verify-identity")
	r.oneOf("sink.kafka.compression", s.Compression, "none", "gzip", "snappy", "lz4", "zstd")
	// Below a kilobyte hardly a record fits; above a gigabyte the protocol's own 32-bit sizes end.
	r.size("sink.kafka.max_message_bytes", s.MaxMessageBytes, 1<<10, 1<<30)
	if s.SASL.Mechanism == "" {
		if s.SASL.User != "" || s.SASL.Password != "" {
			r.add("sink.kafka.sasl.mechanism", "", "is missing: write plain, scram-sha-256 or scram-sha-512")
		}
		return
	}
	r.oneOf("sink.kafka.sasl.mechanism", s.SASL.Mechanism, "plain", "scram-sha-256", "scram-sha-512")
	r.required("sink.kafka.sasl.user", s.SASL.User)
	if s.SASL.Password == "" {
		r.add("sink.kafka.sasl.password", "", "is missing: set it, or password_file")
	}
}

// maxSocketPath is what the kernel takes for the path of a unix socket (sun_path), the final zero not counted.
const maxSocketPath = 107

func (r *report) checkpoint(c *Checkpoint) {
	r.required("checkpoint.dir", c.Dir)
	if n := len(c.Socket()); n > maxSocketPath {
		r.add("checkpoint.dir", c.Dir, "is too long: the socket in it would have a path of %d bytes, and %d are possible", n,
			maxSocketPath)
	}
}

func (r *report) retry(c *Retry) {
	r.count("retry.max", c.Max, 1, 1000)
	r.between("retry.backoff.base", c.Backoff.Base, 10*time.Millisecond, 24*time.Hour)
	r.between("retry.backoff.max", c.Backoff.Max, c.Backoff.Base, 30*24*time.Hour)
	for i, d := range c.Schedule {
		r.between(fmt.Sprintf("retry.schedule[%d]", i), d, 10*time.Millisecond, 30*24*time.Hour)
	}
	_, explicit := r.places["retry.backoff"]
	if explicit && len(c.Schedule) > 0 {
		r.add("retry.schedule", "", "is set together with retry.backoff: set one of the two")
	}
}

func (r *report) fallback(f *Fallback) {
	r.between("fallback.interval", f.Interval, 100*time.Millisecond, 24*time.Hour)
	r.between("fallback.threshold", f.Threshold, time.Second, 24*time.Hour)
	r.between("fallback.patience", f.Patience, 100*time.Millisecond, time.Hour)
	r.count("fallback.batch", f.Batch, 1, 500)
	// A claim must outlive the time a message may wait for its answer, or a second process would send it again.
	r.between("fallback.claim_timeout", f.ClaimTimeout, 10*time.Second, 24*time.Hour)
}

func (r *report) pipeline(p *Pipeline) {
	r.count("pipeline.max_in_flight", p.MaxInFlight, 1, 1_000_000)
	r.size("pipeline.max_in_flight_bytes", p.MaxInFlightBytes, mebibyte, 1<<40)
	r.size("pipeline.max_transaction_bytes", p.MaxTransactionBytes, mebibyte, 1<<40)
}

func (r *report) admin(a *Admin) {
	if a.Listen == "" {
		if a.Token != "" {
			r.add("admin.token", a.Token.String(), "has no effect while admin.listen is empty")
		}
		return
	}
	if !r.hostPort("admin.listen", a.Listen) {
		return
	}
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && !loopback(host) && a.Token == "" {
		r.add("admin.listen", a.Listen, "can be reached from other machines: set admin.token or admin.token_file, or listen on 127.0.0.1")
	}
	if a.Token != "" && len(a.Token) < 16 {
		r.add("admin.token", a.Token.String(), "is shorter than 16 characters and could be guessed")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (r *report) tables(tables []Table) {
	if len(tables) == 0 {
		r.add("tables", "", "no table is named: write at least one, with name and preset")
	}
	seen := map[string]int{}
	for i, t := range tables {
		path := fmt.Sprintf("tables[%d]", i)
		if first, twice := seen[t.Name]; twice && t.Name != "" {
			r.add(path+".name", t.Name, "is named by tables[%d] already", first)
		}
		seen[t.Name] = i
		r.tableName(path+".name", t.Name)
		r.oneOf(path+".preset", t.Preset, table.Presets()...)
		for _, role := range slices.Sorted(maps.Keys(t.Columns)) {
			if _, err := table.ParseColumn(role); err != nil {
				r.add(path+".columns."+role, t.Columns[role], "%v", err)
			}
		}
		for _, status := range slices.Sorted(maps.Keys(t.Codes)) {
			if _, err := ParseStatus(status); err != nil {
				r.add(path+".codes."+status, t.Codes[status], "%v", err)
			}
		}
		if t.TimeZone != "" && !zone.MatchString(t.TimeZone) {
			r.add(path+".time_zone", t.TimeZone, "is not a time zone: write an offset such as +08:00 or a name the server knows")
		}
	}
}

func (r *report) tableName(path, name string) {
	schema, table, found := strings.Cut(name, ".")
	switch {
	case name == "":
		r.add(path, "", "is missing: write schema.table")
	case !found || schema == "" || table == "" || strings.Contains(table, "."):
		r.add(path, name, "is not a table name: write schema.table")
	case strings.ContainsAny(name, "*?{}[]%"):
		r.add(path, name, "looks like a pattern: write the exact name, one entry for each table")
	case strings.ContainsAny(name, "`\x00/\\") || len(schema) > 64 || len(table) > 64:
		r.add(path, name, "is not a name a table can have")
	}
}

// zone is an offset, or the form of a name; whether the server knows the name is seen when the table is looked at.
var zone = regexp.MustCompile(`^([+-](0\d|1[0-4]):[0-5]\d|[A-Za-z][A-Za-z0-9_/+-]*)$`)

// ParseStatus reads a status that has a code.
func ParseStatus(name string) (outbox.Status, error) {
	for s := outbox.Pending; s <= outbox.Failed; s++ {
		if name == s.String() {
			return s, nil
		}
	}
	return 0, fmt.Errorf("status %q is unknown: use pending, sending, sent, failed", name)
}

func (r *report) required(path, value string) {
	if value == "" {
		r.add(path, "", "is missing")
	}
}

func (r *report) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		r.add(path, value, "must be one of %s", strings.Join(allowed, ", "))
	}
}

func (r *report) between(path string, d, low, high time.Duration) {
	if d < low || d > high {
		r.add(path, short(d), "must be from %s to %s", short(low), short(high))
	}
}

// short is a duration without its trailing zero parts: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (r *report) count(path string, n, low, high int) {
	if n < low || n > high {
		r.add(path, strconv.Itoa(n), "must be from %d to %d", low, high)
	}
}

func (r *report) size(path string, n, low, high Bytes) {
	if n < low || n > high {
		r.add(path, n.String(), "must be from %v to %v", low, high)
	}
}

func (r *report) hostPorts(path string, list []string) {
	if len(list) == 0 {
		r.add(path, "", "is missing: write at least one host:port")
	}
	for i, address := range list {
		r.hostPort(fmt.Sprintf("%s[%d]", path, i), address)
	}
}

func (r *report) hostPort(path, address string) bool {
	if address == "" {
		r.add(path, "", "is missing: write host:port")
		return false
	}
	host, port, err := net.SplitHostPort(address)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || (n == 0 && !strings.HasPrefix(path, "admin.")) || strings.ContainsAny(host, "/@ ") {
		r.add(path, address, "is not host:port")
		return false
	}
	return true
}
