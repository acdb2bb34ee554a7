package e2e

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"github.com/canal-outbox/canal-outbox/internal/testkit"
	"github.com/canal-outbox/canal-outbox/outbox"
	"github.com/canal-outbox/canal-outbox/test/relay"
)

// story is what a newcomer does on a first day: two relays, the command line, the API, and the page of the second one.
type story struct {
	*stage
	second *relay.Relay
	page   *tab
}

func newStory(t *testing.T) *story {
	t.Helper()
	cluster := fake(t)
	listen := testkit.FreeAddress(t)
	s := &story{page: newTab(t)}
	s.stage = newStage(t, testkit.SharedMySQL(t), cluster, "lease: {time: 3s}")
	s.table.NewLease(t)
	s.second = relay.New(t, relay.Options{
		Source: s.db.Addr(), Tables: []*relay.Table{s.table}, Sink: cluster.Sink(), Extra: fmt.Sprintf("lease: {time: 3s}\nadmin: {listen: %q}", listen),
	})
	s.Start(t)
	s.second.Launch(t)
	s.lease(s.second, "standby")
	s.page.run(chromedp.Navigate("http://" + listen + "/"))
	s.page.shows("#state", "standby")
	s.page.holds("no button that a standby refuses", `document.body.dataset.role === "operator" && !document.querySelector("#pause").checkVisibility()`)
	return s
}

func (s *story) lease(r *relay.Relay, want string) {
	s.t.Helper()
	s.wait("the relay to be "+want, func() bool {
		st, err := r.Status()
		return err == nil && st.Lease.State == want
	})
}

// says runs a command of a relay and wants its exit code and words.
func (s *story) says(r *relay.Relay, code int, command string, words ...string) string {
	s.t.Helper()
	out, errOut, got := r.Command(s.t, strings.Fields(command)...)
	if got != code {
		s.t.Fatalf("%s: exit code %d, want %d\n%s%s", command, got, code, out, errOut)
	}
	contains(s.t, out+errOut, words...)
	return out
}

// P10: with only the command line, the API and the page a newcomer finds a message that failed, explains it and retries it;
// moves the checkpoint and moves it back; pauses, and loses the active relay. The standby takes over and stays paused, as
// ordered, until the newcomer resumes it.
func TestP10_TheFirstDay(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	var before operator.Checkpoint
	testkit.Must(t, json.Unmarshal([]byte(s.says(s.Relay, 0, "checkpoint show -o json")), &before))
	s.row("good", "orders", "x")
	s.row("bad", "orders/ü", "x")
	s.waitCount(1, "status = 3")
	s.waitCount(1, "status = 2")
	s.oneMessage()
	s.checkpointThereAndBack(before.Position)
	s.theOtherRelay()
	for key, n := range s.published(topics[0]) {
		if n != 1 {
			t.Errorf("%s is in the topic %d times", key, n)
		}
	}
	s.page.check(strings.TrimPrefix(s.address(), "http://"))
	s.second.Stop(t)
	s.Stop(t)
}

func (s *story) address() (address string) {
	s.t.Helper()
	s.page.run(chromedp.Evaluate("location.origin", &address))
	return address
}

// oneMessage goes from status to the message by what each answer says to run next.
func (s *story) oneMessage() {
	t := s.t
	t.Helper()
	var next string
	s.wait("status to name the command that lists what failed", func() bool {
		out, _, code := s.Command(t, "status")
		next = regexp.MustCompile(`canal-outbox (messages list --table [^\s;]+)`).FindString(out)
		return code == 4 && next != ""
	})
	list := s.says(s.Relay, 0, strings.TrimPrefix(next, "canal-outbox "), "order:bad", "orders/ü")
	if strings.Contains(list, "order:good") {
		t.Errorf("a message that did not fail is listed: %s", list)
	}
	s.says(s.Relay, 0, "messages trace order:bad", "is FAILED", "has other characters than", "waits for: a decision")
	found, err := s.Client().ShowMessages(t.Context(), operator.MessageRef{Ref: "bad"})
	if err != nil || len(found.Matches) != 1 || found.Matches[0].Status != "failed" {
		t.Fatalf("by the API: %+v, %v", found, err)
	}
	s.exec("UPDATE t_local_message SET topic = 'orders' WHERE biz_key = 'bad'")
	s.says(s.Relay, 0, "messages retry order:bad --yes", "1 message now PENDING again")
	s.waitCount(2, "status = 2")
	s.says(s.Relay, 0, "messages trace order:bad", "is SENT", "published", "offset", "waits for nothing")
}

// checkpointThereAndBack moves to where the log was before the messages, by the preview's leave, and returns to where it was.
func (s *story) checkpointThereAndBack(to outbox.Position) {
	t := s.t
	t.Helper()
	set := fmt.Sprintf("checkpoint set --file %s --pos %d", to.File, to.Offset)
	s.says(s.Relay, 0, set+" --dry-run", "rows", "settle")
	s.says(s.Relay, 3, set, "--yes")
	s.says(s.Relay, 0, set+" --yes")
	var past []operator.HistoryEntry
	testkit.Must(t, json.Unmarshal([]byte(s.says(s.Relay, 0, "checkpoint history -o json")), &past))
	back := -1
	for i, e := range past {
		if strings.Contains(e.Reason, "set by an operator") {
			back = i + 1
			break
		}
	}
	if back < 1 || back >= len(past) {
		t.Fatalf("the history does not show the move and where it was before: %+v", past)
	}
	s.says(s.Relay, 0, fmt.Sprintf("checkpoint rollback %d --yes", past[back].Number))
	s.says(s.Relay, 0, "audit", "checkpoint set", "messages retry")
	s.row("moved", "orders", "x")
	s.waitCount(3, "status = 2")
}

// theOtherRelay takes over when the active one dies, and keeps to the pause.
func (s *story) theOtherRelay() {
	t := s.t
	t.Helper()
	s.says(s.second, 3, "pause --reason wrong", "run the command there", s.StateDir())
	s.says(s.Relay, 0, "pause --reason maintenance")
	s.Kill()
	s.lease(s.second, "active")
	s.says(s.second, 4, "status", "active since", "(maintenance)", "`canal-outbox resume` ends the pause")
	s.page.shows("#about", "active since")
	s.page.shows("#problems", "maintenance")
	s.page.holds("the button to resume", `document.querySelector("#pause").checkVisibility() && document.querySelector("#pause").textContent === "Resume"`)
	s.row("while paused", "orders", "x")
	looked := s.pausedSweeps()
	s.wait("two sweeps that take nothing", func() bool { return s.pausedSweeps() > looked+1 })
	s.Launch(t)
	s.lease(s.Relay, "standby")
	s.says(s.Relay, 4, "status", "standby of", "the active relay is paused", "maintenance")
	if n := s.table.Count(t, "status = 0"); n != 1 {
		t.Errorf("%d rows wait while the relay is paused", n)
	}
	s.says(s.Relay, 3, "resume", "run the command there")
	s.says(s.second, 0, "resume")
	s.waitCount(4, "status = 2")
	s.page.shows("#state", "working")
	s.wait("the standby to read that the pause has ended", func() bool {
		out, _, code := s.Relay.Command(s.t, "status")
		return code == 0 && strings.Contains(out, "standby of")
	})
}

// pausedSweeps counts the sweeps of the second relay that a pause kept from taking rows.
func (s *story) pausedSweeps() float64 {
	s.t.Helper()
	return s.second.Metrics(s.t).Sum("sweep_runs_total", `result="paused"`)
}
