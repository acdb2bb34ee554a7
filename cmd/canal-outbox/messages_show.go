package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// refFlags adds the flags of commands on one message.
func refFlags(cmd *cobra.Command, ref *operator.MessageRef) {
	cmd.Flags().StringVar(&ref.Table, "table", "", "only in this `schema.table`; all that the relay serves without it")
	cmd.Flags().BoolVar(&ref.Scan, "scan", false, scanHelp)
}

func newMessagesShow(c *cli) *cobra.Command {
	var ref operator.MessageRef
	cmd := &cobra.Command{
		Use: "show ID|MESSAGE_ID|KEY", Short: "show one message, whole", Args: cobra.ExactArgs(1),
		Long: `Shows the rows that a text may mean: as primary key, message id or business key. Of the body it
shows the size, and of headers the names; --body shows both whole.`,
		Example: "  canal-outbox messages show order:4711\n  canal-outbox messages show 17 --body",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref.Ref = args[0]
			if err := ref.Check(); err != nil {
				return err
			}
			get := func(m operator.Service) (operator.MessageMatches, error) { return m.ShowMessages(cmd.Context(), ref) }
			return answer(cmd.Context(), c, false, get, func(w io.Writer, found operator.MessageMatches) {
				for i, one := range found.Matches {
					if i > 0 {
						line(w, "")
					}
					writeMessage(w, one)
				}
				writeNotes(w, found.Notes)
			})
		},
	}
	refFlags(cmd, &ref)
	cmd.Flags().BoolVar(&ref.Body, "body", false, "show the body, and the values of headers")
	return cmd
}

func writeMessage(w io.Writer, m operator.MessageDetail) {
	writeState(w, m.Message)
	for _, h := range m.Headers {
		value := "..."
		if h.Value != nil {
			value = plain(*h.Value)
		}
		line(w, "header\t%s: %s", plain(h.Name), value)
	}
	switch {
	case m.Fault != "":
		line(w, "fault\t%s", plain(m.Fault))
	case m.Body == nil:
		line(w, "body\t%d bytes; --body shows it", m.BodyBytes)
	default:
		line(w, "body\t%d bytes, %s:\n%s", m.BodyBytes, m.BodyEncoding, plainLines(*m.Body))
	}
}

// writeState writes the values of the columns.
func writeState(w io.Writer, m operator.Message) {
	line(w, "row\t%s of %s", plain(m.ID), m.Table)
	line(w, "message id\t%s", plain(m.MessageID))
	line(w, "type\t%s", orDash(plain(m.Type)))
	line(w, "topic\t%s", orDash(plain(m.Topic)))
	line(w, "key\t%s", orDash(plain(m.Key)))
	line(w, "status\t%s (%s)", m.Status, plain(m.Code))
	line(w, "attempts\t%d", m.Attempts)
	line(w, "made\t%s (%s ago)", timeText(m.CreatedAt), ageText(m.AgeSeconds))
	line(w, "due\t%s", timeText(m.DueAt))
	line(w, "last attempt\t%s", timeText(m.LastExecution))
	line(w, "sent\t%s", timeText(m.SentAt))
	if m.BrokerID != "" {
		line(w, "broker's id\t%s", plain(m.BrokerID))
	}
	line(w, "reason\t%s", orDash(plain(m.Reason)))
}

// plainLines is plain for a text of several lines.
func plainLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = plain(strings.ReplaceAll(lines[i], "\t", "    "))
	}
	return strings.Join(lines, "\n")
}

func newMessagesTrace(c *cli) *cobra.Command {
	var ref operator.MessageRef
	cmd := &cobra.Command{
		Use: "trace ID|MESSAGE_ID|KEY", Short: "show what happened to one message, and what it waits for", Args: cobra.ExactArgs(1),
		Long: `Shows what is known of one message: when it was inserted, where it is in the log, the results of its
attempts, where it is in its topic, when its status was written, and what it waits for now. It reads
the table, the state directory (which notes failures, people's changes and second sends of this relay),
the running relay and the broker, and names what remains unknown.`,
		Example: "  canal-outbox messages trace order:4711",
		RunE: func(cmd *cobra.Command, args []string) error {
			ref.Ref = args[0]
			if err := ref.Check(); err != nil {
				return err
			}
			get := func(m operator.Service) (operator.Trace, error) { return m.TraceMessage(cmd.Context(), ref) }
			return answer(cmd.Context(), c, false, get, writeTrace)
		},
	}
	refFlags(cmd, &ref)
	return cmd
}

func writeTrace(w io.Writer, t operator.Trace) {
	line(w, "message %s, row %s of %s, is %s", plain(t.Message.MessageID), plain(t.Message.ID), t.Message.Table, strings.ToUpper(t.Message.Status))
	for _, e := range t.Events {
		at := "-"
		if e.At != nil {
			at = e.At.UTC().Format("2006-01-02 15:04:05.000Z")
		}
		line(w, "%s\t%s\t%s\t(%s)", at, e.What, plain(e.Detail), e.Source)
	}
	if t.WaitsFor != "" {
		line(w, "waits for: %s", plain(t.WaitsFor))
	} else {
		line(w, "waits for nothing")
	}
	for _, what := range t.Unknown {
		line(w, "not known: %s", plain(what))
	}
}
