package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// ErrNoDaemon says that nobody listens on the socket.
var ErrNoDaemon = errors.New("no daemon is running")

// Client talks to a daemon over its unix socket. Its methods mirror Service; errors of the daemon come back as *Error.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client for the socket. It does no I/O.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	// No connection is kept: a command asks once or twice and ends.
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Client{socket: socket, http: &http.Client{Transport: transport, Timeout: 2 * time.Minute}}
}

// Status returns the daemon's status.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	return s, c.do(ctx, http.MethodGet, "/api/v1/status", nil, &s)
}

// Live returns an error when the daemon cannot make progress by itself.
func (c *Client) Live(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/healthz", nil, nil)
}

// Checkpoint returns the current checkpoint.
func (c *Client) Checkpoint(ctx context.Context) (Checkpoint, error) {
	var cp Checkpoint
	return cp, c.do(ctx, http.MethodGet, "/api/v1/checkpoint", nil, &cp)
}

// History returns the checkpoints of the past, newest first.
func (c *Client) History(ctx context.Context, limit int) ([]HistoryEntry, error) {
	var entries []HistoryEntry
	return entries, c.do(ctx, http.MethodGet, "/api/v1/checkpoint/history?limit="+strconv.Itoa(limit), nil, &entries)
}

// SetCheckpoint moves the checkpoint, or says what a move would do.
func (c *Client) SetCheckpoint(ctx context.Context, target Target) (Preview, error) {
	var p Preview
	return p, c.do(ctx, http.MethodPost, "/api/v1/checkpoint", target, &p)
}

// Gaps returns the recorded gaps.
func (c *Client) Gaps(ctx context.Context) ([]outbox.Gap, error) {
	var gaps []outbox.Gap
	return gaps, c.do(ctx, http.MethodGet, "/api/v1/gaps", nil, &gaps)
}

// AckGap marks a gap as seen.
func (c *Client) AckGap(ctx context.Context, id uint64) error {
	return c.do(ctx, http.MethodPost, "/api/v1/gaps/"+strconv.FormatUint(id, 10)+"/ack", struct{}{}, nil)
}

// Pause stops the intake and returns the pause that stands. By and Since of the one that is given are for the daemon to say.
func (c *Client) Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error) {
	var state PauseState
	err := c.do(ctx, http.MethodPost, "/api/v1/pause", PauseOrder{Reason: p.Reason}, &state)
	return state.Paused, err
}

// Resume lets the intake go on.
func (c *Client) Resume(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/api/v1/resume", struct{}{}, nil)
}

// Audit returns what people did, newest first.
func (c *Client) Audit(ctx context.Context, limit int) ([]Change, error) {
	var changes []Change
	return changes, c.do(ctx, http.MethodGet, "/api/v1/audit?limit="+strconv.Itoa(limit), nil, &changes)
}

// Sweep starts a sweep.
func (c *Client) Sweep(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/api/v1/sweep", struct{}{}, nil)
}

// Retention starts a pass of the retention.
func (c *Client) Retention(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/api/v1/retention", struct{}{}, nil)
}

// Export writes the daemon's state.
func (c *Client) Export(ctx context.Context, w io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/api/v1/state", nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the daemon on %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return readError(response)
	}
	_, err = io.Copy(w, response.Body)
	return err
}

// do sends one request and reads its answer into out, if any.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if in != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w (nobody answers on %s)", ErrNoDaemon, c.socket)
	}
	if err != nil {
		return fmt.Errorf("ask the daemon on %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return readError(response)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		return fmt.Errorf("the daemon's answer to %s %s cannot be read (is it another version?): %w", method, path, err)
	}
	return nil
}

func readError(response *http.Response) error {
	var body errorBody
	if err := json.NewDecoder(io.LimitReader(response.Body, maxBody)).Decode(&body); err != nil || body.Error == nil {
		return fmt.Errorf("the daemon answered %s", response.Status)
	}
	return body.Error
}
