// Package config is what an operator writes: one YAML file, overridden by environment variables, checked whole.
//
// Guarantee: a Config returned by Load is complete and consistent, and everything that is wrong is reported at once, each
// fault with its path, its value and the reason. A secret leaves this package only through setting.Secret.Reveal: never in an
// error, in Print or in a formatted value. It knows no sink: each brings its section (Section). The package owns no goroutine and does no I/O but reading the files it is told
// of.
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
	// Tables are the outbox tables. At least one is needed, and each name once.
	Tables []Table `yaml:"tables"`
	// Sink is the broker that takes the messages: exactly one of its keys.
	Sink Sink `yaml:"sink"`
	// Checkpoint is where the relay keeps its own state.
	Checkpoint Checkpoint `yaml:"checkpoint"`
	// Retry says how often and when a message is tried again that the broker refused. Outages cost no attempts.
	Retry Retry `yaml:"retry"`
	// Fallback is the sweep over the tables, which finds what the binlog did not deliver.
	Fallback Fallback `yaml:"fallback"`
	// Retention is when final rows leave the tables. It is off until one of its ages is set.
	Retention Retention `yaml:"retention"`
	// Reconcile compares the tables with the topics on a schedule.
	Reconcile Reconcile `yaml:"reconcile"`
	// Lease lets several relays be started for the same tables, of which one is active and the others stand by.
	Lease Lease `yaml:"lease"`
	// Pipeline bounds what is in memory at a time.
	Pipeline Pipeline `yaml:"pipeline"`
	// Admin is the HTTP server with metrics, health, the dashboard and the API.
	Admin Admin `yaml:"admin"`
	// Alerts are messages to a webhook about rows that became FAILED.
	Alerts Alerts `yaml:"alerts"`
	// Tracing tells an OpenTelemetry collector of messages whose trace is sampled.
	Tracing Tracing `yaml:"tracing"`
	// Log is the service's own log, on standard error.
	Log Log `yaml:"log"`
}

// Source is the database server.
type Source struct {
	// Address is host:port of the primary, or the path of its unix socket. The port is 3306 when it is left out.
	Address string `yaml:"address"`
	// User is the account; `canal-outbox doctor` prints the grants it needs.
	User string `yaml:"user"`
	// Password of the account.
	Password setting.Secret `yaml:"password"`
	// PasswordFile is a file that holds the password instead; one line break at its end is ignored.
	PasswordFile string `yaml:"password_file"`
	// TLS of every connection to the server. A server that offers none is an error but in the modes disabled and preferred.
	TLS setting.TLS `yaml:"tls"`
	// Heartbeat is how often an idle server shows that it lives. Three missing ones end the connection.
	Heartbeat time.Duration `yaml:"heartbeat"`
	// ServerID is the id under which the relay reads the binlog, unique among the server's replicas. 0 chooses one from
	// the account, the address, this host and the state directory.
	ServerID uint32 `yaml:"server_id"`
}

