package canal

import (
	"slices"
	"time"
	"unicode/utf8"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// images are the row images of one insert event. It implements rowImages. It is not used after the event: table.Message copies
// what it keeps.
type images struct {
	table    *mapped
	id       uint64
	columns  int
	present  []byte // bitmap of the columns in the images (A25: a missing one is unknown, not NULL)
	data     []byte
	at       outbox.Position
	received time.Time
}

// count counts the images without decoding them.
func (m *images) count() int {
	p := m.usablePlan()
	if p == nil {
		return 0
	}
	n := 0
	for data := m.data; len(data) > 0; n++ {
		rest, err := m.walk(p, data, nil)
		if err != nil {
			return n
		}
		data = rest
	}
	return n
}

// messages implements rowImages. A row that cannot be mapped does not affect its neighbours.
func (m *images) messages(to []*outbox.Message) (out []*outbox.Message, unmapped int) {
	p := m.usablePlan()
	if p == nil || p.fault != "" || !m.table.holds(m.at) {
		return to, max(1, m.count())
	}
	t, before := m.table, len(to)
	if to == nil {
		to = make([]*outbox.Message, 0, t.rows)
	}
	defer func() { t.rows = min(len(out)-before, 512) }()
	for data := m.data; len(data) > 0; {
		rest, err := m.walk(p, data, t.row())
		if rest == nil {
			t.refused(err)
			return to, unmapped + 1 // the start of the next row is unknown
		}
		data = rest
		var msg *outbox.Message
		if err == nil {
			msg, err = t.source.Message(t.values)
		}
		if err != nil {
			t.refused(err)
			unmapped++
			continue
		}
		msg.Since = m.received
		to = append(to, msg)
	}
	return to, unmapped
}

// usablePlan returns the table's plan if it fits these images; else nil.
func (m *images) usablePlan() *columnPlan {
	p := m.table.plan
	if p == nil || p.id != m.id || len(p.columns) != m.columns || len(m.present)*8 < m.columns {
		return nil
	}
	return p
}

// walk skips one image and returns the rest; nil when the image is cut short. If row is set it stores the values of the needed
// columns there; an error with a rest means that one of them has no text.
func (m *images) walk(p *columnPlan, data []byte, row *row) (rest []byte, err error) {
	in := 0
	for i := range p.columns {
		if m.present[i>>3]&(1<<(i&7)) != 0 {
			in++
		}
	}
	if len(data) < (in+7)/8 {
		return nil, errShort
	}
	nulls, data := data[:(in+7)/8], data[(in+7)/8:]
	in = 0
	for i := range p.columns {
		c := &p.columns[i]
		if m.present[i>>3]&(1<<(i&7)) == 0 {
			continue
		}
		null := nulls[in>>3]&(1<<(in&7)) != 0
		in++
		if null {
			row.null(c.slot)
			continue
		}
		n, sizeErr := c.size(data)
		if sizeErr != nil {
			return nil, sizeErr
		}
		if row != nil && c.slot >= 0 {
			if textErr := row.set(c, data[:n]); textErr != nil && err == nil {
				err = textErr
			}
		}
		data = data[n:]
	}
	if in == 0 {
		return nil, errShort // an image without any column has no length
	}
	row.share(p.shared)
	return data, err
}

// row collects the values of one row; it is reused.
type row struct {
	values  []table.Value
	scratch []byte
}

func (r *row) null(slot int) {
	if r != nil && slot >= 0 {
		r.values[slot] = table.Value{Null: true}
	}
}

// share copies the values that share a column.
func (r *row) share(columns []sharedColumn) {
	if r == nil {
		return
	}
	for _, c := range columns {
		r.values[c.to] = r.values[c.from]
	}
}

func (r *row) set(c *column, data []byte) (err error) {
	var text []byte
	text, r.scratch, err = c.text(data, r.scratch)
	if text == nil {
		text = []byte{} // '' is not NULL
	}
	value := table.Value{Data: text}
	if c.unsure && err == nil && slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf }) {
		err = errUnsure
	}
	if c.set != nil && err == nil {
		value.Data, r.scratch, value.Fault = c.set.Text(text, r.scratch)
	}
	r.values[c.slot] = value
	return err
}
