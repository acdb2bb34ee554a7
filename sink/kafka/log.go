package kafka

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger writes the client library's log lines at debug level: the sink reports what matters to an operator itself, once, by
// outcomes and Probe; the library's lines would precede it, several times. They name connections, metadata and batches, with
// numbers and errors, never the content of a record. They stop with end: the library leaves goroutines that continue to write,
// and the owner of the sink may have closed its log.
type logger struct {
	log   *zap.Logger
	mu    sync.RWMutex // held while a line is written
	ended bool
}

// end returns when no more lines will be written.
func (l *logger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// Level implements kgo.Logger.
func (l *logger) Level() kgo.LogLevel {
	if l.log.Core().Enabled(zapcore.DebugLevel) {
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l *logger) Log(level kgo.LogLevel, text string, pairs ...any) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.ended {
		return
	}
	entry := l.log.Check(zapcore.DebugLevel, "kafka client: "+text)
	if entry == nil {
		return
	}
	fields := append(make([]zap.Field, 0, 1+len(pairs)/2), zap.Stringer("rank", level))
	for i := 0; i+1 < len(pairs); i += 2 {
		if name, ok := pairs[i].(string); ok {
			fields = append(fields, zap.Any(name, pairs[i+1]))
		}
	}
	entry.Write(fields...)
}
