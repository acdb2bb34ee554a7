package sim

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/zap/zapcore"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// world is everything outside the process: tables, log, broker, disk. mu guards it and all state of the models; no goroutine
// sleeps while it holds mu.
type world struct {
	seed  uint64
	plan  *plan
	began time.Time

	mu         sync.Mutex
	trace      []event
	violations []string
	counts     map[countKey]uint64

	database
	broker
	leases
	disks []*disk

	setBackAt    time.Duration // when an operator last set a row back
	incarnations []*incarnation
	background   sync.WaitGroup
}

type countKey struct {
	actor string
	key   uint64
}

func newWorld(seed uint64) *world {
	w := &world{seed: seed, plan: draw(seed), began: time.Now(), counts: map[countKey]uint64{}}
	w.database.init(w.plan)
	w.leases.init(w.id.ServerID, w.plan.leased())
	w.broker.wires = map[string]*connection{}
	w.disks = append(w.disks, newDisk(0))
	w.append(&entry{reason: "before"}) // without any transaction nothing proves whose log it is
	return w
}

// event is one line of the trace; its text is made only when the trace is printed.
type event struct {
	at     time.Duration
	life   int // of which process; 0 for the world
	what   string
	row    string
	detail string
	n      int64
	fields []zapcore.Field
}

func (e event) String() string {
	text := fmt.Sprintf("%12.6f  life %d  %-22s %-8s %s", e.at.Seconds(), e.life, e.what, e.row, e.detail)
	if e.n != 0 {
		text += fmt.Sprintf(" (%d)", e.n)
	}
	if len(e.fields) > 0 {
		m := zapcore.NewMapObjectEncoder()
		for _, f := range e.fields {
			f.AddTo(m)
		}
		delete(m.Fields, "errorVerbose")
		text += fmt.Sprint(" ", m.Fields)
	}
	return text
}

// at is the time since the run began.
func (w *world) at() time.Duration { return time.Since(w.began) }

// note writes a line of the trace. Callers hold mu.
func (w *world) note(life int, what, row, detail string, n int) {
	w.trace = append(w.trace, event{at: w.at(), life: life, what: what, row: row, detail: detail, n: int64(n)})
}

// violation records a broken rule. Callers hold mu.
func (w *world) violation(rule, format string, args ...any) {
	text := rule + ": " + fmt.Sprintf(format, args...)
	w.note(0, "VIOLATION", "", text, 0)
	if len(w.violations) < 20 {
		w.violations = append(w.violations, text)
	}
}

// dice starts the stream of decisions of an actor about a key, a new one for each time it is asked. Callers hold mu.
func (w *world) dice(actor string, key uint64) *dice {
	k := countKey{actor, key}
	w.counts[k]++
	return newDice(w.seed, actor, key, w.counts[k])
}

var (
	errLost  = fmt.Errorf("connection lost: %w", driver.ErrBadConn)
	errDown  = fmt.Errorf("dial: %w", io.ErrUnexpectedEOF)
	errDead  = errors.New("the process is dead")
	errDrawn = &mysql.MySQLError{Number: 1205, Message: "Lock wait timeout exceeded"}
)

// sleep waits in virtual time; a nil done never ends it.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// name is how the trace names a row.
func name(id outbox.Identity) string { return id.MessageID }
