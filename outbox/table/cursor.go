package table

// Cursor is a place in the list of due rows. The zero value is its beginning.
type Cursor struct {
	AtEnd    bool
	Range    int          // the stretch, in Table.stretches
	Attempts AttemptCount // whose rows the stretch has, where the strategy is byAttempts
	LastTime string       // of the last row: the time that the index has behind the status, as text of the database
	LastID   string       // its primary key; "" at the beginning of a stretch
	EmptyID  bool         // the last row has the empty text as its key; else a cursor without a key is at the beginning of a stretch
	Code     Code         // of a listing of HeldState: whose rows are listed
}

// Begun reports whether a row is before the cursor in its stretch.
func (c Cursor) Begun() bool { return c.LastID != "" || c.EmptyID }

// AttemptCount is a value of the column that counts attempts. The zero value is none: the first is still to be looked up.
type AttemptCount struct {
	Known bool
	Ended bool   // its rows are read: the next value is to be looked up
	Value string // "" is NULL
}

// Done reports whether the list has been read to its end.
func (c Cursor) Done() bool { return c.AtEnd }

// ID is the primary key of the row before the cursor, in the stretch of the index it stands in; "" at its beginning.
func (c Cursor) ID() string { return c.LastID }

// CursorBehind is a place in the list of due rows for code that replaces a Store, such as a model of the tables: behind the row
// with this primary key, or at the end of the list.
func CursorBehind(id string, done bool) Cursor { return Cursor{AtEnd: done, LastID: id} }

// Next is the beginning of the stretch behind the cursor's.
func (c Cursor) Next(list []Range, byAttempts bool) Cursor {
	last := c.Range+1 == len(list) || list[c.Range+1].Status != list[c.Range].Status
	if byAttempts && last {
		first := c.Range
		for first > 0 && list[first-1].Status == list[c.Range].Status {
			first--
		}
		c.Attempts.Ended = true
		return Cursor{Range: first, Attempts: c.Attempts}
	}
	return Cursor{AtEnd: c.Range+1 == len(list), Range: c.Range + 1, Attempts: c.Attempts}
}