// Table maps one outbox table.
type Table struct {
	// Name is schema.table, exact or a pattern for many tables of one layout: `shop_*.t_local_message_{00..63}`. `*` stands for any
	// characters, `{00..63}` for numbers, `{a,b}` for words. No name that begins with an underscore is taken, because tools for
	// schema changes use such. An entry with the exact name wins over a pattern. Tables that appear or vanish are noticed
	// within fallback.interval.
	Name string `yaml:"name"`
	// Preset is the layout that the other keys override: `t_local_message`, `message-state`, `local_message_table`,
	// `local_message`, `order-chain`, `debezium-outbox` (no status: the binlog alone is read), or `outbox`, the relay's own for those who have no table yet. Each has a page in
	// docs/layouts. Other usual spellings of a preset's columns are found, and `canal-outbox doctor` names them.
	Preset string `yaml:"preset"`
	// Columns maps a role to the name of the table's column, where it differs from the preset: id, message_id, biz_type,
	// key, topic, tag, sharding_key, body, headers, partition, status, retry_count, max_retry, next_retry_time,
	// last_exec_time, fail_reason, created_at, broker_message_id, sent_at, lock_version, updated_by, updated_at. An empty
	// name unmaps the role. Several roles may name one column, unless the relay writes one of them.
	Columns map[string]string `yaml:"columns"`
	// Codes maps a status (`pending`, `sending`, `sent`, `failed`) to its code in the status column. Any other name is a state
	// of the table's consumers (`consumed`, `suspended`), by which its rows are counted. An empty code takes a name out. Rows
	// with any other code are never touched.
	Codes map[string]string `yaml:"codes"`
	// Topic makes the topic where no column holds it: a constant (`topic: orders`), a template with the name of one column
	// (`topic: order.{event_type}`), or the topic of each value of a column.
	Topic Topic `yaml:"topic"`
	// MessageIDHeader is one more header (RocketMQ: property) that carries the message id.
	MessageIDHeader string `yaml:"message_id_header"`
	// TimeZone of the table's DATETIME columns: an offset such as `+08:00` or a name the server knows. Empty: the
	// server's own.
	TimeZone string `yaml:"time_zone"`
	// Grace is how long the application has to publish a row itself after its commit, and to mark it as sent. The relay publishes
	// a row that is still PENDING then. 0: the relay publishes every row, at once.
	Grace time.Duration `yaml:"grace"`
	// Ordering is `none`, or `key`: rows of one key (of one topic) go out one after the other, and while one of them is refused or
	// cannot be sent the later ones wait for it. `none` keeps the order of commits as long as nothing fails.
	Ordering string `yaml:"ordering"`
	// Attempts is what a limit counts (retry.max, retry.topics and the rows' own max_retry column): `sends`, or `retries`, which are the
	// sends after the first. Empty: what the owners of the preset's layout count: sends for `message-state` and `order-chain`, else retries.
	Attempts string `yaml:"attempts"`
	// Retry overrides `retry` for the rows of this table.
	Retry TableRetry `yaml:"retry"`
	// Redeliver publishes SENT rows again, under the same message id, that no consumer has finished. Off without `after`.
	Redeliver Redeliver `yaml:"redeliver"`
	// Retention replaces the ages of `retention` for this table: one that is left out is 0 here, and with `{}` no row leaves.
	Retention *TableRetention `yaml:"retention"`
}

// TableRetention are the ages of one table; the window is that of `retention`.
type TableRetention struct {
	// Sent replaces `retention.sent`.
	Sent time.Duration `yaml:"sent"`
	// Archive replaces `retention.archive`.
	Archive time.Duration `yaml:"archive"`
	// Failed replaces `retention.failed`.
	Failed time.Duration `yaml:"failed"`
}

// Redeliver is for tables into which consumers write that they are done.
type Redeliver struct {
	// After is how long a row is SENT before it goes out again, such as `10m`, and from one time to the next.
	After time.Duration `yaml:"after"`
	// Until is the state of the consumers that ends it, a name of `codes`. Empty: `consumed`.
	Until string `yaml:"until"`
	// Max is how often a row goes out again; 0 means 3. After that it is a problem in status, a metric and an alert.
	Max int `yaml:"max"`
	// StateQuery is the http or https address of a service that is asked first which messages are done. Those get the code of `until`
	// and do not go out again. Only its host is ever shown. Empty: none is asked.
	StateQuery setting.URL `yaml:"state_query"`
}

// Rule translates it.
func (r Redeliver) Rule() table.Redeliver {
	if r.After == 0 {
		return table.Redeliver{}
	}
	return table.Redeliver{After: r.After, Until: cmp.Or(r.Until, "consumed"), Max: cmp.Or(r.Max, 3), Query: r.StateQuery.Reveal()}
}

