package messages

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/admin"
)

// Away answers while there is no table to look into.
type Away struct{ Why error }

var _ admin.Messages = Away{}

// ListMessages implements admin.Messages.
func (a Away) ListMessages(context.Context, admin.MessageQuery) (admin.MessagePage, error) {
	return admin.MessagePage{}, a.Why
}

// ShowMessages implements admin.Messages.
func (a Away) ShowMessages(context.Context, admin.MessageRef) (admin.MessageMatches, error) {
	return admin.MessageMatches{}, a.Why
}

// TraceMessage implements admin.Messages.
func (a Away) TraceMessage(context.Context, admin.MessageRef) (admin.Trace, error) {
	return admin.Trace{}, a.Why
}

// RetryMessages implements admin.Messages.
func (a Away) RetryMessages(context.Context, admin.MessageOrder) (admin.MessageChange, error) {
	return admin.MessageChange{}, a.Why
}

// DiscardMessages implements admin.Messages.
func (a Away) DiscardMessages(context.Context, admin.MessageOrder) (admin.MessageChange, error) {
	return admin.MessageChange{}, a.Why
}

// MessageStats implements admin.Messages.
func (a Away) MessageStats(context.Context, string) (admin.MessageStats, error) {
	return admin.MessageStats{}, a.Why
}
