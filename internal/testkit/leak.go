package testkit

import "go.uber.org/goleak"

// IgnoreServers leaves the goroutines of servers out of a leak check: a server that is shared and was started again in a test has others than before.
func IgnoreServers() goleak.Option {
	return goleak.IgnoreAnyFunction("github.com/canal-outbox/canal-outbox/internal/testkit.(*Process).reap")
}

// CheckLeaks fails the test when, after all later cleanups, goroutines run that did not run at the time of the call. Call
// it before the test makes anything of its own, but after it has got its shared servers, whose goroutines stay.
//
// Goroutines of RocketMQ's client are not counted: after Shutdown they sleep up to ten seconds before they notice, and the
// connection to the name server stays. All of them run under the named function.
func CheckLeaks(t T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	rocketmq := goleak.IgnoreAnyFunction("github.com/apache/rocketmq-client-go/v2/primitive.WithRecover")
	t.Cleanup(func() {
		t.Helper()
		if err := goleak.Find(before, rocketmq); err != nil {
			t.Fatalf("%v", err)
		}
	})
}
