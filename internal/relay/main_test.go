package relay

import (
	"testing"

	"github.com/canal-outbox/canal-outbox/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }
