package table

// CursorBehind is a place in the list of due rows for whoever stands in for a Store, such as a model of the tables: behind
// the row with this primary key, or at the end of the list.
func CursorBehind(id string, done bool) Cursor {
	if done {
		return Cursor{phase: phases}
	}
	return Cursor{id: id}
}

// ID is the primary key of the row before the cursor, in the stretch of the index it stands in; "" at its beginning.
func (c Cursor) ID() string { return c.id }
