package admin

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/outbox"
)

// A stopped process accepts connections and answers none: every question ends with a message that says what to look at, and nothing is
// changed that a person did not see an answer for.
func TestG41_AStoppedRelayGivesNoAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	silent, err := net.Listen("unix", socket) // nothing accepts: the kernel completes the connection
	must(t, err)
	defer silent.Close()
	c := NewClient(socket)
	c.quick = 50 * time.Millisecond
	for name, err := range map[string]error{
		"status": second(c.Status(t.Context())), "live": c.Live(t.Context()), "pause": second(c.Pause(t.Context(), outbox.Pause{})),
		"list": second(c.ListMessages(t.Context(), operator.MessageQuery{Limit: 1})), "retry": second(c.RetryMessages(t.Context(), operator.MessageOrder{IDs: []string{"1"}})),
		"checkpoint set": second(c.SetCheckpoint(t.Context(), operator.Target{Latest: true})), "export": c.Export(t.Context(), new(strings.Builder)),
	} {
		if err == nil || !strings.Contains(err.Error(), "no answer within 50ms") || !strings.Contains(err.Error(), "kill -CONT") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Work that takes long is not cut where an answer that comes at once would be, and its own bound says that it may still be at work.
func TestG41_LongWorkHasItsOwnBound(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, Config{Socket: socket}, &fake{messagesFake: messagesFake{hangs: true}})
	c := NewClient(socket)
	c.long = 50 * time.Millisecond
	if _, err := c.RetryMessages(t.Context(), operator.MessageOrder{IDs: []string{"1"}}); err == nil || !strings.Contains(err.Error(), "may still be at work") {
		t.Errorf("retry: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
