package checkpoint

import (
	"encoding/binary"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// Waits keeps the due time and the count of rows whose table has no columns for them: those of refused rows, which are read from memory
// and written through (table.Waits), and those of SENT rows that are published again.
type Waits struct {
	table.WaitMap
	files *engine
}

// Keep implements table.Waits with one synced batch; one that only drops is not synced, because a wait too many is dropped again.
func (w *Waits) Keep(put []table.Waiting, drop []outbox.Identity) error {
	return w.keep(kindWait, put, func() []outbox.Identity { return w.Change(put, drop, time.Now()) })
}

// Redeliveries returns how often SENT rows were published again, and when each may be next, in no particular order.
func (w *Waits) Redeliveries() ([]table.Waiting, error) {
	return list(w.files, kindRedelivery, decodeWait)
}

// KeepRedeliveries puts and drops such records in one synced batch; one that only drops is not synced.
func (w *Waits) KeepRedeliveries(put []table.Waiting, drop []outbox.Identity) error {
	return w.keep(kindRedelivery, put, func() []outbox.Identity { return drop })
}

func (w *Waits) keep(kind byte, put []table.Waiting, drop func() []outbox.Identity) error {
	change := func(b *batch) error {
		for _, one := range put {
			if err := b.putWait(kind, one); err != nil {
				return err
			}
		}
		for _, id := range drop() {
			if err := b.Delete(appendWaitKey(b.key[:0], kind, id), nil); err != nil {
				return err
			}
		}
		return nil
	}
	if len(put) == 0 {
		return w.files.updateUnsynced(change)
	}
	return w.files.update(change, nil)
}

// load takes a record over at the start. What has expired goes with the first Keep, from the disk as well.
func (w *Waits) load(key, value []byte) error {
	one, err := decodeWait(key, value)
	w.Change([]table.Waiting{one}, nil, time.Time{})
	return err
}

func (b *batch) putWait(kind byte, w table.Waiting) error {
	b.key = appendWaitKey(b.key[:0], kind, w.Identity)
	b.val = appendWaitValue(b.val[:0], w.Wait)
	return b.put()
}

func appendWaitKey(b []byte, kind byte, id outbox.Identity) []byte {
	b = append(b, kind)
	b = appendText(b, id.Table)
	b = appendText(b, id.ID)
	return append(b, id.MessageID...)
}

func appendWaitValue(b []byte, w table.Wait) []byte {
	b = append(b, blankHeader[:]...)
	b = binary.AppendVarint(b, w.Due.UnixMilli())
	return binary.AppendUvarint(b, uint64(max(0, w.Attempts)))
}

func decodeWait(key, value []byte) (w table.Waiting, err error) {
	payload, err := unseal(key, value)
	if err != nil {
		return w, err
	}
	k := reader{rest: key[1:]}
	w.Table, w.ID = k.text(), k.text()
	w.MessageID = string(k.rest)
	v := reader{rest: payload, bad: k.bad}
	w.Due, w.Attempts = v.time(), int(v.uvarint())
	return w, v.end(kindWait)
}
