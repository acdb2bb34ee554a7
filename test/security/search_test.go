package security

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"testing"
)

// canary is a text that must not be printed; what is part of it.
func canary(what string) string { return "zq7Canary" + what }

// canaries are all texts that the tests below use. Passwords have characters that break careless quoting.
var (
	databasePassword = canary("DatabasePassword") + ` $%&<>#:@/?"=`
	wrongPassword    = canary("WrongPassword") + ` $%&"`
	brokerPassword   = canary("BrokerPassword") + ` %s"`
	adminToken       = canary("AdminToken") + "-and-more"
	wrongToken       = canary("WrongToken")
	accountPassword  = canary("AccountPassword") // of an account that is created while the log is read
	body             = canary("Body")
	header           = canary("Header")
	statement        = canary("Statement") // SQL text that the server writes into its log
	foreign          = canary("Foreign")   // in a table that is not mapped
)

// found lists the canaries in a text, plain or encoded.
func found(text []byte) (names []string) {
	core := []byte("zq7Canary")
	forms := map[string][]byte{"plain": core, "hex": []byte(hex.EncodeToString(core))}
	for shift := range 3 { // the base64 form depends on the offset of the text
		padded := append(make([]byte, shift), core...)
		encoded := base64.RawStdEncoding.EncodeToString(padded)
		forms[fmt.Sprintf("base64, %d", shift)] = []byte(encoded[(shift*8+5)/6 : len(padded)*8/6])
	}
	for form, needle := range forms {
		for rest := text; ; {
			i := bytes.Index(rest, needle)
			if i < 0 {
				break
			}
			names = append(names, fmt.Sprintf("%s: %.60q", form, rest[max(0, i-40):min(len(rest), i+60)]))
			rest = rest[i+len(needle):]
			if len(names) > 10 {
				return names
			}
		}
	}
	return names
}

func TestTheSearchFindsCanaries(t *testing.T) {
	for _, text := range []string{
		"x" + body + "y", hex.EncodeToString([]byte("ab" + body)), base64.StdEncoding.EncodeToString([]byte(body)),
		base64.StdEncoding.EncodeToString([]byte("a" + body)), base64.StdEncoding.EncodeToString([]byte("ab" + body)),
	} {
		if len(found([]byte(text))) == 0 {
			t.Errorf("%q is not found", text)
		}
	}
	if names := found([]byte("no canary")); names != nil {
		t.Errorf("found %q", names)
	}
}
