package admin

import (
	"context"
	"net/http"
	"net/url"
)

var _ Messages = (*Client)(nil)

// ListMessages returns one page of messages.
func (c *Client) ListMessages(ctx context.Context, q MessageQuery) (MessagePage, error) {
	var page MessagePage
	return page, c.doLong(ctx, http.MethodGet, "/api/v1/messages?"+q.encode(), nil, &page)
}

// ShowMessages returns the rows that a text may mean.
func (c *Client) ShowMessages(ctx context.Context, ref MessageRef) (MessageMatches, error) {
	var matches MessageMatches
	return matches, c.doLong(ctx, http.MethodGet, ref.path(""), nil, &matches)
}

// TraceMessage tells what is known of a message.
func (c *Client) TraceMessage(ctx context.Context, ref MessageRef) (Trace, error) {
	var trace Trace
	return trace, c.doLong(ctx, http.MethodGet, ref.path("/trace"), nil, &trace)
}

// RetryMessages sets messages back to PENDING, or says which.
func (c *Client) RetryMessages(ctx context.Context, order MessageOrder) (MessageChange, error) {
	var change MessageChange
	return change, c.doLong(ctx, http.MethodPost, "/api/v1/messages/retry", order, &change)
}

// DiscardMessages moves messages to the failed-message log, or says which.
func (c *Client) DiscardMessages(ctx context.Context, order MessageOrder) (MessageChange, error) {
	var change MessageChange
	return change, c.doLong(ctx, http.MethodPost, "/api/v1/messages/discard", order, &change)
}

// MessageStats counts the rows of a table.
func (c *Client) MessageStats(ctx context.Context, table string) (MessageStats, error) {
	var stats MessageStats
	return stats, c.doLong(ctx, http.MethodGet, "/api/v1/messages/stats?"+url.Values{"table": {table}}.Encode(), nil, &stats)
}
