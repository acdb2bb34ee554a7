package remoting

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Waits is what a broker waits for before it acknowledges a message.
type Waits struct {
	Flush    bool // its disk
	Replicas int  // replicas that have it
}

// Waits reads the configuration of a broker (org.apache.rocketmq.store.config.MessageStoreConfig).
func (c *Client) Waits(ctx context.Context, limit time.Duration, addr string) (w Waits, err error) {
	_, body, err := c.Ask(ctx, limit, addr, BrokerConfig, nil, nil)
	if err != nil {
		return w, err
	}
	settings := map[string]string{}
	for line := range strings.Lines(string(body)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		settings[name] = value
	}
	role, flush := settings["brokerRole"], settings["flushDiskType"]
	if role == "" || flush == "" {
		return w, fmt.Errorf("%s does not report its brokerRole and its flushDiskType", addr)
	}
	w.Flush = flush == "SYNC_FLUSH"
	if role == "SYNC_MASTER" {
		// Release 5 counts the master. Release 4 waits for one replica, and has no such setting.
		w.Replicas = 1
		if in, is := settings["inSyncReplicas"]; is {
			n, err := strconv.Atoi(in)
			if err != nil {
				return w, fmt.Errorf("%s reports inSyncReplicas %q", addr, in)
			}
			w.Replicas = n - 1
		}
		if settings["allAckInSyncStateSet"] == "true" {
			w.Replicas = math.MaxInt
		}
	}
	return w, nil
}

// CommitLog is the state of a broker's commit log, in bytes.
type CommitLog struct {
	End       int64
	Unflushed int64 // at most; 0 where the broker does not wait for its disk. It may be of a later time than End, or of an earlier one
	Unqueued  int64 // not in the queues yet, so no consumer gets it; of a time near that of End, too
	Copied    int64 // the replicas that the broker waits for have the log up to here
}

// CommitLog asks a broker for the state of its commit log. With SystemError a broker may just not have its statistics yet.
func (c *Client) CommitLog(ctx context.Context, limit time.Duration, addr string, waits Waits) (log CommitLog, err error) {
	_, body, err := c.Ask(ctx, limit, addr, BrokerRuntime, nil, nil)
	if err != nil {
		return log, err
	}
	var runtime struct {
		Table map[string]string `json:"table"`
	}
	if err := json.Unmarshal(body, &runtime); err != nil {
		return log, fmt.Errorf("the runtime information of %s: %w", addr, err)
	}
	if log.End, err = strconv.ParseInt(runtime.Table["commitLogMaxOffset"], 10, 64); err != nil {
		return log, fmt.Errorf("%s does not report the end of its commit log: %w", addr, err)
	}
	if log.Unqueued, err = strconv.ParseInt(runtime.Table["dispatchBehindBytes"], 10, 64); err != nil {
		return log, fmt.Errorf("%s does not report how far its queues are behind its commit log: %w", addr, err)
	}
	log.Copied = log.End
	if waits.Flush {
		if log.Unflushed, err = atMost(runtime.Table["remainHowManyDataToFlush"]); err != nil {
			return log, fmt.Errorf("%s does not report what is to be flushed: %w", addr, err)
		}
	}
	if waits.Replicas > 0 {
		log.Copied, err = c.copied(ctx, limit, addr, waits.Replicas)
	}
	return log, err
}

// copied returns the offset that a number of replicas have; all of those that are in sync where there are fewer. Releases before 5 do not
// support the question.
func (c *Client) copied(ctx context.Context, limit time.Duration, addr string, replicas int) (int64, error) {
	_, body, err := c.Ask(ctx, limit, addr, HAStatus, nil, nil)
	if err != nil {
		return 0, err
	}
	var status struct {
		Connections []struct {
			Acknowledged int64 `json:"slaveAckOffset"`
			InSync       bool  `json:"inSync"`
		} `json:"haConnectionInfo"`
	}
	if err := json.Unmarshal(body, &status); err != nil {
		return 0, fmt.Errorf("the replicas of %s: %w", addr, err)
	}
	var have []int64
	for _, r := range status.Connections {
		if r.InSync || replicas < math.MaxInt {
			have = append(have, r.Acknowledged)
		}
	}
	if len(have) == 0 || replicas < math.MaxInt && len(have) < replicas {
		return 0, nil
	}
	slices.SortFunc(have, func(a, b int64) int { return cmp.Compare(b, a) })
	return have[min(replicas, len(have))-1], nil
}

// atMost returns a number of bytes that a size for people is not above: "0 B", "1.5 KiB" (org.apache.rocketmq.common.UtilAll.
// humanReadableByteCount). Its one decimal is rounded.
func atMost(text string) (int64, error) {
	number, unit, found := strings.Cut(text, " ")
	power := strings.Index("BKMGTPE", strings.TrimSuffix(strings.TrimSuffix(unit, "B"), "i"))
	if unit == "B" {
		power = 0
	}
	n, err := strconv.ParseFloat(number, 64)
	if !found || err != nil || power < 0 || n < 0 {
		return 0, fmt.Errorf("not a size: %q", text)
	}
	if power == 0 {
		return int64(n), nil
	}
	return int64(math.Ceil((n + .1) * math.Pow(1024, float64(power)))), nil
}
