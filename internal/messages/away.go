package messages

import (
	"context"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// Away answers while there is no table to look into.
type Away struct{ Why error }

var _ operator.Messages = Away{}

// ListMessages implements operator.Messages.
func (a Away) ListMessages(context.Context, operator.MessageQuery) (operator.MessagePage, error) {
	return operator.MessagePage{}, a.Why
}

// ShowMessages implements operator.Messages.
func (a Away) ShowMessages(context.Context, operator.MessageRef) (operator.MessageMatches, error) {
	return operator.MessageMatches{}, a.Why
}

// TraceMessage implements operator.Messages.
func (a Away) TraceMessage(context.Context, operator.MessageRef) (operator.Trace, error) {
	return operator.Trace{}, a.Why
}

// RetryMessages implements operator.Messages.
func (a Away) RetryMessages(context.Context, operator.MessageOrder) (operator.MessageChange, error) {
	return operator.MessageChange{}, a.Why
}

// DiscardMessages implements operator.Messages.
func (a Away) DiscardMessages(context.Context, operator.MessageOrder) (operator.MessageChange, error) {
	return operator.MessageChange{}, a.Why
}

// MessageStats implements operator.Messages.
func (a Away) MessageStats(context.Context, string) (operator.MessageStats, error) {
	return operator.MessageStats{}, a.Why
}
