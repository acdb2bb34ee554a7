package rocketmq

import (
	"fmt"
	"math"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
	"go.uber.org/zap"
)

// All work-arounds for rocketmq-client-go v2.1.2 are in this file: its globals, its options, and the time limits it has no option
// for. Only SendSync is used: a time-out of SendAsync dereferences nil (failure B01), and one-way sends and requests return no
// result.
//
// One defect remains: when a broker leaves every route, the library deletes its address from a map that sends read without a
// lock. The read lasts nanoseconds and happens only for a broker that answers, so a clash needs a broker that unregisters while
// it serves, at that point of the library's 30 s cycle.

// The library waits three seconds for an answer, a constant. The limits below replace 15, 120 and 120 seconds, in which a silent
// broker could block a worker and, through the library's shared locks, all others (failure B13).
const (
	connectTimeout = 3 * time.Second
	writeTimeout   = 3 * time.Second
	readTimeout    = 45 * time.Second // the library's heartbeat brings an answer every 30 s; without one the connection is dead
)

// newProducer configures and starts the library's producer. It does no I/O before the first send.
func newProducer(cfg Section, instance, secretKey string, log *zap.Logger) (rmq.Producer, error) {
	takeGlobals(log)
	limited := false
	options := []producer.Option{
		producer.WithNsResolver(primitive.NewPassthroughResolver(named(cfg.NameServers))),
		producer.WithGroupName(cfg.Group),
		producer.WithInstanceName(instance), // clients of one name share connections and end together (failure B11)
		producer.WithRetry(0),               // it retries on the same broker with the same object (failures B03, B09)
		producer.WithQueueSelector(producer.NewManualQueueSelector()),
		producer.WithCreateTopicKey(""), // a topic deleted meanwhile is not created again from the broker's template (B14)
		producer.WithCompressMsgBodyOverHowmuch(math.MaxInt),
		timeLimits(&limited),
	}
	if cfg.AccessKey != "" {
		options = append(options, producer.WithCredentials(primitive.Credentials{AccessKey: cfg.AccessKey, SecretKey: secretKey}))
	}
	p, err := rmq.NewProducer(options...)
	if err != nil {
		return nil, fmt.Errorf("rocketmq: %w", err)
	}
	if !limited {
		return nil, fmt.Errorf("rocketmq: the client library has changed: its time limits could not be set")
	}
	if err := p.Start(); err != nil {
		return nil, fmt.Errorf("rocketmq: start the producer: %w", err)
	}
	return p, nil
}

// named puts the prefix before each address that makes the library accept host names: it removes the prefix and resolves the name
// at every dial. Without it only IP addresses are allowed.
func named(addrs []string) []string {
	names := make([]string, len(addrs))
	for i, addr := range addrs {
		names[i] = "http://" + addr
	}
	return names
}

// timeLimits is an option that the library lacks. Its options are functions over an unexported struct with exported fields, hence
// reflection; done reports that the fields exist.
func timeLimits(done *bool) producer.Option {
	set := func(args []reflect.Value) []reflect.Value {
		config := args[0].Elem().FieldByName("RemotingClientConfig")
		own := reflect.New(config.Type().Elem()) // the default is a global of the library
		own.Elem().Set(config.Elem())
		for name, limit := range map[string]time.Duration{
			"ConnectionTimeout": connectTimeout, "WriteTimeout": writeTimeout, "ReadTimeout": readTimeout,
		} {
			own.Elem().FieldByName(name).SetInt(int64(limit))
		}
		config.Set(own)
		*done = true
		return nil
	}
	return reflect.MakeFunc(reflect.TypeFor[producer.Option](), set).Interface().(producer.Option)
}

var instances atomic.Uint64

// instanceName is unique among the producers of all processes of a machine.
func instanceName() string {
	return fmt.Sprintf("canal-outbox-%d-%d-%d", os.Getpid(), time.Now().UnixNano(), instances.Add(1))
}

// The library has one logger and one panic handler for the process. They are installed once, because its goroutines read them
// without a lock, and forward to the newest sink until it is closed: some of those goroutines continue to write, and the owner of
// the sink may have closed its log.
var (
	globals sync.Once
	current struct {
		sync.RWMutex // held while a line is written
		log          *zap.Logger
	}
)

func takeGlobals(log *zap.Logger) {
	current.Lock()
	current.log = log
	current.Unlock()
	globals.Do(func() {
		rlog.SetLogger(libraryLog{})
		primitive.PanicHandler = func(cause any) {
			toLog(func(log *zap.Logger) {
				log.Error("the RocketMQ client library panicked in one of its goroutines", zap.Any("panic", cause), zap.Stack("stack"))
			})
		}
	})
}

// leaveGlobals returns when the library writes no more to the log.
func leaveGlobals(log *zap.Logger) {
	current.Lock()
	defer current.Unlock()
	if current.log == log {
		current.log = zap.NewNop()
	}
}

func toLog(write func(*zap.Logger)) {
	current.RLock()
	defer current.RUnlock()
	write(current.log)
}

// libraryLog forwards the library's log lines at debug level: this package reports what matters to an operator itself, once. It
// keeps only fields that cannot contain a message: bodies and properties never reach a log.
type libraryLog struct{}

var harmless = map[string]bool{
	rlog.LogKeyUnderlayError: true, rlog.LogKeyTopic: true, rlog.LogKeyBroker: true, rlog.LogKeyProducerGroup: true,
	"brokerName": true, "brokerAddr": true, "clientID": true, "responseCode": true, "remark": true,
}

func (libraryLog) write(rank, msg string, fields map[string]any) {
	kept := append(make([]zap.Field, 0, 1+len(fields)), zap.String("rank", rank))
	for name, value := range fields {
		if harmless[name] {
			kept = append(kept, zap.Any(name, value))
		}
	}
	toLog(func(log *zap.Logger) { log.Debug("rocketmq client: "+msg, kept...) })
}

func (libraryLog) Debug(string, map[string]any) {}

func (l libraryLog) Info(msg string, fields map[string]any) { l.write("info", msg, fields) }

func (l libraryLog) Warning(msg string, fields map[string]any) { l.write("warning", msg, fields) }

func (l libraryLog) Error(msg string, fields map[string]any) { l.write("error", msg, fields) }

// Fatal does not end the process, unlike the library's own logger.
func (l libraryLog) Fatal(msg string, fields map[string]any) { l.write("fatal", msg, fields) }

func (libraryLog) Level(string)            {}
func (libraryLog) OutputPath(string) error { return nil }
