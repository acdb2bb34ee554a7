package checkpoint

import "github.com/canal-outbox/canal-outbox/outbox"

// Pause returns the operator's pause; nil when there is none.
func (s *Store) Pause() *outbox.Pause {
	s.state.Lock()
	defer s.state.Unlock()
	return s.pause
}

// SetPause records a pause, or with nil its end, durably.
func (s *Store) SetPause(p *outbox.Pause) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	var err error
	if p == nil {
		err = s.batch.Delete([]byte{kindPause}, nil)
	} else {
		err = s.putJSON([]byte{kindPause}, p)
	}
	if err != nil {
		return err
	}
	if err := s.sync(); err != nil {
		return err
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.pause = p
	return nil
}
