package outbox

// Status is the state of a row in the relay's terms; a table mapping translates it to the column's code.
type Status uint8

const (
	Pending Status = iota // 0: to be published
	Sending               // 1: claimed by a sweep
	Sent                  // 2: acknowledged by the broker
	Failed                // 3: refused for good, or no attempt left; an operator decides
	Held                  // a state of a consumer or operator that the mapping names as held or terminal: never changed
)

// String returns the name used in logs, metrics and JSON.
func (s Status) String() string {
	switch s {
	case Pending:
		return "pending"
	case Sending:
		return "sending"
	case Sent:
		return "sent"
	case Failed:
		return "failed"
	}
	return "held"
}

// Class is what a failed publish means for the message and for the service.
type Class uint8

const (
	ClassNone      Class = iota // published
	ClassPermanent              // this message can never be accepted
	ClassRefused                // an answer about this message, none of the others
	ClassTopic                  // the topic is missing or not allowed: suspended, costs no attempt
	ClassService                // nothing can work until an operator acts (credentials): costs no attempt
	ClassOutage                 // not accepted, the broker or partition is away: costs no attempt
	ClassUnknown                // sent, but no answer: may or may not be stored
)

// String returns the metric label.
func (c Class) String() string {
	switch c {
	case ClassNone:
		return "sent"
	case ClassPermanent:
		return "permanent"
	case ClassRefused:
		return "refused"
	case ClassTopic:
		return "topic"
	case ClassService:
		return "service"
	case ClassOutage:
		return "outage"
	}
	return "unknown"
}

// Scope is how far an outcome reaches: which other messages would have it too.
type Scope uint8

const (
	ScopeMessage   Scope = iota // the message alone
	ScopePartition              // its broker, partition or queue; others accept messages
	ScopeTopic                  // every message of its topic
	ScopeCluster                // every message
)

// String returns the name used in logs and metrics.
func (s Scope) String() string {
	return [...]string{"message", "partition", "topic", "cluster"}[s]
}

// Scope is how far a class reaches unless the sink says otherwise: an answer about a message concerns that message, a topic that
// cannot be written fails all of its messages, and a missing answer concerns the cluster.
func (c Class) Scope() Scope {
	switch c {
	case ClassNone, ClassPermanent, ClassRefused:
		return ScopeMessage
	case ClassTopic:
		return ScopeTopic
	}
	return ScopeCluster
}

// Outcome has three values: published (ClassNone), not published (with the class), unknown.
type Outcome struct {
	Class       Class
	Scope       Scope  // how far the outcome reaches; the default is the message alone
	LessDurable bool   // published, but stored less durably than configured (RocketMQ flush or slave time-outs)
	BrokerID    string // the id the broker gave the message; "" when it gave none
	Reason      string // for an operator and for fail_reason; never a body or a credential; "" when published
}

// Action is the change to write to a row.
type Action uint8

const (
	ActionMarkSent Action = iota // 0,1,3 -> 2: proof of delivery
	ActionRetry                  // 0,1 -> 0: one attempt used, due again after Delay
	ActionFail                   // 0,1 -> 3: permanent refusal, or no attempt left
	ActionRelease                // 1 -> 0 under our own token: claim released, no attempt used
)

// String returns the name used in logs and metrics.
func (v Action) String() string {
	return [...]string{"sent", "retry", "failed", "release"}[v]
}
