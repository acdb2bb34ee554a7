package fallback

import "go.uber.org/zap"

// primaryEvery is how many regular sweeps one of them reads the primary for: a replica that stands still, or never gets a row
// (sql_log_bin=0), hides it no longer than these take.
const primaryEvery = 10

// replica says which regular sweeps read the replica, and whether it answered last. Sweeps without threshold read the primary: after a
// gap, at a start and when triggered they are for rows that the replica may not have.
type replica struct {
	sweeps int
	away   bool
}

// turn reports whether the regular sweep that begins reads the replica.
func (r *replica) turn() bool {
	r.sweeps++
	return r.sweeps%primaryEvery != 0
}

func (s *Sweeper) replicaFailed(err error) {
	s.metrics.replicaErrors.Inc()
	if !s.replica.away {
		s.log.Warn("the server of fallback.read_from does not show the rows, the sweep reads the primary", zap.Error(err))
	}
	s.replica.away = true
}

func (s *Sweeper) replicaAnswers() {
	if s.replica.away {
		s.log.Info("the server of fallback.read_from shows the rows again")
	}
	s.replica.away = false
}
