package canal

import (
	"fmt"
	"testing"

	"github.com/canal-outbox/canal-outbox/outbox"
)

// A31: the memory for XA branches is bounded. Each branch is forgotten with its outcome, one phase leaves nothing, and above the
// bound an outcome counts as that of an unknown branch.
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
	// A known id takes the branch's new tables, however many there are.
	p.play(t, "gtid u#1\nbegin X'7',X'',1\nprepare\ngtid u#1\nbegin X'8',X'',1\ninsert other 1\nprepare")
	if got := deferred("xa-commit X'8',X'',1"); got != ", deferred shop.other xa 0\n" {
		t.Errorf("the outcome of a branch prepared again gives %q", got)
	}
	for n := range maxBranches {
		p.play(t, fmt.Sprintf("xa-rollback X'%x',X'',1", n))
	}
	if n := len(p.branches); n != 0 {
		t.Errorf("%d branches are remembered after their outcomes", n)
	}
}

// A31: the range between two positions of the log may contain outcomes of branches, so a move to another position forgets all of
// them: a wrong entry would keep the sweep from being triggered.
func TestA31_BranchesAreForgottenWithThePosition(t *testing.T) {
	r := &Reader{branches: map[string][]*mapped{"X'31',X'',1": nil}}
	s := r.newStream(t.Context(), nil, outbox.Position{})
	r.setPosition(outbox.Position{File: "binlog.000007", Offset: 4})
	if len(r.branches)+len(s.assemble.branches) != 0 {
		t.Error("a branch outlived a gap")
	}
}
