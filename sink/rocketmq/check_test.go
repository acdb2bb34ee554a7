package rocketmq

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/sink"
)

// Brokers before 5.0 deliver a delayed message at once and report nothing: doctor checks their release.
func TestDoctorAsksForBrokersWithoutTimers(t *testing.T) {
	c := newCluster(t, "broker-a", "broker-b", "broker-c")
	c.brokers["broker-a"].release, c.brokers["broker-b"].release = firstWithTimers, firstWithTimers-1 // 4.9.9; the third does not report it
	s := newTestSink(t, c)
	section := &Section{NativeDelay: true}
	want := []server.Severity{server.OK, server.Fault, server.Warning}
	found := section.Check(t.Context(), s, sink.Newest{})
	if len(found) != len(want) {
		t.Fatalf("%+v", found)
	}
	for i, f := range found {
		if f.Severity != want[i] || f.Subject != "sink.rocketmq.native_delay" {
			t.Errorf("%+v, want severity %v", f, want[i])
		}
	}
	section.NativeDelay = false // the relay keeps them
	if found := section.Check(t.Context(), s, sink.Newest{}); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}
