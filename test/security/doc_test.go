// Package security tests with real servers and the built binary that connections are encrypted and checked as configured, that
// the admin endpoint answers only authorised requests, and that no secret, body or statement text is ever printed.
//
// Guarantee: every process and listener that it starts ends with its test. Goroutines: each child process has one that waits for
// its end, each tap one for its listener and two for each connection.
package security

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/test/relay"
)

func TestMain(m *testing.M) { relay.Main(m) }
