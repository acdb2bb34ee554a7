package doctor

import (
	"github.com/canal-outbox/canal-outbox/internal/config"
	"github.com/canal-outbox/canal-outbox/outbox/server"
	"github.com/canal-outbox/canal-outbox/outbox/table"
)

// topicNames is a sink whose broker has rules for the names of topics.
type topicNames interface {
	// TopicFault returns why a topic cannot have this name; "" when it can.
	TopicFault(name string) string
}

// BadTopics finds rules whose topics are invalid at the broker: each row would be refused.
func BadTopics(cfg *config.Config, maps []table.Mapping) (faults []server.Finding) {
	broker, has := cfg.Sink.Section().(topicNames)
	if !has {
		return nil
	}
	for _, m := range maps {
		if m.Topic == nil {
			continue
		}
		for _, name := range m.Topic.Samples() {
			if why := broker.TopicFault(name); why != "" {
				faults = append(faults, server.Finding{
					Severity: server.Fault, Subject: m.Schema + "." + m.Name, What: "its topics are such as " + name + ": " + why,
					Fix: `set tables[].topic, such as topic: "outbox-event-{aggregatetype}"`,
				})
				break
			}
		}
	}
	return faults
}
