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
	var page operator.MessagePage
	return page, c.doLong(ctx, http.MethodGet, "/api/v1/messages?"+encodeQuery(q), nil, &page)
}

// ShowMessages returns the rows that a text may mean.
func (c *Client) ShowMessages(ctx context.Context, ref operator.MessageRef) (operator.MessageMatches, error) {
	var matches operator.MessageMatches
	return matches, c.doLong(ctx, http.MethodGet, messagePath(ref, ""), nil, &matches)
}

// TraceMessage returns what is known of a message.
func (c *Client) TraceMessage(ctx context.Context, ref operator.MessageRef) (operator.Trace, error) {
	var trace operator.Trace
	return trace, c.doLong(ctx, http.MethodGet, messagePath(ref, "/trace"), nil, &trace)
}

// RetryMessages sets messages back to PENDING, or says which.
func (c *Client) RetryMessages(ctx context.Context, order operator.MessageOrder) (operator.MessageChange, error) {
	var change operator.MessageChange
	return change, c.doLong(ctx, http.MethodPost, "/api/v1/messages/retry", order, &change)
}

// DiscardMessages moves messages to the failed-message log, or says which.
func (c *Client) DiscardMessages(ctx context.Context, order operator.MessageOrder) (operator.MessageChange, error) {
	var change operator.MessageChange
	return change, c.doLong(ctx, http.MethodPost, "/api/v1/messages/discard", order, &change)
}

// MessageStats counts the rows of a table.
func (c *Client) MessageStats(ctx context.Context, table string) (operator.MessageStats, error) {
	var stats operator.MessageStats
	return stats, c.doLong(ctx, http.MethodGet, "/api/v1/messages/stats?"+url.Values{"table": {table}}.Encode(), nil, &stats)
}
