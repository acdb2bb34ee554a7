package canal

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A31: what is remembered of XA branches is bounded. Each is forgotten with its outcome, one phase leaves nothing behind, and
// above the bound the outcome is that of a branch which was not seen.
func TestA31_PreparedBranchesAreBounded(t *testing.T) {
	branch := func(n int) string {
		return fmt.Sprintf("gtid u#%d\nbegin X'%x',X'',1\ninsert t %d\nprepare", n+1, n, n)
	}
	p := newPlayer()
	for n := range maxBranches {
		p.play(t, branch(n))
		p.play(t, fmt.Sprintf("gtid u#1\nbegin X'%x',X'31',1\ninsert t 1\nprepare one-phase", n))
	}
	if n := len(p.branches); n != maxBranches {
		t.Fatalf("%d branches are remembered, want %d", n, maxBranches)
	}
	p.play(t, branch(maxBranches))
	if n := len(p.branches); n != maxBranches {
		t.Fatalf("%d branches are remembered, the bound is %d", n, maxBranches)
	}
	deferred := func(lines string) string {
		t.Helper()
		got := p.play(t, lines)
		return got[len(fmt.Sprint(p.at.Offset)):]
	}
	if got := deferred(fmt.Sprintf("xa-commit X'%x',X'',1", maxBranches)); got != ", deferred any xa 0\n" {
		t.Errorf("the outcome of the one too many gives %q", got)
	}
	if got := deferred("xa-commit X'7',X'',1"); got != ", deferred shop.t xa 0\n" {
		t.Errorf("the outcome of a remembered one gives %q", got)
	}
	// An id that is known already takes the branch's new tables, however many there are.
	p.play(t, "gtid u#1\nbegin X'7',X'',1\nprepare\ngtid u#1\nbegin X'8',X'',1\ninsert other 1\nprepare")
	if got := deferred("xa-commit X'8',X'',1"); got != ", deferred shop.other xa 0\n" {
		t.Errorf("the outcome of one prepared anew gives %q", got)
	}
	for n := range maxBranches {
		p.play(t, fmt.Sprintf("xa-rollback X'%x',X'',1", n))
	}
	if n := len(p.branches); n != 0 {
		t.Errorf("%d branches are remembered after their outcomes", n)
	}
}

// A31: what lies between two places of the log may hold the outcomes of branches, so that going elsewhere forgets them all:
// a wrong memory would keep the sweep from being triggered.
func TestA31_BranchesAreForgottenWithThePosition(t *testing.T) {
	r := &Reader{branches: map[string][]*mapped{"X'31',X'',1": nil}}
	s := r.newStream(t.Context(), nil, outbox.Position{})
	r.setPosition(outbox.Position{File: "binlog.000007", Offset: 4})
	if len(r.branches)+len(s.assemble.branches) != 0 {
		t.Error("a branch outlived a gap")
	}
}
