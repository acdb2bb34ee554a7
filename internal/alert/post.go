package alert

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The headers of a signed message. The signature is "sha256=" and the HMAC-SHA256, in hexadecimal digits, of the timestamp, a
// full stop and the body. The timestamp is in seconds since 1970; a receiver refuses old ones, so that an attacker cannot replay
// a message.
const (
	TimestampHeader = "X-Canal-Outbox-Timestamp"
	SignatureHeader = "X-Canal-Outbox-Signature"
)

// message is what the webhook gets.
type message struct {
	Type   string    `json:"type"` // failed, limit or digest
	Text   string    `json:"text"` // one line for people; chat systems show it
	At     time.Time `json:"at"`
	Source string    `json:"source"` // address of the database
	Host   string    `json:"host"`   // where the relay runs

	Rows    []Row `json:"rows,omitempty"`
	Waiting int   `json:"waiting,omitempty"` // further rows, in the next message
	Dropped int   `json:"dropped,omitempty"` // rows that no message lists

	// What has crossed a limit since the last message; in a digest, what is over one.
	Limits []Crossing `json:"limits,omitempty"`

	Since       *time.Time `json:"since,omitempty"`        // in a digest: when the last one was sent; before the first, the first start
	Failed      *int       `json:"failed,omitempty"`       // in a digest: since then
	FailedAgain int        `json:"failed_again,omitempty"` // in a digest: FAILED rows that were tried again and failed again since the last one
	Tables      []Table    `json:"tables,omitempty"`       // in a digest: what is in the tables now
}

func (a *Alerter) message(kind string) *message {
	return &message{Type: kind, At: time.Now().UTC(), Source: a.cfg.Source, Host: a.cfg.Host}
}

func failuresText(m *message) string {
	first := m.Rows[0]
	text := fmt.Sprintf("canal-outbox, %s: a message of %s failed: %s, topic %s: %s", m.Source, first.Table, first.MessageID, first.Topic, first.Reason)
	if first.Class == byApplication {
		text = fmt.Sprintf("canal-outbox, %s: another program has set a message of %s to FAILED: %s, topic %s: %s", m.Source, first.Table, first.MessageID, first.Topic, first.Reason)
	}
	if more := len(m.Rows) - 1 + m.Waiting + m.Dropped; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

func digestText(m *message) string {
	text := fmt.Sprintf("canal-outbox, %s: %d messages failed since %s", m.Source, *m.Failed, m.Since.Format(time.RFC3339))
	if m.FailedAgain > 0 {
		text += fmt.Sprintf(", %d failed again", m.FailedAgain)
	}
	for _, t := range m.Tables {
		if t.Failed > 0 {
			text += fmt.Sprintf("; %s has %d FAILED rows", t.Table, t.Failed)
		}
	}
	for _, c := range m.Limits {
		text += "; " + c.String()
	}
	return text
}

// post makes one attempt. Its error names no address: that of a webhook is often a credential.
func (a *Alerter) post(ctx context.Context, m *message) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode the message: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.cfg.Webhook, bytes.NewReader(body))
	if err != nil {
		return errors.New("alerts.webhook is no address") // the cause would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "canal-outbox/"+a.cfg.Version)
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	request.Header.Set(TimestampHeader, timestamp)
	if secret := a.cfg.Secret.Get(); secret != "" {
		request.Header.Set(SignatureHeader, sign(secret, timestamp, body))
	}
	response, err := a.client.Do(request)
	if err != nil {
		var whole *url.Error
		if errors.As(err, &whole) {
			err = whole.Err // without the address
		}
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 1<<16) // so that the connection can be used again; what it says is of no use
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return fmt.Errorf("it answers %s", response.Status)
	}
	return nil
}

func sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + ".")) // hash.Hash never fails
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// host is what may be shown of an address.
func host(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}
