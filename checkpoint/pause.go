package checkpoint

import "github.com/canal-outbox/canal-outbox/outbox"

// pauses is the part of a Store that keeps the operator's pause.
type pauses struct {
	files *engine
	pause *outbox.Pause
}

// Pause returns the operator's pause; nil when there is none.
func (p *pauses) Pause() *outbox.Pause {
	p.files.state.Lock()
	defer p.files.state.Unlock()
	return p.pause
}

// SetPause records a pause, or with nil its end, durably.
func (p *pauses) SetPause(pause *outbox.Pause) error {
	return p.files.update(func(b *batch) error {
		if pause == nil {
			return b.Delete([]byte{kindPause}, nil)
		}
		return b.putJSON([]byte{kindPause}, pause)
	}, func() { p.pause = pause })
}
