package app

import (
	"sync"

	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/pipeline"
)

// progress stands between ack and the mark and the store that it connects: a mark that ack read before a move must not be
// written over the anchor that the move made.
type progress struct {
	*pipeline.Pipeline
	state State

	mu    sync.Mutex
	moves int // anchors made
	seen  int // of them, before the last look at the mark
}

// Checkpoint implements ack.Progress.
func (p *progress) Checkpoint() (outbox.Position, bool) {
	p.mu.Lock()
	p.seen = p.moves
	p.mu.Unlock()
	return p.Pipeline.Checkpoint()
}

// Commit implements ack.Journal.
func (p *progress) Commit(sent []outbox.Completion, written []outbox.Identity, at *outbox.Position) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen != p.moves {
		at = nil
	}
	return p.state.Commit(sent, written, at)
}

// move sets the mark and the stored checkpoint anew. The mark comes first and without the lock, because it may wait for
// rows that wait for a commit.
func (p *progress) move(id server.ID, to outbox.Position, reason string) error {
	if err := p.Move(id.Flavor, to); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moves++
	return p.state.Anchor(id, to, reason)
}
