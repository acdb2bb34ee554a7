package tracker

import "github.com/canal-outbox/canal-outbox/outbox"

// Window counts rows in memory, or to be written to the table: their number, their bytes, and how many of them the log did not bring.
// Its owner guards it by a lock.
type Window struct{ Rows, Bytes, Swept int }

// Add counts a row.
func (w *Window) Add(e *Entry) { w.count(e, 1) }

// Remove counts a row out.
func (w *Window) Remove(e *Entry) { w.count(e, -1) }

func (w *Window) count(e *Entry, n int) {
	w.Rows += n
	w.Bytes += n * e.Size
	if e.Swept() {
		w.Swept += n
	}
}

// Plus returns both windows as one.
func (w Window) Plus(o Window) Window {
	return Window{w.Rows + o.Rows, w.Bytes + o.Bytes, w.Swept + o.Swept}
}

// Limit bounds a window by count and bytes, and the part of it that the log did not bring.
type Limit struct{ Rows, Bytes int }

// quarters of a limit that rows which the log did not bring may take together, by the path of the next one: a backlog in the table leaves
// room to rows that become due now, and both leave room to fresh ones, so that these keep their latency.
var quarters = [...]int{outbox.PathBinlog: 4, outbox.PathTimer: 3, outbox.PathSweep: 2, outbox.PathRedelivery: 1}

// Room reports whether a window takes one more row of a path. An empty one always does, so that a message above every limit is sent.
func (l Limit) Room(w Window, path outbox.Path) bool {
	if w.Rows > 0 && (w.Rows >= l.Rows || w.Bytes >= l.Bytes) {
		return false
	}
	return path == outbox.PathBinlog || w.Swept == 0 || w.Swept < l.Rows*quarters[path]/4
}
