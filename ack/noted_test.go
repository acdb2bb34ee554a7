package ack

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A first send from the log is not noted, and costs nothing; refusals, failures, second sends and sends by a sweep are.
func TestG44_OnlyWhatARowForgetsIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := build(newWorld(), Config{})
		var noted []string
		b.cfg.Noted = func(list []outbox.Completion) {
			for i := range list {
				noted = append(noted, list[i].ID)
			}
		}
		swept, twice := completion(shop, 4, outbox.ActionMarkSent), completion(shop, 5, outbox.ActionMarkSent)
		swept.Path, twice.Sends = outbox.PathSweep, 2
		first := completion(shop, 1, outbox.ActionMarkSent)
		first.Sends = 1
		ctx, stop := context.WithCancel(t.Context())
		b.stop = stop
		go func() { b.end <- b.Run(ctx) }()
		b.Add([]outbox.Completion{first, completion(shop, 2, outbox.ActionRetry), completion(shop, 3, outbox.ActionFail), swept, twice, completion(shop, 6, outbox.ActionRelease)})
		time.Sleep(time.Second)
		if err := b.close(); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, id := range noted {
			seen[id] = true
		}
		if len(noted) != 4 || seen["1"] || seen["6"] {
			t.Errorf("rows %v are noted", noted)
		}
	})
}
