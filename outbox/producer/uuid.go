package producer

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// lastTick is the time in the last message id that this process made, in steps of 1/4096 ms.
var lastTick struct {
	sync.Mutex
	value int64
}

// newUUID makes a UUID of version 7 (RFC 9562, with a finer clock in rand_a, method 3): ids of one process rise, so that rows
// with such a key are appended to their index.
func newUUID() [16]byte {
	now := time.Now()
	lastTick.Lock()
	lastTick.value = max(lastTick.value+1, now.UnixMilli()<<12|int64(now.Nanosecond()%1e6)<<12/1e6)
	tick := lastTick.value
	lastTick.Unlock()

	var id [16]byte
	_, _ = rand.Read(id[8:]) // it never fails: crypto/rand ends the process instead
	for i, milli := 5, tick>>12; i >= 0; i, milli = i-1, milli>>8 {
		id[i] = byte(milli)
	}
	id[6] = 0x70 | byte(tick>>8)&0x0F
	id[7] = byte(tick)
	id[8] = 0x80 | id[8]&0x3F
	return id
}

func uuidText(id [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// parseUUID reads the form with hyphens and the one without: what a BINARY(16) column of message ids can hold.
func parseUUID(text string) (id [16]byte, ok bool) {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		text = strings.ReplaceAll(text, "-", "")
	}
	if len(text) != 2*len(id) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(text))
	return id, err == nil
}
