package fallback

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// primaryEvery: one of this number of regular sweeps reads the primary. It bounds how long a replica that has stopped, or never
// gets a row (sql_log_bin=0), hides the row.
const primaryEvery = 10

// replica decides which regular sweeps read the replica, and whether it answered last. Sweeps without threshold read the primary:
// after a gap, at a start and when triggered they look for rows that the replica may not have.
type replica struct {
	log    *zap.Logger
	errors prometheus.Counter
	sweeps int
	away   bool
}

// next reports whether the regular sweep that begins reads the replica.
func (r *replica) next() bool {
	r.sweeps++
	return r.sweeps%primaryEvery != 0
}

// failed counts an error of the replica, and logs the first.
func (r *replica) failed(err error) {
	r.errors.Inc()
	if !r.away {
		r.log.Warn("the server of fallback.read_from does not return the rows, the sweep reads the primary", zap.Error(err))
	}
	r.away = true
}

func (r *replica) answered() {
	if r.away {
		r.log.Info("the server of fallback.read_from returns the rows again")
	}
	r.away = false
}
