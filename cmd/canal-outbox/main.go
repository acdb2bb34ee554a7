// Command canal-outbox relays rows of a local message table to RocketMQ or Kafka.
//
// Exit codes: 0 success; 1 failure (the message says what to do), or `reconcile` found differences; 2 wrong command line; 3
// refused: it is possible, but a person must decide first; 4 `status` found problems. The first SIGINT or SIGTERM ends the work
// in order, the second at once. SIGHUP, of a terminal that closes, ends it in order however often it comes.
//
// It guarantees that every error reaches the exit code and standard error, and owns no goroutine of its own.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // containers without a time zone database

	"go.uber.org/zap"

	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/relay"
	"github.com/canal-outbox/canal-outbox/internal/translate"
)

// The exit codes.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitRefused  = 3
	exitProblems = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the second has its usual effect.
	context.AfterFunc(ctx, stop)
	if !signal.Ignored(syscall.SIGHUP) { // it is with nohup
		// Kernel and shell both send it when a terminal closes: the second must not end a process that stops.
		ctx, _ = signal.NotifyContext(ctx, syscall.SIGHUP)
	}
	os.Exit(execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	c := &cli{in: in, out: out, err: errOut, words: translate.Of(os.Getenv)}
	root := newRoot(c)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !c.started {
		// Every error before a command's own code is about the command line.
		err = operator.Usagef("%v; see `canal-outbox --help`", err)
	}
	if err != nil && !errors.Is(err, errProblems) && !errors.Is(err, errDifferences) { // the output of the command shows them
		c.report(err)
	}
	return exitCode(err)
}

// exitCode maps each kind of error to its code.
func exitCode(err error) int {
	var coded *operator.Error
	var refused *relay.RefusedError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errProblems):
		return exitProblems
	case errors.As(err, &refused):
		return exitRefused
	case errors.As(err, &coded) && (coded.Code == operator.CodeRefused || coded.Code == operator.CodeNeedsScan):
		return exitRefused
	case errors.As(err, &coded) && coded.Code == operator.CodeUsage:
		return exitUsage
	}
	return exitFailure
}

// failure is the JSON of an error.
type failure struct {
	Code    operator.Code  `json:"code"`
	Message string         `json:"message"`
	Faults  []config.Fault `json:"faults,omitempty"` // of a configuration
}

// report writes the error to standard error, or as JSON to standard output. A failure of that is ignored.
func (c *cli) report(err error) {
	if c.log != nil {
		c.log.Error("canal-outbox ends", zap.Error(err))
		return
	}
	if c.format != formatJSON {
		_, _ = fmt.Fprintf(c.err, "canal-outbox: %s\n", c.words.Lines(err.Error()))
		return
	}
	f := failure{Code: operator.CodeFailure, Message: err.Error()}
	var coded *operator.Error
	var faults *config.Faults
	switch {
	case errors.As(err, &coded):
		f.Code = coded.Code
	case errors.As(err, &faults):
		f.Faults = faults.Faults
	case exitCode(err) == exitRefused:
		f.Code = operator.CodeRefused
	}
	_ = json.NewEncoder(c.err).Encode(map[string]failure{"error": f})
}
