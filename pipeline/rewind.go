package pipeline

import "github.com/canal-outbox/canal-outbox/outbox"

// Rewind sets the offered position back to the low-water mark and returns it: what lies behind is offered again. Rows that
// are in flight answer for their transactions then, rows that wait for the recovery check are deferred and checked anew. The
// reader must have stopped.
func (p *Pipeline) Rewind() (outbox.Position, error) {
	p.order <- struct{}{} // whoever has it there holds it for one query at most
	defer p.order.release()
	p.deferWindow()
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.mark.position()
	p.offered = at
	p.broadcast()
	return at, p.mark.reset(p.mark.set.Flavor(), at)
}
