package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

func newMessages(c *cli) *cobra.Command {
	cmd := group("messages", "find, explain, retry and discard single messages",
		newMessagesList(c), newMessagesShow(c), newMessagesTrace(c), newMessagesRetry(c), newMessagesDiscard(c), newMessagesStats(c))
	cmd.Long = `Lists, explains, retries and discards single messages. The commands use the running relay over
its socket; without one they query the database of the configuration themselves. A query locks
nothing, and reads no large table unless --scan allows it.`
	return cmd
}

// filterFlags adds the flags that select messages.
func filterFlags(cmd *cobra.Command, filter *operator.MessageFilter, olderThan *time.Duration) {
	f := cmd.Flags()
	f.StringVar(&filter.Status, "status", "", "`state` of the rows: pending, delayed (due later), sending, sent, failed, a state that the configuration names, or held (a code that it does not name)")
	f.StringVar(&filter.Type, "type", "", "only of this business `type` (biz_type, message_type)")
	f.StringVar(&filter.Topic, "topic", "", "only of this `topic`")
	f.StringVar(&filter.Key, "key", "", "only with this business `key`")
	f.StringVar(&filter.Reason, "reason", "", "only with this `text` in the reason of the refusal")
	f.DurationVar(olderThan, "older-than", 0, "only inserted this long `ago` or longer, such as 90s or 24h")
}

const (
	tableHelp = "`schema.table`; needed when the relay serves more than one"
	scanHelp  = "read the whole of a large table if necessary"
)

func newMessagesList(c *cli) *cobra.Command {
	q := operator.MessageQuery{}
	var olderThan time.Duration
	cmd := &cobra.Command{
		Use: "list", Short: "list messages; without --status the failed ones", Args: cobra.NoArgs,
		Long: `Lists messages page by page, in the order of the index that the table has. The end of a page names
the place where the next one begins. --status any lists those of every state, by the primary key.

--status held lists rows whose status is a code that the configuration does not name: the relay
never sends them. Where a table has no code for FAILED, failed are the rows that wait after an
attempt.`,
		Example: `  canal-outbox messages list
  canal-outbox messages list --topic orders --reason max_message_bytes --older-than 1h
  canal-outbox messages list --status held --type refund
  canal-outbox messages list --status pending --limit 200 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.OlderThan = operator.Duration(olderThan)
			if err := q.Check(); err != nil {
				return err
			}
			get := func(m operator.Service) (operator.MessagePage, error) { return m.ListMessages(cmd.Context(), q) }
			return answer(cmd.Context(), c, false, get, func(w io.Writer, page operator.MessagePage) {
				writeMessages(w, page.Messages)
				if page.Next != "" {
					line(w, "more: the same command with --after %s", page.Next)
				}
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Table, "table", "", tableHelp)
	filterFlags(cmd, &q.MessageFilter, &olderThan)
	f.IntVar(&q.Limit, "limit", operator.DefaultMessages, "show at most this many")
	f.StringVar(&q.After, "after", "", "continue after this `place`, which the previous page names")
	f.BoolVar(&q.Scan, "scan", false, scanHelp)
	return cmd
}

func writeMessages(w io.Writer, all []operator.Message) {
	if len(all) == 0 {
		line(w, "no messages")
		return
	}
	line(w, "ID\tMESSAGE ID\tTOPIC\tKEY\tSTATUS\tATTEMPTS\tAGE\tDUE\tREASON")
	for _, m := range all {
		line(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s", plain(m.ID), plain(m.MessageID), orDash(plain(m.Topic)), orDash(plain(m.Key)), m.Status, m.Attempts,
			ageText(m.AgeSeconds), timeText(m.DueAt), orDash(cut(plain(m.Reason), 60)))
	}
}

func newMessagesStats(c *cli) *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "stats", Short: "count messages by state, type, topic and reason", Args: cobra.NoArgs,
		Long: `Counts the rows of a table by state, and those that are not done by topic, by business type and by
reason. It reads a bounded part of the index: the notes say which numbers are of a sample.`,
		Example: "  canal-outbox messages stats\n  canal-outbox messages stats --table shop.t_local_message -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			get := func(m operator.Service) (operator.MessageStats, error) { return m.MessageStats(cmd.Context(), name) }
			return answer(cmd.Context(), c, false, get, writeStats)
		},
	}
	cmd.Flags().StringVar(&name, "table", "", tableHelp)
	return cmd
}

func writeStats(w io.Writer, s operator.MessageStats) {
	line(w, "%s", s.Table)
	line(w, "STATUS\tROWS")
	for _, state := range slices.Sorted(maps.Keys(s.ByStatus)) {
		line(w, "%s\t%s", state, map[string]string{"at_least": "at least ", "estimate": "about "}[s.Kinds[state]]+fmt.Sprint(s.ByStatus[state]))
	}
	if len(s.ByTopic) > 0 {
		line(w, "\nTOPIC\tPENDING\tFAILED\tOLDEST")
	}
	for _, t := range s.ByTopic {
		line(w, "%s\t%d\t%d\t%s", orDash(plain(t.Topic)), t.Pending, t.Failed, ageText(t.OldestAgeSeconds))
	}
	if len(s.ByType) > 0 {
		line(w, "\nTYPE\tPENDING\tFAILED\tOLDEST")
	}
	for _, t := range s.ByType {
		line(w, "%s\t%d\t%d\t%s", orDash(plain(t.Type)), t.Pending, t.Failed, ageText(t.OldestAgeSeconds))
	}
	if len(s.Reasons) > 0 {
		line(w, "\nCOUNT\tREASON")
	}
	for _, r := range s.Reasons {
		line(w, "%d\t%s", r.Count, plain(r.Reason))
	}
	writeNotes(w, s.Notes)
}

func writeNotes(w io.Writer, notes []string) {
	for _, note := range notes {
		line(w, "note: %s", note)
	}
}

// plain returns a text for a terminal: characters that move the cursor, or end a column, become a point.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			return '·'
		}
		return r
	}, text)
}

// cut shortens a text to n characters.
func cut(text string, n int) string {
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

func ageText(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return (time.Duration(*seconds) * time.Second).String()
}

func timeText(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
