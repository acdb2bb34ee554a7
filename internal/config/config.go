// Package config reads the operator's configuration: one YAML file, overridden by environment variables, checked as a whole.
//
// Guarantee: a Config returned by Load is complete and consistent, and all faults are reported at once, each with its path, its
// value and the reason. A secret leaves this package only through setting.Secret.Get: never in an error, in Print or in a
// formatted value. It imports no sink: each brings its section (Section). The package owns no goroutine, and its only I/O is
// reading the named files.
package config

import (
	"cmp"
	"errors"
	"path/filepath"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Config is the whole configuration. The comments of its fields are the reference page docs/configuration.md.
type Config struct {
	// Source is the MySQL or MariaDB server whose binlog is read and whose tables are relayed.
	Source Source `yaml:"source"`
	// Tables are the outbox tables, each name once.
	Tables []Table `yaml:"tables"`
	// Sink is the broker that takes the messages: exactly one of its keys.
	Sink Sink `yaml:"sink"`
	// Checkpoint is where the relay keeps its own state.
	Checkpoint Checkpoint `yaml:"checkpoint"`
	// Retry says how often and when a message that the broker refused is sent again. Outages cost no attempts.
	Retry Retry `yaml:"retry"`
	// Fallback is the sweep over the tables, which publishes what the binlog did not deliver.
	Fallback Fallback `yaml:"fallback"`
	// Retention deletes or archives final rows, once one of its ages is set.
	Retention Retention `yaml:"retention"`
	// Reconcile compares tables and topics on a schedule.
	Reconcile Reconcile `yaml:"reconcile"`
	// Lease makes one of several relays of the same tables active; the others are standbys.
	Lease Lease `yaml:"lease"`
	// Pipeline bounds what is in memory.
	Pipeline Pipeline `yaml:"pipeline"`
	// ReadBack finds in the topics, at a start after a kill, what the killed process had sent and not recorded.
	ReadBack ReadBack `yaml:"read_back"`
	// Admin is the HTTP server with metrics, health, the dashboard and the API.
	Admin Admin `yaml:"admin"`
	// Alerts are messages to a webhook about rows that became FAILED.
	Alerts Alerts `yaml:"alerts"`
	// Tracing sends spans of sampled messages to an OpenTelemetry collector.
	Tracing Tracing `yaml:"tracing"`
	// Log is the service's own log, on standard error.
	Log Log `yaml:"log"`
}

// Source is the database server.
type Source struct {
	// Address is host:port of the primary, or the path of its unix socket. The port defaults to 3306.
	Address string `yaml:"address"`
	// User is the account; `canal-outbox doctor` prints the grants it needs.
	User string `yaml:"user"`
	// Password of the account.
	Password setting.Secret `yaml:"password"`
	// PasswordFile is a file that holds the password; one line break at its end is ignored.
	PasswordFile setting.File `yaml:"password_file"`
	// TLS of every connection to the server.
	TLS setting.TLS `yaml:"tls"`
	// Heartbeat is the interval of an idle server's signs of life. Three missing ones end the connection.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// ServerID is the id of the reader, unique among the server's replicas. 0 chooses one.
	ServerID uint32 `yaml:"server_id"`
}

// Redeliver is for tables into which consumers write that they are done.
type Redeliver struct {
	// After is the age, such as `10m`, at which a SENT row is sent again, and the time between two sends.
	After time.Duration `yaml:"after"`
	// Until is the consumers' state that ends redelivery, a name of `codes`. Empty: `consumed`.
	Until string `yaml:"until"`
	// Max is the number of times a row is sent again; 0 means 3.
	Max int `yaml:"max"`
	// StateQuery is the http or https address of a service that says which messages are finished. Those get the code of `until` and are not sent
	// again.
	StateQuery setting.URL `yaml:"state_query"`
}

// Rule returns the rule for package table.
func (r Redeliver) Rule() table.Redeliver {
	if r.After == 0 {
		return table.Redeliver{}
	}
	return table.Redeliver{After: r.After, Until: cmp.Or(r.Until, "consumed"), Max: cmp.Or(r.Max, 3), Query: r.StateQuery.Reveal()}
}

// Topic is the rule for the topic of a row.
type Topic struct {
	// Template is the long form of a constant or a template.
	Template string `yaml:"template"`
	// Column is the column whose value map translates into a topic.
	Column string `yaml:"column"`
	// Map is the topic of each value of column.
	Map map[string]string `yaml:"map"`
	// Default is the topic of every other value. Without it such a row is FAILED with the reason.
	Default string `yaml:"default"`
}

// IsZero reports whether there is no rule: the column that is mapped as the topic holds it.
func (t Topic) IsZero() bool {
	return t.Template == "" && t.Column == "" && len(t.Map) == 0 && t.Default == ""
}

// Rule returns the rule for package table; the error completes the sentence "the value ...".
func (t Topic) Rule() (table.TopicRule, error) {
	switch {
	case t.Template != "" && (t.Column != "" || len(t.Map) > 0 || t.Default != ""):
		return table.TopicRule{}, errors.New("has a template and a map: set one of the two")
	case t.Template != "":
		return table.ParseTopic(t.Template)
	case t.Column == "" || len(t.Map) == 0:
		return table.TopicRule{}, errors.New("needs column and map together, or a template alone")
	}
	return table.TopicRule{Column: t.Column, Topics: t.Map, Default: t.Default}, nil
}

// Checkpoint is the state directory.
type Checkpoint struct {
	// Dir holds positions, journal, gaps and the unix socket of the commands. It belongs to one process and should survive restarts.
	Dir string `yaml:"dir"`
}

// Socket is the unix socket over which commands reach the running relay.
func (c Checkpoint) Socket() string { return filepath.Join(c.Dir, "admin.sock") }

// Retry is the limit of the sends of a refused message, and the waiting time between them.
type Retry struct {
	// Max is the number of sends or retries (`tables[].attempts`) after which a refused row becomes FAILED; the max_retry column has priority.
	// 0: as the layout's owners have it (`message-state` 10 sends, `order-chain` 5 sends, others 5 retries).
	Max int `yaml:"max"`
	// Backoff doubles the waiting time with each retry. Without base, max and schedule the layout's owners decide (`order-chain` from 2 s,
	// `message-state` always 10 m, `local_message_table` 1, 5, 30, 60, 120 m, others from 1 s; to 2 h).
	Backoff Backoff `yaml:"backoff"`
	// Jitter is the largest random fraction of a waiting time. 0: exact times.
	Jitter float64 `yaml:"jitter"`
	// Schedule lists the waiting times; the last one repeats. Not together with backoff.
	Schedule []time.Duration `yaml:"schedule"`
	// Topics overrides `max` and `schedule` by topic, with priority over tables[].retry.
	Topics map[string]Attempts `yaml:"topics"`
	// Types overrides `max` and `schedule` by the value of the column biz_type, with priority over topics.
	Types map[string]Attempts `yaml:"types"`
	// FailedEvery is the age, such as `6h`, at which FAILED rows are retried. 0: never.
	FailedEvery time.Duration `yaml:"failed_every"`
}

// TableRetry is what is different for a table. What is left out is that of `retry`.
type TableRetry struct {
	// Max is as `retry.max`; 0 keeps that.
	Max int `yaml:"max"`
	// Schedule is as `retry.schedule`; an empty one keeps that.
	Schedule []time.Duration `yaml:"schedule"`
	// FailedEvery is as `retry.failed_every`; 0 keeps that.
	FailedEvery time.Duration `yaml:"failed_every"`
}

// Attempts returns those of a table.
func (t TableRetry) Attempts() Attempts { return Attempts{Max: t.Max, Schedule: t.Schedule} }

// Attempts is what is different for a topic or a business type. What is left out is that of the table, or of `retry`.
type Attempts struct {
	// Max is as `retry.max`; 0 keeps that.
	Max int `yaml:"max"`
	// Schedule is as `retry.schedule`; an empty one keeps that.
	Schedule []time.Duration `yaml:"schedule"`
}

// Backoff is a doubling waiting time.
type Backoff struct {
	// Base is the first waiting time.
	Base time.Duration `yaml:"base"`
	// Max is the longest waiting time.
	Max time.Duration `yaml:"max"`
}

// Fallback is the sweep.
type Fallback struct {
	// Interval between two sweeps.
	Interval time.Duration `yaml:"interval"`
	// Threshold is the age from which a sweep publishes a row without a due time, except after a gap.
	Threshold time.Duration `yaml:"threshold"`
	// Patience is how long a sweep waits for a binlog reader that makes no progress.
	Patience time.Duration `yaml:"patience"`
	// Batch is the number of rows that are claimed and published together, at most 500.
	Batch int `yaml:"batch"`
	// Workers is the number of batches of a table that are claimed in parallel and held in memory: faster where the database is far away or its
	// disks are slow. It is 1 with a rate, and for tables with `ordering: key`.
	Workers int `yaml:"workers"`
	// Rate is the largest number of rows per second that sweeps publish. 0: no limit.
	Rate int `yaml:"rate"`
	// ReadFrom is host:port of a replica on which regular sweeps search for rows, with the account and TLS of source. Empty: the primary.
	ReadFrom string `yaml:"read_from"`
	// ClaimTimeout is the age after which the claim of a crashed process is taken over.
	ClaimTimeout time.Duration `yaml:"claim_timeout"`
}

// Reconcile compares the tables with the topics on a schedule. Metrics, status and alerts have the result.
type Reconcile struct {
	// Every is the time between two comparisons, such as `24h`. 0: off.
	Every time.Duration `yaml:"every"`
}

// Retention takes final rows out of the tables. The ages are by the database's clock: of sent_at if the table has it, else of
// last_exec_time, updated_at or created_at.
type Retention struct {
	// Sent is the age, such as `168h`, at which SENT rows, and rows in the consumers' state `consumed`, are deleted, at least a minute. 0:
	// never.
	Sent time.Duration `yaml:"sent"`
	// Archive is the age at which these rows move to the table with the suffix `_archive` instead.
	Archive time.Duration `yaml:"archive"`
	// Failed is the age at which FAILED rows move to the table with the suffix `_failed`. 0: never.
	Failed time.Duration `yaml:"failed"`
	// Window is the part of the day in which rows leave, such as `02:00-05:00`, by the database's clock in the table's zone. Empty: always.
	Window string `yaml:"window"`
	// MaxReplicaLag is the lag of the replica of `fallback.read_from` above which no rows leave. 0: any lag.
	MaxReplicaLag time.Duration `yaml:"max_replica_lag"`
}

// Lease selects the active one of several relays.
type Lease struct {
	// Enabled uses the lease. Without it, or without its table or privilege, the relay runs alone.
	Enabled bool `yaml:"enabled"`
	// Time is how long the active relay may publish without the database's confirmation. Another relay takes over within twice this time after a
	// crash.
	Time time.Duration `yaml:"time"`
	// Table is schema.table of the lease table, the same for all relays of a table. Empty: `canal_outbox_lease` in the schema of the first entry
	// of tables.
	Table string `yaml:"table"`
}

// Pipeline holds the memory bounds.
type Pipeline struct {
	// MaxInFlight is the number of messages that may wait for the broker's answer.
	MaxInFlight int `yaml:"max_in_flight"`
	// MaxInFlightBytes is their total size.
	MaxInFlightBytes setting.Bytes `yaml:"max_in_flight_bytes"`
	// MaxTransactionBytes is the size of mapped rows in one transaction above which the sweep publishes them.
	MaxTransactionBytes setting.Bytes `yaml:"max_transaction_bytes"`
}

// ReadBack is the look into the topics after a kill.
type ReadBack struct {
	// Enabled makes a start after a kill on the same state directory read the topics of the rows that it is about to send, so that it does not
	// send copies. The account needs READ on the topics (RocketMQ: SUB on the topics and the group).
	Enabled bool `yaml:"enabled"`
	// MaxBytes is the size of ids and bodies up to which topics are read. Beyond it rows are sent that may be copies.
	MaxBytes setting.Bytes `yaml:"max_bytes"`
	// MaxTime is the time for which messages may wait for their topics to be read; those of a sweep may wait twice.
	MaxTime time.Duration `yaml:"max_time"`
}

// Admin is the HTTP server.
type Admin struct {
	// Listen is host:port, or empty for none. An address other than loopback needs a token.
	Listen string `yaml:"listen"`
	// Token is required in every HTTP request (`Authorization: Bearer ...`) except health checks. It allows everything.
	Token setting.Secret `yaml:"token"`
	// TokenFile is a file that holds the token.
	TokenFile setting.File `yaml:"token_file"`
	// ReadToken is a second token that allows reading, but no message bodies.
	ReadToken setting.Secret `yaml:"read_token"`
	// ReadTokenFile is a file that holds the read token.
	ReadTokenFile setting.File `yaml:"read_token_file"`
	// Peers are other relays that the dashboard shows, one line each.
	Peers []Peer `yaml:"peers"`
}

// Peer is another relay.
type Peer struct {
	// URL is the base address of its admin server, such as `http://relay-2.internal:9180`.
	URL string `yaml:"url"`
	// Token is the token that it requires.
	Token setting.Secret `yaml:"token"`
	// TokenFile is a file that holds the token.
	TokenFile setting.File `yaml:"token_file"`
}

// Alerts is the webhook.
type Alerts struct {
	// Webhook is the http or https address that receives a JSON message when rows become FAILED. Only its host is ever shown.
	Webhook setting.URL `yaml:"webhook"`
	// Secret signs each message (HMAC-SHA256). Empty: no signature.
	Secret setting.Secret `yaml:"secret"`
	// SecretFile is a file that holds the secret.
	SecretFile setting.File `yaml:"secret_file"`
	// Digest is the time of day, such as `08:00` by the relay's local clock, of a daily message with counts. Empty: none.
	Digest string `yaml:"digest"`
	// PendingOver is the number of due and unsent rows of one table above which status has a problem and the webhook gets a message, at most
	// 99,999. 0: none.
	PendingOver int `yaml:"pending_over"`
	// OldestOver is the same for the age of the oldest of these rows, such as `5m`.
	OldestOver time.Duration `yaml:"oldest_over"`
}

// Tracing is where spans go.
type Tracing struct {
	// Endpoint is the http or https address of an OTLP collector, such as `http://127.0.0.1:4318`. Empty: none.
	Endpoint setting.URL `yaml:"endpoint"`
}

// Log is the service's log.
type Log struct {
	// Level is the lowest level that is written: `debug`, `info`, `warn` or `error`.
	Level string `yaml:"level"`
	// Format is `json` or `text`.
	Format string `yaml:"format"`
}

// Default returns the default values of all keys. The section of a sink has its defaults in the sink's package.
func Default() Config {
	return Config{
		Source:     Source{TLS: setting.TLS{Mode: "preferred"}, Heartbeat: time.Second},
		Checkpoint: Checkpoint{Dir: "/var/lib/canal-outbox"},
		Retry:      Retry{Jitter: 0.2},
		Fallback: Fallback{
			Interval: 30 * time.Second, Threshold: time.Minute, Patience: 10 * time.Second,
			Batch: 500, Workers: 1, ClaimTimeout: time.Minute,
		},
		Lease:    Lease{Enabled: true, Time: 10 * time.Second},
		Pipeline: Pipeline{MaxInFlight: 8192, MaxInFlightBytes: 64 * setting.MiB, MaxTransactionBytes: 64 * setting.MiB},
		ReadBack: ReadBack{Enabled: true, MaxBytes: 64 * setting.MiB, MaxTime: 5 * time.Second},
		Admin:    Admin{Listen: "127.0.0.1:9180"},
		Log:      Log{Level: "info", Format: "json"},
	}
}

// Documented returns the defaults with every optional section, one empty table and one peer, for the reference page.
func Documented(sinks Sinks) Config {
	c := Default()
	c.Tables, c.Admin.Peers, c.Sink = []Table{{Retention: &TableRetention{}}}, []Peer{{}}, newSink(sinks)
	for _, kind := range sinks {
		c.Sink.section(kind.Name)
	}
	return c
}
