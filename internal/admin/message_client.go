package admin

import (
	"context"
	"net/http"
	"net/url"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

var _ operator.Service = (*Client)(nil)

// ListMessages returns one page of messages.
func (c *Client) ListMessages(ctx context.Context, q operator.MessageQuery) (operator.MessagePage, error) {
	return answerOf[operator.MessagePage](c.doLong, ctx, http.MethodGet, "/api/v1/messages?"+encodeQuery(q), nil)
}

// ShowMessages returns the rows that a text may mean.
func (c *Client) ShowMessages(ctx context.Context, ref operator.MessageRef) (operator.MessageMatches, error) {
	return answerOf[operator.MessageMatches](c.doLong, ctx, http.MethodGet, messagePath(ref, ""), nil)
}

// TraceMessage returns what is known of a message.
func (c *Client) TraceMessage(ctx context.Context, ref operator.MessageRef) (operator.Trace, error) {
	return answerOf[operator.Trace](c.doLong, ctx, http.MethodGet, messagePath(ref, "/trace"), nil)
}

// RetryMessages sets messages back to PENDING, or says which.
func (c *Client) RetryMessages(ctx context.Context, order operator.MessageOrder) (operator.MessageChange, error) {
	return answerOf[operator.MessageChange](c.doLong, ctx, http.MethodPost, "/api/v1/messages/retry", order)
}

// DiscardMessages moves messages to the failed-message log, or says which.
func (c *Client) DiscardMessages(ctx context.Context, order operator.MessageOrder) (operator.MessageChange, error) {
	return answerOf[operator.MessageChange](c.doLong, ctx, http.MethodPost, "/api/v1/messages/discard", order)
}

// MessageStats counts the rows of a table.
func (c *Client) MessageStats(ctx context.Context, table string) (operator.MessageStats, error) {
	return answerOf[operator.MessageStats](c.doLong, ctx, http.MethodGet, "/api/v1/messages/stats?"+url.Values{"table": {table}}.Encode(), nil)
}
