package table

// Cursor is a place in the list of due rows. The zero value is its beginning.
type Cursor struct {
	done     bool
	at       int          // the stretch, in Table.stretches
	attempts attemptCount // whose rows the stretch has, where the strategy is byAttempts
	time     string       // of the last row: the time that the index has behind the status, as text of the database
	id       string       // its primary key; "" at the beginning of a stretch
	empty    bool         // the last row has the empty text as its key; else a cursor without a key is at the beginning of a stretch
	code     codeText     // of a listing of HeldState: whose rows are listed
}

// begun reports whether a row is before the cursor in its stretch.
func (c Cursor) begun() bool { return c.id != "" || c.empty }

// behindRow is the place behind a row, in an order of the primary key alone.
func behindRow(r *Row) Cursor { return Cursor{id: r.ID, empty: r.ID == ""} }

// attemptCount is a value of the column that counts attempts. The zero value is none: the first is still to be looked up.
type attemptCount struct {
	known bool
	ended bool   // its rows are read: the next value is to be looked up
	value string // "" is NULL
}

// Done reports whether the list has been read to its end.
func (c Cursor) Done() bool { return c.done }

// ID is the primary key of the row before the cursor, in the stretch of the index it stands in; "" at its beginning.
func (c Cursor) ID() string { return c.id }

// CursorBehind is a place in the list of due rows for code that replaces a Store, such as a model of the tables: behind the row
// with this primary key, or at the end of the list.
func CursorBehind(id string, done bool) Cursor { return Cursor{done: done, id: id} }

// next is the beginning of the stretch behind the cursor's.
func (c Cursor) next(list []stretch, byAttempts bool) Cursor {
	last := c.at+1 == len(list) || list[c.at+1].status != list[c.at].status
	if byAttempts && last {
		first := c.at
		for first > 0 && list[first-1].status == list[c.at].status {
			first--
		}
		c.attempts.ended = true
		return Cursor{at: first, attempts: c.attempts}
	}
	return Cursor{done: c.at+1 == len(list), at: c.at + 1, attempts: c.attempts}
}

// nextStatus is the beginning of the first stretch of the next status.
func (c Cursor) nextStatus(list []stretch) Cursor {
	at := c.at
	for at < len(list) && list[at].status == list[c.at].status {
		at++
	}
	return Cursor{done: at == len(list), at: at}
}