// Topic is the rule for the topic of a row.
type Topic struct {
	// Template is the long form of a constant or a template: `topic: {template: orders}` is `topic: orders`.
	Template string `yaml:"template"`
	// Column decides by its value, which topic map has for it.
	Column string `yaml:"column"`
	// Map is the topic of each value of column.
	Map map[string]string `yaml:"map"`
	// Default is the topic of every other value. Without one such a row is FAILED with the reason.
	Default string `yaml:"default"`
}

// IsZero reports whether there is no rule: the column that is mapped as the topic holds it.
func (t Topic) IsZero() bool {
	return t.Template == "" && t.Column == "" && len(t.Map) == 0 && t.Default == ""
}

// Rule translates it; the error completes the sentence "the value ...".
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
	// Dir holds positions, the journal of sent messages, the gap records and the unix socket of the commands. It belongs to
	// one process at a time and should survive restarts.
	Dir string `yaml:"dir"`
}

// Socket is the unix socket over which the commands reach the running daemon.
func (c Checkpoint) Socket() string { return filepath.Join(c.Dir, "admin.sock") }

// Retry is the limit of the sends of a refused message, and the waiting time between them.
type Retry struct {
	// Max is how many sends, or how many retries (sends after the first), a refused message has before its row becomes FAILED;
	// `tables[].attempts` says which of the two. A row's own max_retry column wins. 0: as the owners of the preset's layout have it
	// (`message-state` 10 sends, `order-chain` 5 sends, others 5 retries).
	Max int `yaml:"max"`
	// Backoff doubles the waiting time with each retry. Base and max that are 0, without a schedule, are those of the layout's owners
	// (`order-chain` from 2 s, `message-state` always 10 m, `local_message_table` 1, 5, 30, 60, 120 m, others from 1 s; to 2 h).
	Backoff Backoff `yaml:"backoff"`
	// Jitter is the part of a waiting time by which it is longer or shorter at most, so that messages which failed together do not come
	// back together. 0: the waiting times are kept exactly.
	Jitter float64 `yaml:"jitter"`
	// Schedule lists the waiting times one by one instead; the last one repeats. Not together with backoff.
	Schedule []time.Duration `yaml:"schedule"`
	// Topics overrides `max` and `schedule` for the rows of a topic, by its name. It goes before tables[].retry.
	Topics map[string]Attempts `yaml:"topics"`
	// Types overrides `max` and `schedule` for the rows of a business type (the column biz_type), by its value, where several businesses
	// share a table. It goes before topics.
	Types map[string]Attempts `yaml:"types"`
	// FailedEvery tries FAILED rows once more when they have been FAILED for so long, such as `6h`, with the attempts that they have
	// used: one refusal makes a row whose attempts were spent FAILED again. 0: they stay as they are.
	FailedEvery time.Duration `yaml:"failed_every"`
}

// TableRetry is what is different for a table. What is left out is that of `retry`.
type TableRetry struct {
	// Max is as `retry.max`; 0 keeps that.
	Max int `yaml:"max"`
	// Schedule is as `retry.schedule`; an empty one keeps what `retry` says.
	Schedule []time.Duration `yaml:"schedule"`
	// FailedEvery is as `retry.failed_every`; 0 keeps that.
	FailedEvery time.Duration `yaml:"failed_every"`
}

// Attempts are those of a table.
func (t TableRetry) Attempts() Attempts { return Attempts{Max: t.Max, Schedule: t.Schedule} }

// Attempts is what is different for a topic or a business type. What is left out is that of the table, or of `retry`.
type Attempts struct {
	// Max is as `retry.max`; 0 keeps that.
	Max int `yaml:"max"`
	// Schedule is as `retry.schedule`; an empty one keeps what `retry` says.
	Schedule []time.Duration `yaml:"schedule"`
}

// Backoff is a doubling waiting time.
type Backoff struct {
	// Base is the first waiting time.
	Base time.Duration `yaml:"base"`
	// Max is where the doubling ends.
	Max time.Duration `yaml:"max"`
}

