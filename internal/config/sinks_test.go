package config

import (
	"github.com/canal-outbox/canal-outbox/sink/kafka"
	"github.com/canal-outbox/canal-outbox/sink/rocketmq"
	"github.com/canal-outbox/canal-outbox/sink/stdout"
)

// testSinks are those of the binary; package app has the table.
var testSinks = Sinks{
	{"rocketmq", func() Section { return rocketmq.NewSection() }},
	{"kafka", func() Section { return kafka.NewSection() }},
	{"stdout", func() Section { return stdout.NewSection() }},
}

func kafkaOf(c *Config) *kafka.Section {
	section, _ := c.Sink.sections["kafka"].(*kafka.Section)
	return section
}
