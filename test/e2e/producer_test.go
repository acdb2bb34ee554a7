package e2e

import (
	"slices"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox/producer"
)

// ownersTable is t_local_message as its owners have it.
const ownersTable = `CREATE TABLE shop_message (
	id BIGINT NOT NULL AUTO_INCREMENT, biz_type VARCHAR(64) NOT NULL, biz_key VARCHAR(128) NOT NULL, topic VARCHAR(255) NOT NULL,
	message_body TEXT NOT NULL, status TINYINT NOT NULL, retry_count INT NOT NULL DEFAULT 0, next_retry_time DATETIME NULL,
	last_exec_time DATETIME NULL, fail_reason VARCHAR(512) NULL, created_by VARCHAR(64) NOT NULL, updated_by VARCHAR(64) NOT NULL,
	gmt_create DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
	gmt_modified DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
	PRIMARY KEY (id), UNIQUE KEY (biz_type, biz_key), KEY (status, next_retry_time), KEY (topic))`

// What package producer inserts is published: each message of a committed transaction once, under the message id that Insert
// returned, by the log alone; none of a transaction that was rolled back.
func TestWhatTheProducerInsertsIsPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, flavor testkit.Flavor) {
		l := newLab(t, testkit.SharedDatabase(t, flavor))
		l.exec(ownersTable)
		l.tables = []string{"shop_message"}
		l.start()
		messages, err := producer.New(producer.TLocalMessage, producer.Options{Table: l.schema + ".shop_message"})
		testkit.Must(t, err)
		message := func(key string) producer.Message {
			return producer.Message{BizType: "order", Key: key, Topic: "orders", Body: []byte(body(key))}
		}
		var batch []producer.Message
		for _, key := range keys("batch", 600) {
			batch = append(batch, message(key))
		}
		var ids []string
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			tx, err := l.sql.BeginTx(t.Context(), nil)
			testkit.Must(t, err)
			one, err := messages.Insert(t.Context(), tx, message("one"))
			testkit.Must(t, err)
			ids, err = messages.InsertAll(t.Context(), tx, batch)
			testkit.Must(t, err)
			ids = append(ids, one)
			if end == "ROLLBACK" {
				testkit.Must(t, tx.Rollback())
				continue
			}
			testkit.Must(t, tx.Commit())
		}
		l.account(append(keys("batch", 600), "one")...)
		l.wantMissed(0)
		for key := range l.records() { // which also looks at the message id of each
			if !slices.Contains(ids, "order:"+key) {
				t.Errorf("%s is not among the message ids that were returned", key)
			}
		}
	})
}
