package kafka

import "context"

// within asks the client library and returns when ctx ends, at the latest. In the library a request waits behind the dial for
// another one, without regard to its context: a stop that came while a broker was probed that took no connection lasted ten
// seconds longer.
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
