package kafka

import "context"

// within calls the client library and returns when ctx ends, at the latest. In the library a request waits behind another
// request's dial without regard to its context: a stop during a probe of an unreachable broker took ten seconds longer.
func within[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := ask()
		done <- answer{value, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
