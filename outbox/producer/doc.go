// Package producer inserts messages into an outbox table, in the transaction of the business change that they tell of. An application that
// sends by itself and lets the relay stand in (tables[].grace) also marks its rows with it: MarkSent, MarkFailed, CountAttempt. It is
// what an application imports: it needs the standard library alone, and nothing of the relay.
//
//	outbox, err := producer.New(producer.TLocalMessage, producer.Options{})
//	...
//	tx, err := db.BeginTx(ctx, nil)
//	... // the business change, in tx
//	id, err := outbox.Insert(ctx, tx, producer.Message{BizType: "order_paid", Key: "4711", Topic: "orders", Body: body})
//	... // tx.Commit
//
// Guarantee: a message that the layout cannot hold is an error that names the field and the reason, and then no statement was
// sent, for none of the messages of the call. What was inserted is published when the transaction commits, and never when it
// is rolled back. The package owns no goroutine; a Table may be used from many.
package producer
