package rocketmq

import (
	"time"

	"github.com/canal-outbox/canal-outbox/internal/setting"
	"github.com/canal-outbox/canal-outbox/sink"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Section publishes through name servers and brokers of RocketMQ 4 and 5 (not through a 5.x proxy).
type Section struct {
	// NameServers are the host:port addresses of the name servers.
	NameServers []string `yaml:"name_servers"`
	// Group is the producer group.
	Group string `yaml:"group"`
	// AccessKey of the account, when the brokers check one.
	AccessKey string `yaml:"access_key"`
	// SecretKey of the account.
	SecretKey setting.Secret `yaml:"secret_key"`
	// SecretKeyFile is a file that holds the secret key instead.
	SecretKeyFile setting.File `yaml:"secret_key_file"`
	// MaxMessageBytes is the largest body the brokers take (their maxMessageSize). Larger rows become FAILED without an attempt.
	MaxMessageBytes setting.Bytes `yaml:"max_message_bytes"`
	// Durability decides about a message that a broker stored but did not flush or copy to its replica in time: `strict` sends it again;
	// `lenient` counts it as sent, and a crash of the broker can lose it.
	Durability string `yaml:"durability"`
	// Rows with a due time in the next three days go to RocketMQ at once, which delivers them at that time. This needs brokers 5.0 or newer with
	// timerWheelEnable: docs/concepts.md, Due times.
	NativeDelay bool `yaml:"native_delay"`
	// TLS is refused: the RocketMQ client has none.
	TLS *setting.TLS `yaml:"tls,omitempty"`
}

const (
	frameLimit       = 15 << 20       // brokers close the connection on a frame above 16 MiB
	batchBytes       = 1 << 20        // of one request; a larger message is sent alone
	maxBatchMessages = 256            // of one request; the answer lists an id for each
	maxRequests      = 32             // in flight over all queues; one queue has at most one
	maxDelay         = 72 * time.Hour // the brokers' default of timerMaxDelaySec
)

// NewSection returns the section with its defaults.
func NewSection() *Section {
	return &Section{Group: "canal-outbox", MaxMessageBytes: 4 << 20, Durability: "strict"}
}

// Validate reports everything that is wrong with the section.
func (s *Section) Validate(r setting.Report) {
	r.HostPorts("name_servers", s.NameServers)
	r.Required("group", s.Group)
	if s.Group != "" && topicFault(s.Group) != "" { // brokers check groups by the same pattern
		r.Add("group", s.Group, "only 1 to %d letters, digits and %% | _ - are allowed", maxTopicLength)
	}
	r.Size("max_message_bytes", s.MaxMessageBytes, 1<<10, frameLimit)
	r.OneOf("durability", s.Durability, "strict", "lenient")
	if (s.AccessKey != "") != s.SecretKey.Set() {
		r.Add("", "", "access_key and secret_key belong together: set both or none")
	}
	if s.TLS != nil {
		r.Add("tls", s.TLS.Mode, "the RocketMQ client has no TLS: connect over a private network or a tunnel "+
			"that encrypts, and remove this key")
	}
}

// MaxBody is the size in bytes above which a body is refused.
func (s *Section) MaxBody() setting.Bytes { return s.MaxMessageBytes }

// TopicFault returns why a topic cannot have this name; "" when it can.
func (*Section) TopicFault(name string) string { return topicFault(name) }

// Open returns the sink. It does no I/O before the first message: messages get ClassOutage while the cluster cannot be reached.
// Of the limits it obeys May; the number of messages is bounded by the caller.
func (s *Section) Open(limits sink.Limits, log *zap.Logger, reg prometheus.Registerer) (sink.Sink, error) {
	return open(*s, limits.May, log, reg)
}
