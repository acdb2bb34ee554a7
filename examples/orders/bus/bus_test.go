package bus

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A message that waits for a minute is logged with its id and its cause, but not at each attempt.
func TestG31_AMessageThatWaitsIsLogged(t *testing.T) {
	var lines bytes.Buffer
	log.SetOutput(&lines)
	defer log.SetOutput(os.Stderr)
	synctest.Test(t, func(t *testing.T) {
		began, attempts := time.Now(), 0
		err := insist(t.Context(), "points", func(context.Context, Message) error {
			if attempts++; time.Since(began) < time.Minute {
				return errors.New("no way to Redis")
			}
			return nil
		}, Message{ID: "order_paid:1"})
		if err != nil || attempts < 20 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
	})
	text := lines.String()
	if n := strings.Count(text, "\n"); n < 4 || n > 8 || !strings.Contains(text, "group points: message order_paid:1 waits, and those behind it: attempt 1: no way to Redis") {
		t.Errorf("%d lines: %s", n, text)
	}
}
