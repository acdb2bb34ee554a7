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
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// ErrNoDaemon says that no process listens on the socket.
var ErrNoDaemon = errors.New("no relay is running")

// Client talks to a relay over its unix socket. Its methods mirror Service; errors of the relay come back as *Error.
//
// A process that is stopped (SIGSTOP) still accepts connections, because the kernel does. So every request has a time-out, and one whose
// work may take long is preceded by a request that a relay answers at once.
type Client struct {
	socket string
	http   *http.Client
	quick  time.Duration // for requests that a relay answers at once
	long   time.Duration // for those that read or change many rows
}

// The time-outs. A relay answers from memory, or asks its database for one second at most; quickTime leaves room for a loaded machine.
const (
	quickTime = 5 * time.Second
	longTime  = 2 * time.Minute
)

// NewClient returns a client for the socket. It does no I/O.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	// No connection is kept: a command asks once or twice and ends.
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true}
	return &Client{socket: socket, http: &http.Client{Transport: transport}, quick: quickTime, long: longTime}
}

// Status returns the relay's status.
func (c *Client) Status(ctx context.Context) (operator.Status, error) {
	return answerOf[operator.Status](c.do, ctx, http.MethodGet, "/api/v1/status", nil)
}

// Live returns an error when the relay cannot make progress by itself.
func (c *Client) Live(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, "/healthz", nil, nil)
}

// Checkpoint returns the current checkpoint.
func (c *Client) Checkpoint(ctx context.Context) (operator.Checkpoint, error) {
	return answerOf[operator.Checkpoint](c.do, ctx, http.MethodGet, "/api/v1/checkpoint", nil)
}

// History returns the checkpoints of the past, newest first.
func (c *Client) History(ctx context.Context, limit int) ([]operator.HistoryEntry, error) {
	return answerOf[[]operator.HistoryEntry](c.do, ctx, http.MethodGet, "/api/v1/checkpoint/history?limit="+strconv.Itoa(limit), nil)
}

// Timeline returns what was measured, and what happened.
func (c *Client) Timeline(ctx context.Context, span operator.Span) (operator.Timeline, error) {
	query := url.Values{"from": {span.From.UTC().Format(time.RFC3339)}, "to": {span.To.UTC().Format(time.RFC3339)}, "step": {span.Step.String()}}
	return answerOf[operator.Timeline](c.do, ctx, http.MethodGet, "/api/v1/history?"+query.Encode(), nil)
}

// SetCheckpoint moves the checkpoint, or says what a move would do.
func (c *Client) SetCheckpoint(ctx context.Context, target operator.Target) (operator.Preview, error) {
	return answerOf[operator.Preview](c.doLong, ctx, http.MethodPost, "/api/v1/checkpoint", target)
}

// Gaps returns the recorded gaps.
func (c *Client) Gaps(ctx context.Context) ([]outbox.Gap, error) {
	return answerOf[[]outbox.Gap](c.do, ctx, http.MethodGet, "/api/v1/gaps", nil)
}

// AckGap marks a gap as seen.
func (c *Client) AckGap(ctx context.Context, id uint64) error {
	return c.do(ctx, http.MethodPost, "/api/v1/gaps/"+strconv.FormatUint(id, 10)+"/ack", struct{}{}, nil)
}

// Pause stops the intake and returns the pause in force. The relay fills in By and Since.
func (c *Client) Pause(ctx context.Context, p outbox.Pause) (*outbox.Pause, error) {
	state, err := answerOf[operator.PauseState](c.do, ctx, http.MethodPost, "/api/v1/pause", operator.PauseOrder{Reason: p.Reason})
	return state.Paused, err
}

// Resume ends the pause.
func (c *Client) Resume(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/api/v1/resume", struct{}{}, nil)
}

// Audit returns what people did, newest first.
func (c *Client) Audit(ctx context.Context, limit int) ([]operator.Change, error) {
	return answerOf[[]operator.Change](c.do, ctx, http.MethodGet, "/api/v1/audit?limit="+strconv.Itoa(limit), nil)
}

// Sweep starts a sweep.
func (c *Client) Sweep(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/api/v1/sweep", struct{}{}, nil)
}

// Retention starts a pass of the retention.
func (c *Client) Retention(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/api/v1/retention", struct{}{}, nil)
}

// Export writes the relay's state.
func (c *Client) Export(ctx context.Context, w io.Writer) error {
	return c.afterProbe(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodGet, "/api/v1/state", nil, func(body io.Reader) error {
			_, err := io.Copy(w, body)
			return err
		})
	})
}

// answerOf sends a request by do or doLong and returns its answer.
func answerOf[T any](send func(ctx context.Context, method, path string, in, out any) error, ctx context.Context, method, path string, in any) (out T, err error) {
	err = send(ctx, method, path, in, &out)
	return out, err
}

// do sends a request that a relay answers at once, and reads the answer into out, if any.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	return c.within(ctx, c.quick, func(ctx context.Context) error { return c.ask(ctx, method, path, in, out) })
}

// doLong sends a request whose answer may take long, once the relay has shown that it answers at all.
func (c *Client) doLong(ctx context.Context, method, path string, in, out any) error {
	return c.afterProbe(ctx, func(ctx context.Context) error { return c.ask(ctx, method, path, in, out) })
}

// afterProbe is within for work that may take long. The request before it is one that needs neither the database nor the broker.
func (c *Client) afterProbe(ctx context.Context, work func(context.Context) error) error {
	err := c.within(ctx, c.quick, func(ctx context.Context) error {
		return c.ask(ctx, http.MethodGet, "/api/v1/me", nil, new(Me))
	})
	if err != nil {
		return err
	}
	return c.within(ctx, c.long, work)
}

// within bounds work, and says so when the bound ends it.
func (c *Client) within(ctx context.Context, most time.Duration, work func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := work(bounded)
	if err == nil || ctx.Err() != nil || !errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return err
	}
	if most == c.long {
		return fmt.Errorf("the relay on %s did not finish within %v; it may still be at work: look at `canal-outbox audit` and `canal-outbox status`", c.socket, most)
	}
	return fmt.Errorf("the relay on %s accepts connections but gives no answer within %v: its process is stopped or overloaded; "+
		"look at its state with `ps -o pid,stat,cmd -C canal-outbox` (T is stopped: `kill -CONT PID` continues it), or restart it", c.socket, most)
}

// ask sends one request and reads its answer into out, if any.
func (c *Client) ask(ctx context.Context, method, path string, in, out any) error {
	return c.send(ctx, method, path, in, func(body io.Reader) error {
		if out == nil {
			return nil
		}
		if err := json.NewDecoder(body).Decode(out); err != nil {
			return fmt.Errorf("the relay's answer to %s %s cannot be read (is it another version?): %w", method, path, err)
		}
		return nil
	})
}

// send sends one request and hands over the body of its answer.
func (c *Client) send(ctx context.Context, method, path string, in any, read func(io.Reader) error) error {
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
	claim(request)
	response, err := c.http.Do(request)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("%w (no process answers on %s)", ErrNoDaemon, c.socket)
	}
	if err != nil {
		return fmt.Errorf("ask the relay on %s: %w", c.socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return readError(response)
	}
	return read(response.Body)
}

func readError(response *http.Response) error {
	var body errorBody
	if err := json.NewDecoder(io.LimitReader(response.Body, maxBody)).Decode(&body); err != nil || body.Error == nil {
		return fmt.Errorf("the relay answered %s", response.Status)
	}
	return body.Error
}