// Fallback is the sweep.
type Fallback struct {
	// Interval between two sweeps.
	Interval time.Duration `yaml:"interval"`
	// Threshold is the age a row without a due time has before a sweep takes it. After a gap rows of any age are taken.
	Threshold time.Duration `yaml:"threshold"`
	// Patience is how long a sweep waits for a binlog reader that makes no progress before it publishes without it.
	Patience time.Duration `yaml:"patience"`
	// Batch is the number of rows that are claimed and published at a time, 500 at most.
	Batch int `yaml:"batch"`
	// Workers is the number of batches of a table that are claimed at a time, which makes a large backlog drain faster where the database
	// is far away or its disks are slow; they are published in their order. Each holds its rows with
	// their bodies in memory. With a rate, and for tables with `ordering: key`, there is one batch at a time.
	Workers int `yaml:"workers"`
	// Rate is the number of rows a second that sweeps publish at most, of all tables together, so that a backlog leaves room for
	// others. Rows from the binlog are not limited. 0 is no limit.
	Rate int `yaml:"rate"`
	// ReadFrom is host:port of a replica that most regular sweeps look for rows on; the user, the password and TLS are those of
	// source. Claims and bodies are the primary's, so a replica that lags makes rows late and never sends one twice. Sweeps that are
	// asked for and every tenth regular one look on the primary. Empty: all do.
	ReadFrom string `yaml:"read_from"`
	// ClaimTimeout is the age after which the claim of a crashed process is taken over.
	ClaimTimeout time.Duration `yaml:"claim_timeout"`
}

// Reconcile compares the tables with the topics on a schedule. Metrics, status and alerts have the result.
type Reconcile struct {
	// Every is the time between two comparisons, such as `24h`, each of the rows of the last two intervals. 0: none.
	Every time.Duration `yaml:"every"`
}

// Retention takes final rows out of the tables. The ages are by the database's clock: of sent_at if the table has it, else of
// last_exec_time, updated_at or created_at.
type Retention struct {
	// Sent is the age at which SENT rows are deleted, a minute at least, such as `168h`, and with them those in the consumers' state
	// `consumed`. 0: they stay.
	Sent time.Duration `yaml:"sent"`
	// Archive is the age at which SENT rows move to the table with `_archive` behind its name, instead of being deleted.
	// `canal-outbox migrate` makes it. Not together with sent.
	Archive time.Duration `yaml:"archive"`
	// Failed is the age at which FAILED rows move to the table with `_failed` behind its name. `canal-outbox migrate` makes it. 0: they
	// stay.
	Failed time.Duration `yaml:"failed"`
	// Window is the part of the day in which rows leave, such as `02:00-05:00`, by the database's clock in the table's `time_zone`.
	// Empty: at any time.
	Window string `yaml:"window"`
	// MaxReplicaLag is how far the replica of `fallback.read_from` may be behind before no more rows leave; it is looked at once a
	// second. 0: whatever it is.
	MaxReplicaLag time.Duration `yaml:"max_replica_lag"`
}

// Lease is who is active of several relays.
type Lease struct {
	// Enabled takes part. Without it, or without the table or a privilege for it, the relay runs alone, and only says so when it sees
	// another one on its tables.
	Enabled bool `yaml:"enabled"`
	// Time is for how long the active relay may publish without the database's confirmation. When it dies another one takes over within
	// twice this time. The database gets a small update three times in it. Relays of a table may have different times: the row of the
	// lease has its holder's.
	Time time.Duration `yaml:"time"`
	// Table is schema.table of the lease table, which `canal-outbox migrate` makes; the same for all relays of a table. Empty:
	// `canal_outbox_lease` in the schema of the first entry of tables.
	Table string `yaml:"table"`
}

