package redelivery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

const (
	askRows    = 100 // messages in one request
	askTimeout = 10 * time.Second
	maxAnswer  = 1 << 20 // bytes
)

func newClient(transport http.RoundTripper) http.Client {
	return http.Client{
		Transport: transport, Timeout: askTimeout,
		// A redirect would send the list to an address that is not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// question and answer are the contract with the consumers' service.
type (
	question struct {
		Table      string   `json:"table"`
		MessageIDs []string `json:"message_ids"`
	}
	answer struct {
		Done *[]string `json:"done"` // of the message ids; others are not done
	}
)

// query asks which messages are done. Its errors name no address: that may contain a credential.
func (r *Redelivery) query(ctx context.Context, address, name string, ids []outbox.Identity) (done []outbox.Identity, err error) {
	q, byMessage := question{Table: name}, map[string]outbox.Identity{}
	for _, id := range ids {
		q.MessageIDs = append(q.MessageIDs, id.MessageID)
		byMessage[id.MessageID] = id
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode the question: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("state_query is no address") // the cause would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "canal-outbox/"+r.cfg.Version)
	response, err := r.client.Do(request)
	if err != nil {
		var whole *url.Error
		if errors.As(err, &whole) {
			err = whole.Err
		}
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the service answers %s instead of 200", response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	var a answer
	if len(text) > maxAnswer {
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	if json.Unmarshal(text, &a) != nil || a.Done == nil { // the cause would quote the answer
		return nil, errors.New(`the answer is not of the form {"done": ["message id", ...]}`)
	}
	for _, messageID := range *a.Done {
		if id, asked := byMessage[messageID]; asked {
			done = append(done, id)
			delete(byMessage, messageID) // reported once
		}
	}
	return done, nil
}
