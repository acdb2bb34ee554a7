package remoting

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// Bits of a topic's permission on a broker.
const (
	MayWrite = 2
	MayRead  = 4
)

// Route is where a topic is.
type Route struct {
	Queues  []Queues          // one entry for each broker, in the order of names
	Masters map[string]string // broker to address; a broker whose master is away is missing
}

// Queues are the queues of a topic on one broker; they are numbered from 0.
type Queues struct {
	Broker string `json:"brokerName"`
	Read   int    `json:"readQueueNums"`
	Write  int    `json:"writeQueueNums"`
	Perm   int    `json:"perm"`
}

type broker struct {
	Name  string            `json:"brokerName"`
	Addrs map[string]string `json:"brokerAddrs"`
}

// numberKeys matches an object key without quotes: name servers before 4.9.4 write them, and later ones for clients that do not
// request standard JSON.
var numberKeys = regexp.MustCompile(`([{,])(\d+):`)

func decodeStandard(body []byte, into any) error {
	return json.Unmarshal(numberKeys.ReplaceAll(body, []byte(`$1"$2":`)), into)
}

// Route looks up a topic. An *Error with NoTopic means that no registered broker has it.
func (c *Client) Route(ctx context.Context, topic string) (*Route, error) {
	body, err := c.askNames(ctx, RouteOfTopic, map[string]string{"topic": topic})
	if err != nil {
		return nil, err
	}
	var data struct {
		Queues  []Queues `json:"queueDatas"`
		Brokers []broker `json:"brokerDatas"`
	}
	if err := decodeStandard(body, &data); err != nil {
		return nil, fmt.Errorf("route of topic %s: %w", topic, err)
	}
	slices.SortFunc(data.Queues, func(a, b Queues) int { return cmp.Compare(a.Broker, b.Broker) })
	return &Route{data.Queues, masters(slices.Values(data.Brokers))}, nil
}

// Masters lists the masters of the cluster, name to address.
func (c *Client) Masters(ctx context.Context) (map[string]string, error) {
	body, err := c.askNames(ctx, Clusters, nil)
	if err != nil {
		return nil, err
	}
	var data struct {
		Brokers map[string]broker `json:"brokerAddrTable"`
	}
	if err := decodeStandard(body, &data); err != nil {
		return nil, fmt.Errorf("list of brokers: %w", err)
	}
	return masters(func(yield func(broker) bool) {
		for name, b := range data.Brokers {
			b.Name = name
			if !yield(b) {
				return
			}
		}
	}), nil
}

func masters(brokers func(func(broker) bool)) map[string]string {
	found := map[string]string{}
	for b := range brokers {
		if addr := b.Addrs["0"]; addr != "" {
			found[b.Name] = addr
		}
	}
	return found
}
