package config

import (
	"fmt"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Table maps one outbox table.
type Table struct {
	// Name is schema.table, exact or a pattern for tables of one layout: `shop_*.t_local_message_{00..63}`. `*` matches any characters,
	// `{00..63}` numbers, `{a,b}` words; no pattern matches a leading underscore, as of tools for schema changes. An exact name has priority.
	Name string `yaml:"name"`
	// Preset is the layout that the other keys override: `t_local_message`, `message-state`, `local_message_table`, `local_message`,
	// `order-chain`, `debezium-outbox` (no status: only the binlog is read), or `outbox`, the relay's own. Other usual spellings of columns are
	// recognised.
	Preset string `yaml:"preset"`
	// Columns maps a role to the name of the table's column, where it differs from the preset: id, message_id, biz_type,
	// key, topic, tag, sharding_key, body, headers, partition, status, retry_count, max_retry, next_retry_time,
	// last_exec_time, fail_reason, created_at, broker_message_id, sent_at, lock_version, updated_by, updated_at. An empty
	// name unmaps the role. Several roles may name one column, unless the relay writes one of them.
	Columns map[string]string `yaml:"columns"`
	// Codes maps a status (`pending`, `sending`, `sent`, `failed`) to its code. Any other name is a state of the consumers (`consumed`,
	// `suspended`). An empty code removes a name. Rows with any other code are never changed.
	Codes map[string]string `yaml:"codes"`
	// Topic derives the topic where no column holds it: a constant (`topic: orders`), a template with one column (`topic: order.{event_type}`),
	// or the topic of each value of a column.
	Topic Topic `yaml:"topic"`
	// MessageIDHeader is an additional header (RocketMQ: property) that carries the message id.
	MessageIDHeader string `yaml:"message_id_header"`
	// TimeZone of the DATETIME columns: an offset such as `+08:00` or a name the server knows. Empty: the server's own.
	TimeZone string `yaml:"time_zone"`
	// Grace is the time that the application has after its commit to publish a row itself and mark it as sent. 0: none.
	Grace time.Duration `yaml:"grace"`
	// Ordering is `none` or `key`. With `key`, rows of one key and topic are sent one after the other, and later rows wait while one cannot be
	// sent. `none` keeps the order of commits while nothing fails.
	Ordering string `yaml:"ordering"`
	// Attempts is what a limit (retry.max, retry.topics, the max_retry column) counts: `sends`, or `retries`, the sends after the first. Empty:
	// sends for `message-state` and `order-chain`, else retries.
	Attempts string `yaml:"attempts"`
	// Retry overrides `retry` for the rows of this table.
	Retry TableRetry `yaml:"retry"`
	// Redeliver publishes SENT rows that no consumer has finished again. Off without `after`.
	Redeliver Redeliver `yaml:"redeliver"`
	// Retention replaces the ages of `retention` for this table. An omitted age is 0; with `{}` all rows stay.
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

// Options sets what the keys of the table override in the mapping of its preset, but for columns, codes and topic. all is the section
// that counts for every table.
func (t Table) Options(m *table.Mapping, all Retry) {
	m.TimeZone, m.Grace, m.FailedEvery = t.TimeZone, t.Grace, t.Retry.FailedEvery
	m.Retry = m.Retry.Override(all.Rule()).Override(t.Retry.Attempts().Rule())
	if t.Attempts != "" {
		m.Retry.Sends = t.Attempts == "sends"
	}
	m.Ordered = t.Ordering == "key"
	m.Redeliver = t.Redeliver.Rule()
	if t.MessageIDHeader != "" {
		m.MessageIDHeader = t.MessageIDHeader
	}
}

// Rule is what the section says for all tables; what it leaves out is the preset's.
func (r Retry) Rule() outbox.Retry {
	all := outbox.Retry{Max: r.Max, Backoff: outbox.Backoff{Base: r.Backoff.Base, Max: r.Backoff.Max, Schedule: r.Schedule, Spread: r.Jitter}}
	if r.Jitter == 0 {
		all.Backoff.Spread = -1
	}
	return all
}

// Rule is what a budget of attempts overrides.
func (a Attempts) Rule() outbox.Retry {
	return outbox.Retry{Max: a.Max, Backoff: outbox.Backoff{Schedule: a.Schedule}}
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
		r.OneOf(path+".preset", t.Preset, table.Presets()...)
		r.layout(path, t)
		if t.Grace != 0 { // more than the rounding of a DATETIME
			r.Between(path+".grace", t.Grace, time.Second, 24*time.Hour)
		}
		if t.Ordering != "" {
			r.OneOf(path+".ordering", t.Ordering, "none", "key")
		}
		if t.Attempts != "" {
			r.OneOf(path+".attempts", t.Attempts, "sends", "retries")
		}
		r.attempts(path+".retry", t.Retry.Attempts())
		r.failedEvery(path+".retry.failed_every", t.Retry.FailedEvery)
		r.redeliver(path+".redeliver", t)
		if t.TimeZone != "" && !zone.MatchString(t.TimeZone) {
			r.add(path+".time_zone", t.TimeZone, "is not a time zone: write an offset such as +08:00 or a name the server knows")
		}
	}
}
