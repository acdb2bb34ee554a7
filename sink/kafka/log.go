package kafka

import (
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger passes the client library's messages on. They tell of connections, metadata and batches, with names, numbers and
// errors, never with what is in a record.
type logger struct{ log *zap.Logger }

// Level implements kgo.Logger. What the library calls info is said at every connection and metadata refresh: debug here.
func (l logger) Level() kgo.LogLevel {
	switch core := l.log.Core(); {
	case core.Enabled(zapcore.DebugLevel):
		return kgo.LogLevelInfo
	case core.Enabled(zapcore.WarnLevel):
		return kgo.LogLevelWarn
	case core.Enabled(zapcore.ErrorLevel):
		return kgo.LogLevelError
	}
	return kgo.LogLevelNone
}

// Log implements kgo.Logger.
func (l logger) Log(level kgo.LogLevel, text string, pairs ...any) {
	severity := zapcore.DebugLevel
	switch level {
	case kgo.LogLevelError:
		severity = zapcore.ErrorLevel
	case kgo.LogLevelWarn:
		severity = zapcore.WarnLevel
	}
	entry := l.log.Check(severity, "kafka client: "+text)
	if entry == nil {
		return
	}
	fields := make([]zap.Field, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		if name, ok := pairs[i].(string); ok {
			fields = append(fields, zap.Any(name, pairs[i+1]))
		}
	}
	entry.Write(fields...)
}
