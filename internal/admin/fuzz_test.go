package admin

import (
	"strings"
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/operator"
)

// FuzzRequest: whatever is sent, the answer is JSON with a status that fits it, and only a target that passes Check
// reaches the service.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"gtid":"0-1-100"}`, `{"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5:tag:7"}`, `{"file":"binlog.000001","pos":4,"dry_run":true}`,
		`{"latest":true} {"earliest":true}`, `{"pos":-1}`, `{"pos":1e99}`, `{"entry":0}`, `[]`, `null`, `{"file":"../x.1","pos":4}`, "\xff",
	} {
		f.Add("checkpoint", body)
	}
	f.Add("gaps/18446744073709551616/ack", "{}")
	f.Add("gaps/7/ack", "")
	f.Add("../../metrics", "{}")
	f.Add("sweep", "[1,2")
	f.Fuzz(func(t *testing.T, path, body string) {
		for _, c := range path {
			if c <= ' ' || c > '~' || strings.ContainsRune("?#%", c) {
				return // not a path as a request has it
			}
		}
		service := &fake{}
		fits(t, handled(service, "POST", "/api/v1/"+path, "", body))
		if service.target != (operator.Target{}) && service.target.Check() != nil {
			t.Fatalf("%q reached the service as %+v", body, service.target)
		}
	})
}