// Pipeline holds the memory bounds.
type Pipeline struct {
	// MaxInFlight is the number of messages that wait for the broker's answer at a time.
	MaxInFlight int `yaml:"max_in_flight"`
	// MaxInFlightBytes is their total size.
	MaxInFlightBytes setting.Bytes `yaml:"max_in_flight_bytes"`
	// MaxTransactionBytes is the size of our rows in one transaction above which the sweep publishes them.
	MaxTransactionBytes setting.Bytes `yaml:"max_transaction_bytes"`
}

// Admin is the HTTP server.
type Admin struct {
	// Listen is host:port, or empty for none. An address other than loopback needs a token.
	Listen string `yaml:"listen"`
	// Token is asked of every HTTP request (`Authorization: Bearer ...`) but the health checks. Who has it may do everything.
	Token setting.Secret `yaml:"token"`
	// TokenFile is a file that holds the token instead.
	TokenFile string `yaml:"token_file"`
	// ReadToken is another token, of those who may look and change nothing: metrics, status, lists. It shows no body of a message.
	ReadToken setting.Secret `yaml:"read_token"`
	// ReadTokenFile is a file that holds it instead.
	ReadTokenFile string `yaml:"read_token_file"`
	// Peers are other relays that the dashboard shows, one line each. Each is asked when somebody looks.
	Peers []Peer `yaml:"peers"`
}

// Peer is another relay.
type Peer struct {
	// URL is the base address of its admin server, such as `http://relay-2.internal:9180`.
	URL string `yaml:"url"`
	// Token is the one that it asks for.
	Token setting.Secret `yaml:"token"`
	// TokenFile is a file that holds it instead.
	TokenFile string `yaml:"token_file"`
}

// Alerts is the webhook.
type Alerts struct {
	// Webhook is the http or https address that gets a JSON message when rows become FAILED: at most one every five seconds, with a
	// list of up to 100 rows. Empty: none. Only its host is ever shown, because such addresses often hold a token.
	Webhook setting.URL `yaml:"webhook"`
	// Secret signs each message (HMAC-SHA256 in the header X-Canal-Outbox-Signature). Empty: no signature.
	Secret setting.Secret `yaml:"secret"`
	// SecretFile is a file that holds the secret instead.
	SecretFile string `yaml:"secret_file"`
	// Digest is the time of day, such as `08:00` by the local clock of the relay, of one message a day with the number of failures
	// and of FAILED rows. Empty: none.
	Digest string `yaml:"digest"`
	// PendingOver is the number of rows of one table that are due and not sent, above which status has a problem and the webhook is
	// told, once, and again after they had become fewer by a fifth; 99,999 at most, because counting ends there. 0: none.
	PendingOver int `yaml:"pending_over"`
	// OldestOver is the same for the age of the oldest of these rows, such as `5m`.
	OldestOver time.Duration `yaml:"oldest_over"`
}

// Tracing is where spans go.
type Tracing struct {
	// Endpoint is the http or https address of a collector that takes OTLP over HTTP, such as `http://127.0.0.1:4318`. Rows whose header
	// `traceparent` says that their trace is sampled have three spans: from the commit until SENT, the send, the status update. Empty: none.
	Endpoint setting.URL `yaml:"endpoint"`
}

// Log is the service's log.
type Log struct {
	// Level is the least important level that is written: `debug`, `info`, `warn` or `error`.
	Level string `yaml:"level"`
	// Format is `json` or `text`.
	Format string `yaml:"format"`
}

// Default returns the values of all keys that are left out. The section of a sink has its defaults in the sink's package.
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
		Admin:    Admin{Listen: "127.0.0.1:9180"},
		Log:      Log{Level: "info", Format: "json"},
	}
}

// Documented returns the defaults with every optional section and one empty table and peer present, for the reference page.
func Documented(sinks Sinks) Config {
	c := Default()
	c.Tables, c.Admin.Peers, c.Sink = []Table{{Retention: &TableRetention{}}}, []Peer{{}}, newSink(sinks)
	for _, kind := range sinks {
		c.Sink.section(kind.Name)
	}
	return c
}
